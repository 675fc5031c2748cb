"""What the processes of a server do that prints nothing: compute, read, compile."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Below this share of one core, and below this much data, a server only waits; its timers alone stay far below.
BUSY_CORES = 0.05
BUSY_BYTES = 1_000_000
SAMPLE_S = 5.0
_COMPILERS = frozenset(
    {"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink", "cc1plus", "cc1", "c++", "g++", "gcc", "ld"}
)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, kw_only=True)
class Activity:
    """Watch the processes of a server; ``clock`` counts seconds.

    ``busy`` is when they last computed or read, ``compiled`` when a compiler last ran among them, None if never.
    """

    members: Callable[[], Sequence[int]]
    clock: Callable[[], float] = time.monotonic
    busy: float = field(init=False)
    compiled: float | None = None
    compiling: str | None = None
    _compiling_since: float = 0.0
    _sampled: float = field(init=False)
    _used: dict[int, tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Count from now."""
        self.busy = self._sampled = self.clock()

    def update(self) -> None:
        """Look at the processes, at most every five seconds."""
        now = self.clock()
        if now - self._sampled < SAMPLE_S:
            return
        pids = self.members()
        used = {pid: usage for pid in pids if (usage := _usage(pid))}
        # a process that is new has used all that it has used since the last look
        cores = sum(cpu - self._used.get(pid, (0.0, 0))[0] for pid, (cpu, _) in used.items()) / (now - self._sampled)
        moved = sum(data - self._used.get(pid, (0.0, 0))[1] for pid, (_, data) in used.items())
        if cores >= BUSY_CORES or moved >= BUSY_BYTES:
            self.busy = now
        self._used, self._sampled = used, now
        self._see_compilers(pids, now)

    def note(self) -> str:
        """Say what is compiled and since when, nothing if nothing is."""
        return (
            f"compiling {self.compiling} since {self.clock() - self._compiling_since:.0f} s" if self.compiling else ""
        )

    def _see_compilers(self, pids: Sequence[int], now: float) -> None:
        names = {pid: name for pid in pids if (name := _name(pid)) in _COMPILERS}
        if not names:
            self.compiling = None
            return
        self.compiled = now
        # ninja works in the folder of the module that it builds
        drivers = [pid for pid, name in names.items() if name == "ninja"]
        what = _folder(drivers[0]) if drivers else None
        what = f"module {what}" if what else f"with {', '.join(sorted(set(names.values())))}"
        if self.compiling is None or (drivers and what != self.compiling):
            self._compiling_since = now
        self.compiling = what


def _usage(pid: int) -> tuple[float, int] | None:
    """Return the CPU seconds of a process and its waited-for children, and the bytes that it read and wrote.

    proc_pid_stat(5): utime, stime, cutime, cstime; proc_pid_io(5). What is mapped counts when it comes from a disk.
    """
    process = Path(f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    data = 0
    with contextlib.suppress(OSError, ValueError):
        counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
        data = sum(int(counts[key]) for key in ("rchar", "wchar", "read_bytes"))
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS, data


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _folder(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink().name
    return None
