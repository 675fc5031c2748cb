"""What the log of a server says: what it waits for, which exceptions it met, how it ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
TAIL_LINES = 20
_LINE_LIMIT = 300

# The newest line that matches tells what the server does now (wordings of SGLang 0.5.9 to 0.5.23).
_PHASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        (r"sglforge: starting profile", "importing SGLang"),
        (r"server_args=", "starting the scheduler"),
        (r"Init (parallel|torch distributed) begin", "starting workers"),
        (r"Load weight begin", "loading weights"),
        (r"[Ll]oading .*shards: +(\d+)% ", r"loading weights, \1 %"),
        (r"Load weight end", "allocating the KV cache"),
        (r"[Cc]apture .*graph.*(begin|bs)", "capturing graphs"),
        (r"(ninja|nvcc|JIT).*(compil|build)", "compiling kernels"),
        (r"Application startup complete", "warming up"),
    )
)
_COMPLAINT = re.compile(r"\b(error|fatal|exception|killed|not found|refused)\b", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class LogFollower:
    """Read a growing log and keep what it waits for."""

    path: Path
    phase: str = "starting"
    _offset: int = 0
    _rest: str = field(default="")

    def update(self) -> str:
        """Read what is new and return the phase that the server is in."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
        except FileNotFoundError:
            return self.phase
        self._offset += len(new)
        # progress bars return the carriage instead of ending the line
        *lines, self._rest = re.split(r"[\r\n]", self._rest + new.decode(errors="replace"))
        for line in lines:
            self.phase = phase_of(line) or self.phase
        return self.phase


def phase_of(line: str) -> str | None:
    """Return what a server does that has just printed this line, None when the line does not tell."""
    for pattern, phase in _PHASES:
        if match := pattern.search(line[:_LINE_LIMIT]):
            return match.expand(phase) if "\\" in phase else phase
    return None


def read(path: Path) -> str:
    """Return the text of a log; nothing if there is none."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def exceptions(text: str) -> tuple[str, ...]:
    """Return the last line of every traceback: ``Type: message``."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if TRACEBACK in line:
            # frames are indented; the first line that is not names the exception
            after = (follower for follower in lines[number + 1 :] if follower.strip())
            found.append(next((f.strip() for f in after if not f.startswith((" ", "\t"))), "cut off"))
    return tuple(shorten(line) for line in found)


def cause(text: str) -> str | None:
    """Return the line that best explains why a server ended: its last exception, else its last complaint."""
    if raised := exceptions(text):
        return raised[-1]
    complaints = [line.strip() for line in text.splitlines() if _COMPLAINT.search(line[:_LINE_LIMIT])]
    return shorten(complaints[-1]) if complaints else None


def tail(text: str) -> tuple[str, ...]:
    """Return the last lines of a log, each of readable length."""
    return tuple(shorten(line) for line in text.splitlines() if line.strip())[-TAIL_LINES:]


def shorten(line: str) -> str:
    """Return a line of at most 300 characters."""
    return line if len(line) <= _LINE_LIMIT else f"{line[: _LINE_LIMIT - 4]} ..."
