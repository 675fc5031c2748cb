"""What the log of a starting server says that it does: step by step, with how far it is where it says so.

The wordings were read in the released trees of SGLang; none of them is copied. FlashInfer, ninja and the Hugging Face
hub print in between, since their progress is the server's too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ALL = "0.5.9 - 0.5.23"
_LINE_LIMIT = 400
# A log without news for longer is said to be silent.
QUIET_S = 10.0
# An estimate needs a moment of watching, or it is made of noise.
_ETA_AFTER_S = 2.0

# tqdm ends a bar like this, whatever its description: ` 25%|##   | 1/4 [00:00<...]`, or `... Completed | 1/4 [`.
_BAR = r": +(?P<percent>\d+)%(?:\|| Completed)[^|]*\| *(?P<done>\d+)/(?P<total>\d+) \["


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A line that tells what a server does from now on.

    ``step`` may hold groups of the pattern in braces. ``unit`` is what ``done`` and ``total`` count. ``by`` says which
    versions of which program print it.
    """

    pattern: re.Pattern[str]
    step: str
    unit: str = ""
    by: str = ALL


def _wording(pattern: str, step: str, *, unit: str = "", by: str = ALL) -> Wording:
    return Wording(pattern=re.compile(pattern), step=step, unit=unit, by=by)


