"""Faults inside a run: the interpreter loads this first and counts what the run does to files, phase by phase.

`TORTURE_PLAN` says where to act: at the n-th operation of a phase the process kills, stops or interrupts itself, finds
an operation refused, or finds the clock moved. Python announces an operation before it is done (PEP 578), so the fault
hits exactly between two of them, and the same plan hits the same place again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

READS = {"os.listdir", "os.scandir"}
WRITES = {
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime", "os.chmod",
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "int": signal.SIGINT, "term": signal.SIGTERM}
PLACES = (
    ("built", "build"), ("env", "build"), ("home", "build"), ("tmp", "build"), ("build-requires.txt", "build"),
    ("wheel-tree", "pack"), ("wheel", "pack"), ("source", "unpack"),
)  # fmt: skip
FOLDERS = {
    "sources": "fetch", "store": "store", "locks": "locks", "runs": "record", "history": "history",
    "environments": "environment",
}  # fmt: skip


class Torturer:
    """Counts operations by phase, and acts at one of them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan, self.last = plan, "catalog"
        self.counts: dict[str, int] = {}
        self.busy = self.fired = False
        self.collects = "gc" in sys.orig_argv
        self.root, self.catalog = plan["workspace"] + "/", plan["catalog"] + "/"

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" and event not in WRITES and event not in READS and event != "subprocess.Popen":
            return
        if self.busy:
            return
        self.busy = True
        try:
            self.look(event, arguments)
        finally:
            self.busy = False

    def look(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if event != "subprocess.Popen" else ""
        path = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        phase = "spawn" if event == "subprocess.Popen" else self.phase(path)
        if phase is None:
            return
        self.last = phase
        plan, writes = self.plan, event in WRITES or (event == "open" and bool((arguments[2] or 0) & WRITING))
        for name in (phase, f"{phase} writes") if writes else (phase,):
            self.counts[name] = self.counts.get(name, 0) + 1
        if self.fired:
            if plan.get("lasting") and writes:
                raise self.refusal(path)
            return
        counted = f"{phase} writes" if plan.get("writes_only") else phase
        if phase == plan.get("phase") and self.counts.get(counted) == plan["number"]:
            self.fired = True
            self.say(event, path, plan["number"])
            self.act(path)

    def phase(self, path: str) -> str | None:
        """Return what a path belongs to, None for what is none of the run's business."""
        if not path.startswith("/"):
            return self.last if path else None  # relative to an open folder: the work that goes on
        if path.startswith(self.root):
            if self.collects:
                return "collect"
            folder, _, rest = path[len(self.root) :].partition("/")
            if folder == "sources" and rest.startswith("git"):
                return "mirror"
            if folder != "scratch":
                return "receipt" if path.endswith("receipt.json") or "receipt.json." in path else FOLDERS.get(folder)
            if rest.startswith(("lock-", "prefetch-", "torch-")):
                return "resolve" if rest.startswith("lock-") else "fetch"
            inner = rest.partition("/")[2].partition("/")[0]
            return next((phase for name, phase in PLACES if inner == name), "scratch")
        if path.startswith(self.catalog):
            return "lock-file" if path.startswith(self.catalog + "locks/") else "catalog"
        return None

    def say(self, event: str, path: str, count: int) -> None:
        line = json.dumps({"pid": os.getpid(), "event": event, "path": path, "count": count, **self.plan})
        descriptor = os.open(self.plan["told"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def act(self, path: str) -> None:
        act = self.plan["act"]
        if act in SIGNALS:
            os.kill(os.getpid(), SIGNALS[act])
        elif act == "clock":
            _shift(float(self.plan["shift_s"]))
        elif act == "errno":
            raise self.refusal(path)

    def refusal(self, path: str) -> OSError:
        number = self.plan["errno"]
        return OSError(number, os.strerror(number), path or None)

    def report(self) -> None:
        self.busy = True
        with open(self.plan["counted"], "w") as stream:  # noqa: PTH123 - nothing more is imported here
            json.dump(self.counts, stream)


def _shift(seconds: float) -> None:
    """Move the clock of this process, as its wall-clock functions show it."""
    import datetime as dt
    import time

    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)
    # a class of the C module has no room for another `now`; whoever has imported it keeps the old one
    real = dt.datetime

    class Shifted(real):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + dt.timedelta(seconds=seconds)

        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
            return handler(real)  # models that are made after the jump

    dt.datetime = Shifted  # type: ignore[misc]
    for name, module in list(sys.modules.items()):
        if name.startswith("sglforge") and getattr(module, "datetime", None) is real:
            module.datetime = Shifted  # type: ignore[attr-defined]


def _begin() -> None:
    plan = os.environ.get("TORTURE_PLAN")
    if not plan or "sglforge" not in sys.orig_argv:
        return  # a child of the run
    torturer = Torturer(json.loads(plan))
    if torturer.plan.get("at_once"):
        _shift(float(torturer.plan["shift_s"]))
    if torturer.plan.get("counted"):
        import atexit

        atexit.register(torturer.report)
    sys.addaudithook(torturer.hook)


_begin()
