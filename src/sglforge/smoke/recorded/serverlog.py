"""What the log beside a transcript says: decoded batches, exceptions, requests that were served.

Wordings of SGLang 0.5.9 to 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

_BATCH = re.compile(r"decode batch", re.IGNORECASE)
_FIGURES = {
    "running": re.compile(r"#?running-req:\s*(\d+)"),
    "tokens": re.compile(r"#(?:full )?token:\s*(\d+)"),
    "accept_length": re.compile(r"accept(?:ance)?[ _]len(?:gth)?\s*[:=]\s*(\d+(?:\.\d+)?)"),
    "accept_rate": re.compile(r"accept(?:ance)?[ _]rate\s*[:=]\s*(\d+(?:\.\d+)?)"),
    "throughput": re.compile(r"throughput \(token/s\):\s*(\d+(?:\.\d+)?)"),
}
_RANK = re.compile(r"\b(?:DP\d+ )?TP\d+\b|\bDP\d+\b")
_EXCEPTION = re.compile(
    r"hit an exception|sigquit from a child|Fatal Python error|Segmentation fault|core dumped|AcceleratorError"
    r"|illegal memory access|device-side assert|(?:scheduler|worker|rank).{0,40}(?:died|dead|crashed)"
    r"|exit code:? *-\d+",
    re.IGNORECASE,
)
_WATCHDOG = re.compile(r"watchdog timeout|watchdog.{0,40}(?:timed out|expired)", re.IGNORECASE)
_SERVED = re.compile(r'"(?:GET|POST) (/\S*)[^"]*" (\d{3})')
_HEALTH = re.compile(r"/(?:health|ping|get_model_info|model_info|v1/models|get_server_info|server_info)")
_COMPLETION = re.compile(r"/(?:generate|v1/(?:chat/)?completions|v1/responses)\b")
STEPS_PER_LINE = 40
"""Decode steps between two lines of the log (SGLang's default)."""
LINE_LIMIT = 2000
"""Characters of a line that are looked at."""
_STUCK_LINES = 3
_LINE = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One line about decoding; a figure that the line lacks is None."""

    line: str
    rank: str
    running: int | None
    tokens: int | None
    accept_length: float | None
    accept_rate: float | None
    throughput: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What a log says about the life of its server."""

    batches: tuple[Batch, ...]
    exception: str
    watchdog: str
    healthy: bool
    completed_after_exception: bool
    completed: bool

    @property
    def tokens_per_line(self) -> float:
        """Tokens that one line about decoding stands for: the growth from line to line, else one for each step."""
        pairs = zip(self.batches, self.batches[1:], strict=False)
        grown = [two.tokens - one.tokens for one, two in pairs if one.tokens is not None and two.tokens is not None]
        return median(rising) if (rising := [one for one in grown if one > 0]) else STEPS_PER_LINE


@lru_cache(maxsize=1)
def view(log: str) -> LogView:
    """Read a log."""
    exception = watchdog = ""
    healthy = completed = after = False
    batches: list[Batch] = []
    for whole in log.splitlines():
        line = whole[:LINE_LIMIT]
        if _BATCH.search(line):
            batches.append(_batch(line))
            continue
        if not exception and _EXCEPTION.search(line):
            exception, after = line.strip()[:_LINE], False
        if not watchdog and _WATCHDOG.search(line):
            watchdog = line.strip()[:_LINE]
        if (match := _SERVED.search(line)) and match[2] == "200":
            healthy = healthy or bool(_HEALTH.match(match[1]))
            if _COMPLETION.match(match[1]):
                completed, after = True, bool(exception)
    return LogView(
        batches=tuple(batches),
        exception=exception,
        watchdog=watchdog,
        healthy=healthy,
        completed_after_exception=after,
        completed=completed,
    )


def stuck(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Return the last lines if they show running requests and not one token more, at least three of one rank."""
    rows: dict[str, list[Batch]] = {}
    for batch in batches:
        row = rows.setdefault(batch.rank, [])
        if not batch.running or (batch.tokens is None and batch.throughput != 0):
            row.clear()
        elif row and (row[-1].running, row[-1].tokens) != (batch.running, batch.tokens):
            row[:] = [batch]
        else:
            row.append(batch)
    longest = max(rows.values(), key=len, default=[])
    return tuple(longest) if len(longest) >= _STUCK_LINES else ()


def _batch(line: str) -> Batch:
    found = {name: match[1] if (match := pattern.search(line)) else None for name, pattern in _FIGURES.items()}
    figures = {name: None if said is None else float(said) for name, said in found.items()}
    running, tokens = figures["running"], figures["tokens"]
    return Batch(
        line=line.strip()[:_LINE],
        rank=match[0] if (match := _RANK.search(line)) else "",
        running=None if running is None else int(running),
        tokens=None if tokens is None else int(tokens),
        accept_length=figures["accept_length"],
        accept_rate=figures["accept_rate"],
        throughput=figures["throughput"],
    )