# Tried in this order; the newest line that matches one tells what the server does now.
WORDINGS: tuple[Wording, ...] = (
    _wording(r"^sglforge: starting profile", "importing SGLang", by="our launch script"),
    _wording(r"\bserver_args=", "starting its processes"),
    _wording(r"Init torch distributed begin", "joining the ranks", by="0.5.9 - 0.5.20"),
    _wording(r"Init parallel begin", "joining the ranks", by="0.5.21 - 0.5.23"),
    _wording(r"\bFetching \d+ files" + _BAR, "downloading the model", unit="files", by="huggingface_hub"),
    _wording(r"\.(safetensors|bin|pt|json|model)" + r": +(?P<percent>\d+)%\|", "downloading the model", by="hub"),
    _wording(r"Load weight begin", "loading weights"),
    _wording(
        r"[Ll]oading (?:np_cache |safetensors |pt )?(?:checkpoint )?shards" + _BAR, "loading weights", unit="shards"
    ),
    _wording(r"quant weights to fp8 ue8m0" + _BAR, "converting weights to fp8", unit="tensors"),
    _wording(r"Load weight end", "allocating the KV cache"),
    _wording(r"KV Cache is allocated\b.*#tokens: (?P<tokens>\d+)", "KV cache of {tokens} tokens is there"),
    _wording(r"Memory pool end", "preparing attention"),
    _wording(
        r"DeepGEMM JIT Compiling for <(?P<kernel>[\w.]+)> N=(?P<n>\d+), K=(?P<k>\d+)",
        "compiling DeepGEMM kernels ({kernel}, N {n}, K {k})",
    ),
    _wording(r"DeepGEMM warmup" + _BAR, "compiling DeepGEMM kernels", unit="shapes"),
    _wording(r"Entering DeepGEMM JIT Pre-Compile", "compiling DeepGEMM kernels"),
    _wording(r"PP-parallel DeepGEMM warmup start", "compiling DeepGEMM kernels", by="0.5.13 - 0.5.23"),
    _wording(r"Running FlashInfer autotune", "tuning FlashInfer kernels"),
    _wording(r"FlashInfer autotune completed", "preparing graphs"),
    _wording(
        r"\bLoading JIT ops: (?P<module>[\w.-]+)", "loading or compiling FlashInfer module {module}", by="FlashInfer"
    ),
    _wording(r"Finished loading JIT ops: (?P<module>[\w.-]+)", "FlashInfer module {module} is there", by="FlashInfer"),
    _wording(r"^\[(?P<done>\d+)/(?P<total>\d+)\] (?=.*(nvcc|c\+\+|g\+\+|gcc|cicc))", "compiling kernels", unit="files"),
    _wording(r"Compiling num tokens \(.*?\)" + _BAR, "compiling graphs", unit="sizes"),
    _wording(r"Capturing batches \(.*?\)" + _BAR, "capturing graphs", unit="batch sizes"),
    _wording(r"Capturing num tokens \(.*?\)" + _BAR, "capturing graphs", unit="sizes", by="0.5.9 - 0.5.20"),
    _wording(r"Capturing prefill shape \(.*?\)" + _BAR, "capturing graphs", unit="sizes", by="0.5.21 - 0.5.23"),
    _wording(r"\[BCG\] Capturing \(.*?\)" + _BAR, "capturing graphs", unit="sizes", by="0.5.11 - 0.5.13"),
    _wording(r"Capture (?P<which>[\w -]*?)\s*(?:cuda|CUDA|cpu|CPU|npu|NPU) ?graph begin", "capturing {which} graphs"),
    _wording(r"Capture c[up]\w+ graph (?:bs|num tokens) \[(?P<sizes>[\d, ]+)", "capturing graphs"),
    _wording(r"Capture .*\bgraph end\b", "preparing the next graphs"),
    _wording(r"Profiling prefill latency[^:]*" + _BAR, "measuring prefill", unit="sizes"),
    _wording(r"max_total_num_tokens=", "starting its HTTP routes"),
    _wording(r"Warmup prefill shapes [^:]*" + _BAR, "warming up", unit="sizes"),
    _wording(r"Start of pd disaggregation warmup", "warming up for disaggregation"),
    _wording(r"Application startup complete", "warming up"),
    _wording(r"server is fired up", "up"),
    _wording(r"port (?P<port>\d+) is in use\. Waiting", "waiting for port {port}, which somebody else holds"),
)
# What our own questions make a server print is no news.
_ACCESS = re.compile(r'"(GET|POST) /\S* HTTP/1')


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a server does: ``done`` of ``total`` where it counts, ``percent`` where it says only that."""

    name: str
    done: int | None = None
    total: int | None = None
    percent: int | None = None
    unit: str = ""

    @property
    def amount(self) -> int | None:
        """What must grow while the step goes on."""
        return self.percent if self.done is None else self.done


def step_of(line: str) -> Step | None:
    """Return what a server does that has just printed this line, None when the line does not tell."""
    line = line[:_LINE_LIMIT]
    for wording in WORDINGS:
        if match := wording.pattern.search(line):
            found = match.groupdict()
            done, total, percent = (int(found[key]) if found.get(key) else None for key in ("done", "total", "percent"))
            name = " ".join(wording.step.format_map(found).split())
            return Step(name=name, done=done, total=total, percent=percent, unit=wording.unit)
    return None


@dataclass(slots=True, kw_only=True)
class StartLog:
    """Follow the log of a starting server; ``clock`` counts seconds.

    ``news`` is when a line came that is not an answer to a question of ours, ``progress`` when a step began or got on.
    """

    path: Path
    clock: Callable[[], float] = time.monotonic
    step: Step = field(default_factory=lambda: Step(name="starting"))
    begun: float = field(init=False)
    news: float = field(init=False)
    progress: float = field(init=False)
    _first: tuple[float, int] | None = None
    _best: dict[tuple[str, int | None], int | None] = field(default_factory=dict)
    _offset: int = 0
    _rest: bytes = b""

    def __post_init__(self) -> None:
        """Count from now."""
        self.begun = self.news = self.progress = self.clock()

    def update(self) -> str:
        """Read what is new and say what the server does."""
        for line in self._new_lines():
            if not line.strip() or _ACCESS.search(line[:_LINE_LIMIT]):
                continue
            self.news = self.clock()
            if step := step_of(line):
                self._take(step)
        return self.describe()

    def describe(self) -> str:
        """Say what the server does, how far it is, how long that may take, and since when it is silent."""
        step, quiet = self.step, self.clock() - self.news
        text = step.name
        if step.total:
            text += f", {step.done} of {step.total} {step.unit}"
        elif step.percent is not None:
            text += f", {step.percent} %"
        if quiet >= QUIET_S:
            return f"waits since {quiet:.0f} s for this: {text}; its log says nothing new"
        if (left := self.seconds_left()) is not None:
            text += f", about {left:.0f} s left"
        return text

    def seconds_left(self) -> float | None:
        """Estimate how long the step goes on, None unless the log gives a total and it has got on meanwhile."""
        step, now = self.step, self.clock()
        if not (step.total and step.done is not None and self._first) or step.done >= step.total:
            return None
        since, at_first = self._first
        if step.done <= at_first or now - since < _ETA_AFTER_S:
            return None
        return (step.total - step.done) * (now - since) / (step.done - at_first)

    def _take(self, step: Step) -> None:
        """Make a step the current one, and see whether the server has got on with it."""
        amount, now = step.amount, self.clock()
        if amount is None and step.name == self.step.name:
            return  # another rank says that it begins too; what is counted meanwhile stays
        best = self._best.get((step.name, step.total))
        # ranks that print in turn do not get on by taking turns; a bar below its best is a new one
        if amount != best or (step.name, step.total) not in self._best:
            self.progress = now
        if step.name != self.step.name or step.total != self.step.total or (best or 0) > (amount or 0):
            self.begun = now
            self._first = None if amount is None else (now, amount)
        self._best[step.name, step.total] = amount
        self.step = step

    def _new_lines(self) -> list[str]:
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        # bars return the carriage instead of ending the line; a new one may begin right behind an old one
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + new)
        # the newest bar has no end yet
        return [line.decode(errors="replace") for line in (*lines, *([self._rest] if new else []))]
