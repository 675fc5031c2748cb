"""What the log of a server says: which exceptions it met, how it ends."""

from __future__ import annotations

import re
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
TAIL_LINES = 20
_LINE_LIMIT = 300

_COMPLAINT = re.compile(r"\b(error|fatal|exception|killed|not found|refused)\b", re.IGNORECASE)


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
