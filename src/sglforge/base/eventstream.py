"""Lines of events to a file, a FIFO or an open descriptor: whole lines, at once, and never in the way of the run."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections import deque
from pathlib import Path

from sglforge.errors import ConfigError

READER_WITHIN_S = 2.0
"""How long a FIFO may be without a reader when it is opened."""
LAST_WORDS_WITHIN_S = 1.0
"""How long a slow reader is waited for at the end."""
BACKLOG_LINES = 50_000
"""How many lines are kept for a slow reader; what comes then is lost to it, and the sequence numbers show that."""


class EventStream:
    """An open stream; what cannot be written is lost, and nothing raises or blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._backlog: deque[bytes] = deque()

    def write(self, line: bytes) -> None:
        """Write one line, or keep it until the reader has room."""
        if self._descriptor is None:
            return
        if self._regular:
            append(self._descriptor, line)
        elif len(self._backlog) < BACKLOG_LINES:
            self._backlog.append(line)
            self._push(self._descriptor)

    def close(self) -> None:
        """Give a slow reader a moment for what is left, then close."""
        deadline = time.monotonic() + LAST_WORDS_WITHIN_S
        while self._descriptor is not None and self._backlog and (left := deadline - time.monotonic()) > 0:
            select.select([], [self._descriptor], [], left)
            self._push(self._descriptor)
        self._gone()

    def _push(self, descriptor: int) -> None:
        while self._backlog:
            try:
                written = os.write(descriptor, self._backlog[0])
            except BlockingIOError:
                return
            except OSError:  # nobody reads any more
                self._gone()
                return
            if written < len(self._backlog[0]):
                self._backlog[0] = self._backlog[0][written:]
            else:
                self._backlog.popleft()

    def _gone(self) -> None:
        self._backlog.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def open_stream(path: Path) -> EventStream:
    """Open what ``--events`` names: a file, which is appended to, a FIFO with a reader, or ``/dev/fd/N``.

    Raises ConfigError ``output-not-written``, and ``events-without-reader`` for a FIFO that nobody reads.
    """
    deadline = time.monotonic() + READER_WITHIN_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
        except OSError as error:
            if error.errno == errno.ENXIO and path.is_fifo():
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                raise ConfigError(
                    code="events-without-reader",
                    message=f"nobody reads {path}",
                    where=str(path),
                    hint="start the reader of the FIFO first, or name a file",
                ) from error
            raise ConfigError(
                code="output-not-written",
                message=f"cannot write events to {path}: {error.strerror}",
                where=str(path),
                hint="name a file in a folder that you may write to, a FIFO or /dev/fd/N",
            ) from error
        _refuse_stdout(descriptor, path)
        return EventStream(descriptor)


def append(descriptor: int, line: bytes) -> None:
    """Append a line to a file, whole or not at all; a full disk loses the line."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        written = os.write(descriptor, line)
        while written < len(line):
            written += os.write(descriptor, line[written:])
    except OSError:
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            return


def _refuse_stdout(descriptor: int, path: Path) -> None:
    """Keep events away from where the result goes.

    Raises ConfigError ``usage``.
    """
    try:
        same = os.path.samestat(os.fstat(descriptor), os.fstat(1))
    except OSError:  # there is no stdout
        return
    if same and not os.path.samestat(os.fstat(descriptor), Path(os.devnull).stat()):
        os.close(descriptor)
        raise ConfigError(
            code="usage",
            message=f"--events {path} is where stdout goes, which has the result and nothing else",
            hint="name a file, or another descriptor: --events /dev/fd/3 3>events.jsonl",
        )
