"""The record that a verb keeps of its run, from its first event to its last."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import sglforge
from sglforge.base import runrecord
from sglforge.base.console import Console
from sglforge.base.eventstream import open_stream
from sglforge.base.runrecord import RunRecord
from sglforge.pipeline.request import Outcome, Request, again
from sglforge.pipeline.summary import append_github_summary


def start_run(request: Request, console: Console) -> RunRecord:
    """Start the record of a run: what the console is told from now on is among its events, which ``--events`` gets.

    Raises ConfigError ``output-not-written``, ``events-without-reader`` and ``usage`` for a wrong ``--events``.
    """
    path = request.option("events", Path)
    record = runrecord.start(request.workspace.runs, also=open_stream(path) if path else None)
    console.recorder = record
    record.event(
        "run-started",
        run=record.id,
        verb=request.argv[0] if request.argv else "",
        argv=list(request.argv),
        versions={"sglforge": sglforge.__version__, "python": ".".join(map(str, sys.version_info[:3]))},
    )
    return record


def finish_run(console: Console, outcome: Outcome, *, argv: tuple[str, ...], started: float) -> None:
    """End the record of a run, if one was started: its last events, its ``run.json`` where there is none, its summary.

    ``started`` is when it began, by the monotonic clock.
    """
    record = console.recorder
    if not isinstance(record, RunRecord):
        return
    document: Mapping[str, object] = outcome.document
    if not (record.folder / "run.json").exists():
        with suppress(OSError):
            record.write({"schema": 1, "verb": argv[0], "argv": list(argv), "result": document})
    if isinstance(verdict := document.get("verdict"), str):
        record.event("verdict", verdict=verdict)
    append_github_summary(console, document, verb=argv[0], again=again(argv), environment=os.environ)
    record.event("run-finished", exit_code=outcome.exit_code, seconds=round(time.monotonic() - started, 3))
    record.close()
    console.recorder = None
