"""The record of a run on disk: what was asked, what happened, every line that a process said."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.base.eventstream import EventStream, append
from sglforge.base.files import replace_link, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """``runs/<id>/``: ``run.json``, ``events.jsonl`` and ``logs/<step>.<phase>.log``; usable from any thread.

    ``also`` gets the same events.
    """

    folder: Path
    also: EventStream | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _closed: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The run's id: time of start and a random part."""
        return self.folder.name

    def log(self, step: str, phase: str) -> Path:
        """Return the file for the full output of one phase of one step."""
        return self.folder / "logs" / f"{step}.{phase}.log"

    def event(self, event: str, /, **fields: object) -> None:
        """Append one event with its number and its wall-clock time (seconds since the epoch).

        An event that cannot be written is lost; the numbers show that.
        """
        with self._lock:
            if self._closed.is_set():
                return
            head = {"seq": next(self._numbers), "time": round(time.time(), 3), "event": event}
            line = f"{_json({**head, **fields})}\n".encode(errors="replace")
            with suppress(OSError):
                _append_to(self.folder / "events.jsonl", line)
            if self.also:
                self.also.write(line)

    def write(self, document: Mapping[str, object]) -> None:
        """Write ``run.json``."""
        write_json(self.folder / "run.json", document)

    def close(self) -> None:
        """Take no more events: threads that were left behind have no say after the last one."""
        with self._lock:
            self._closed.set()
            if self.also:
                self.also.close()


def start(runs: Path, *, also: EventStream | None = None) -> RunRecord:
    """Make the folder of a new run; ``runs/latest`` points at it. ``also`` gets its events, too."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder = runs / f"{stamp}-{secrets.token_hex(3)}"
    (folder / "logs").mkdir(parents=True)
    replace_link(runs / "latest", Path(folder.name))
    return RunRecord(folder=folder, also=also)


def _append_to(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        append(descriptor, line)
    finally:
        os.close(descriptor)


def _json(value: Mapping[str, object]) -> str:
    """Return one line of JSON, null where it holds a number that JSON has no word for."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        text = json.dumps(value, default=str)
        return json.dumps(json.loads(text, parse_constant=lambda _word: None), ensure_ascii=False)
