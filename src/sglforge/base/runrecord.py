"""The record of a run on disk: what was asked, what happened, every line that a process said."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sglforge.base.files import replace_link, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """``runs/<id>/``: ``run.json``, ``events.jsonl`` and ``logs/<step>.<phase>.log``."""

    folder: Path

    @property
    def id(self) -> str:
        """The run's id: time of start and a random part."""
        return self.folder.name

    def log(self, step: str, phase: str) -> Path:
        """Return the file for the full output of one phase of one step."""
        return self.folder / "logs" / f"{step}.{phase}.log"

    def event(self, event: str, /, **fields: object) -> None:
        """Append one event with its wall-clock time (seconds since the epoch)."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **fields}, ensure_ascii=False, default=str)
        descriptor = os.open(self.folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def write(self, document: Mapping[str, object]) -> None:
        """Write ``run.json``."""
        write_json(self.folder / "run.json", document)


def start(runs: Path) -> RunRecord:
    """Make the folder of a new run; ``runs/latest`` points at it."""
    stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = runs / f"{stamp}-{secrets.token_hex(3)}"
    (folder / "logs").mkdir(parents=True)
    replace_link(runs / "latest", Path(folder.name))
    return RunRecord(folder=folder)
