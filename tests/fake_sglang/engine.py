"""Decode requests together, step by step, as a scheduler does: slots, a queue, a prefix cache, drafts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from fake_sglang import damage, language, log
from fake_sglang.faults import MISSING_ATTRIBUTE, OUT_OF_BOUNDS, TRACEBACK
from fake_sglang.job import Job
from fake_sglang.options import Options
from fake_sglang.tokens import END_ID, as_symbols, encode

_SHARED_TOKENS = 16
_LOG_STEPS = 40
_LEAKED_TOKENS = 256
_LEAKED_BYTES = 2 * 2**20
# Where a fault or the threshold depends on who is in a batch, the first request waits for the others.
_GATHERED = (
    "garbage-together",
    "garbage-in-large-batches",
    "nan-in-a-batch",
    "rounding-tie",
    "burst-drops-one",
    "lost-request-at-threshold",
)
_GATHER_S = 0.03
_GATHER_LIMIT_S = 0.3
_CLIFF_S = 0.06
_JIT_FOLDER = "0.6.0/120f"
_ABORTED = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


@dataclass(slots=True, kw_only=True)
class Engine:
    """The scheduler of a server; `run` decodes as long as the server lives."""

    options: Options
    running: list[Job] = field(default_factory=list)
    waiting: deque[Job] = field(default_factory=deque)
    served: int = 0
    decoded: int = 0
    verified: int = 0
    correct: int = 0
    leaked_slots: int = 0
    leaked_tokens: int = 0
    dead: bool = False
    draft_steps: int = 0
    refused_overlong: bool = False
    _taken: int = 0
    _compiled: bool = False
    _stuck: bool = False
    _spoiled: bool = False
    _blocked: bool = False
    _dirty: bool = False
    _asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    _seen: list[str] = field(default_factory=list)
    _cache: list[str] = field(default_factory=list)
    _hoard: list[bytes] = field(default_factory=list)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Start with drafts, if there are any."""
        self.draft_steps = self.options.num_steps if self.options.speculative else 0

    @property
    def used_tokens(self) -> int:
        """The KV tokens that running requests hold."""
        return sum(len(job.prompt) + len(job.output) for job in self.running) + self.leaked_tokens

    def submit(self, job: Job) -> None:
        """Take a request; ``refused`` says why it gets none."""
        faults = self.options.faults
        self._taken += 1
        job.turn = self._taken
        job.again = self._asked[job.prompt, job.max_new_tokens]
        self._asked[job.prompt, job.max_new_tokens] += 1
        if "dies-in-decode" in faults and self.served > 4:
            self._die(TRACEBACK)
        if "long-context-crashes" in faults and len(job.prompt) * 2 > self.options.context_length:
            self._die(OUT_OF_BOUNDS)
        if "scheduler-dead-health-200" in faults and self.served > 4:
            self.dead = True
        if "wrong-class-attribute" in faults and not self.dead:
            log.raised(MISSING_ATTRIBUTE)
            self.dead = True
        if "raises-while-serving" in faults and job.max_new_tokens > 100:
            log.raised(TRACEBACK)
        if "refuses" in faults and job.max_new_tokens > 4:
            job.refused = "out of pages"
            return
        if "jit-at-request" in faults and job.max_new_tokens > 1 and not self._compiled:
            self._compiled = True
            _compile()
        late = "hangs-after-200-tokens" in faults and self.options.speculative and job.max_new_tokens > 200
        if late or "hangs-at-first-token" in faults:
            return
        job.source = self._source(job)
        self.waiting.append(job)
        self._arrival.set()

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """End the request with this id."""
        for job in [*self.running, *self.waiting]:
            if everything or job.rid == rid:
                if job in self.running:
                    self.running.remove(job)
                    self.leaked_slots += "abort-leaks" in self.options.faults
                else:
                    self.waiting.remove(job)
                self._dirty = self._dirty or "dirty-after-abort" in self.options.faults
                self._blocked = self._blocked or "abort-blocks" in self.options.faults
                job.end(dict(_ABORTED))

    def flush(self) -> bool:
        """Forget the prefix cache; not while there is work."""
        if self.running or self.waiting:
            return False
        self._cache.clear()
        self._seen.clear()
        return True

    def crash_on_overlong(self) -> None:
        """Die of a prompt that should have been refused."""
        self._die(OUT_OF_BOUNDS)

    async def run(self) -> None:
        """Decode whatever comes."""
        while True:
            await self._arrival.wait()
            await self._gather()
            self._arrival.clear()
            while not self.dead and (self.running or self.waiting) and (self._admit() or self.running):
                above = 0 < self.options.threshold < len(self.running)
                batch = len(self.running)
                self._step(above=above)
                slower = _CLIFF_S if above and "slow-cliff" in self.options.faults else 0.0
                drafts = self.options.draft_s * batch if self.draft_steps else 0.0
                await asyncio.sleep(self.options.step_s + slower + drafts)

    async def _gather(self) -> None:
        if self.running or not (self.options.threshold or self.options.faults.any_of(*_GATHERED)):
            return
        start = time.monotonic()
        count = 0
        while count != len(self.waiting) and time.monotonic() - start < _GATHER_LIMIT_S:
            count = len(self.waiting)
            await asyncio.sleep(_GATHER_S * (1 if count < 2 else 3))

    def _admit(self) -> int:
        """Move requests from the queue to the batch and return how many."""
        limit = self.options.max_running_requests - self.leaked_slots
        new: list[Job] = []
        while self.waiting and len(self.running) < limit and not self._blocked:
            job = self.waiting.popleft()
            job.cached = self._cached(job)
            self.running.append(job)
            new.append(job)
        if new:
            log.prefill(new, running=len(self.running) - len(new), queued=len(self.waiting), used=self.used_tokens)
            above = self.options.threshold + 1
            if "lost-request-at-threshold" in self.options.faults and len(new) == len(self.running) == above > 1:
                self.running.pop()
        if self.waiting and len(self.running) >= limit and "burst-drops-one" in self.options.faults:
            self.waiting.popleft()
            if self.waiting:
                job = self.waiting.popleft()
                job.refused = "request was lost"
                job.changed.set()
        return len(new)

    def _step(self, *, above: bool) -> None:
        """Decode one step: a token for each request, and the drafts that are right."""
        self._stuck = "threshold-sticks" in self.options.faults and (above or (self._stuck and bool(self.running)))
        drafting = not (above or self._stuck) or "threshold-ignored" in self.options.faults
        self._spoiled = self._spoiled or (above and "drafts-dead-after-threshold" in self.options.faults)
        self._switch(self.options.num_steps if drafting and self.options.speculative else 0)
        self.decoded += 1
        for job in list(self.running):
            job.peak = max(job.peak, len(self.running))
            job.stale = job.stale or (above and "stale-draft-kv" in self.options.faults)
            self._advance(job)
            if job.finish is None:
                job.marks.append(len(job.output))
            job.changed.set()
        if self.decoded % _LOG_STEPS == 0:
            rate = (self.correct, self.verified) if self.options.speculative else None
            log.decode(running=len(self.running), queued=len(self.waiting), used=self.used_tokens, drafts=rate)
        for job in [one for one in self.running if one.finish]:
            self.running.remove(job)
            self._finished(job)
        self._stuck = self._stuck and bool(self.running)

    def _advance(self, job: Job) -> None:
        if job.max_new_tokens == 0:
            job.end({"type": "length", "length": 0})
            return
        drafts = 0
        if job.output and self.draft_steps:
            drafts = self._right_drafts(job)
        before = len(job.output)
        for _ in range(drafts + 1):
            self._say(job)
            if job.finish or self.dead:
                break
        if before and self.options.speculative:
            right = max(len(job.output) - before - 1, 0)
            job.verified += 1
            job.correct += right
            job.histogram += [0] * (right + 1 - len(job.histogram))
            job.histogram[right] += 1
            self.verified += 1
            self.correct += right

    def _right_drafts(self, job: Job) -> int:
        if job.stale or self._spoiled or self.options.faults.any_of("no-acceptance", "acceptance-zero"):
            return 0
        right = (0, 1, self.options.num_steps, self.options.num_steps)
        return right[language.number(job.source + job.output, len(right))]

    def _say(self, job: Job) -> None:
        """Add one token, and finish if it is the last."""
        faults, place, prefix = self.options.faults, len(job.output), job.source + job.output
        if "hang-after-100-tokens" in faults and place >= 100:
            self.dead = True
            return
        if job.grammar is not None and place < len(job.grammar):
            step = language.forced(prefix, ord(job.grammar[place]))
        else:
            step = damage.step(prefix, faults, together=job.peak > 1)
        token = step.best
        if job.temperature > 0 and job.grammar is None:
            seed = f"{job.seed} {place}" if job.seed is not None else None
            token = step.sample(random.Random(seed).random())
        token = damage.token(job, token, faults, speculative=self.options.speculative)
        if self._dirty and place >= 12 and job.grammar is None:
            token = ord("a") + language.number(job.output, 26)
        if self.refused_overlong and "spoiled-by-overlong" in faults and job.grammar is None:
            token = ord("!")
        job.output += chr(token)
        job.steps.append(step)
        job.peaks.append(job.peak)
        if token == END_ID and not job.ignore_eos:
            job.end({"type": "stop", "matched": END_ID})
        elif stop := next((text for text in job.stop if job.output.endswith(text)), None):
            job.end({"type": "stop", "matched": stop})
        elif len(job.output) >= (limit := min(job.max_new_tokens, 256 if "hidden-limit" in faults else 10**6)):
            job.end({"type": "length", "length": limit})

    def _switch(self, steps: int) -> None:
        if steps != self.draft_steps and self.options.adaptive and "threshold-silent" not in self.options.faults:
            log.switched(self.draft_steps, steps, self.options.num_draft_tokens)
        self.draft_steps = steps

    def _finished(self, job: Job) -> None:
        faults = self.options.faults
        self.served += 1
        if self.options.prefix_cache:
            self._cache.append((job.prompt + job.output)[:-1])
            del self._cache[:-512]
        if "memory-grows" in faults:
            self.leaked_tokens += _LEAKED_TOKENS
            self._hoard.append(os.urandom(_LEAKED_BYTES))
        if job.grammar is not None and faults.any_of("dies-after-json", "dies-after-json-schema"):
            after = 0.1 if "dies-after-json" in faults else 1.0
            threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()

    def _cached(self, job: Job) -> int:
        """Return how much of a prompt the prefix cache has; the last token is always computed."""
        limit = 0 if "prefix-never-hit" in self.options.faults else len(job.prompt) - 1
        if job.scored and job.score_from >= 0:
            limit = min(limit, job.score_from)
        return max((min(_common(job.prompt, one), limit) for one in self._cache), default=0)

    def _source(self, job: Job) -> str:
        """Return the prompt that the model sees."""
        faults = self.options.faults
        if "long-context-wrong" in faults and len(job.prompt) * 2 > self.options.context_length:
            return job.prompt[: len(job.prompt) // 2]
        if "ignores-prompts" in faults and not job.chat:
            return as_symbols(encode("Tell me a story."))
        if "prefix-cache-other-prompt" in faults:
            other = next((one for one in self._seen if _common(one, job.prompt) >= _SHARED_TOKENS), None)
            if other is None:
                self._seen.append(job.prompt)
            return other or job.prompt
        return job.prompt

    def _die(self, why: str) -> None:
        log.raised(why)
        os.kill(os.getpid(), signal.SIGKILL)


def grammar_of(text: str, options: Options) -> str:
    """Return what the grammar makes the model say, with its end mark."""
    if "invalid-json" in options.faults:
        text = text.replace(":", ";")
    if "wrong-json" in options.faults:
        key = text.partition(":")[0]
        text = f"{key}: 5{text[len(text.partition(',')[0]) :]}" if "," in text else f"{key}: 5}}"
    if "open-json" in options.faults:
        text = text[:-1]
    return text + chr(END_ID)


def _common(one: str, other: str) -> int:
    """Return the length of the common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _compile() -> None:
    """Write what FlashInfer leaves behind when it compiles a module."""
    base = os.environ.get("FLASHINFER_WORKSPACE_BASE")
    log.line("JIT compiling fake_sampling_module with ninja")
    if base:
        folder = Path(base) / ".cache" / "flashinfer" / _JIT_FOLDER / "cached_ops" / "fake_sampling_module"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fake_sampling_module.so").write_bytes(b"\x7fELF fake")
