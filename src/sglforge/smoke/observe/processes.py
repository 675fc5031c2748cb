"""What /proc says of a server's processes: their memory, their environment, their start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")


def resident(pids: Sequence[int]) -> int:
    """Return the sum of RSS in bytes; pages that are shared count once for each process, ended ones not at all."""
    return sum(map(_rss, pids))


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; nothing when it may not be read.

    It may hold secrets: take out what you need, store none of it. What a process sets itself is not seen, but what
    its children were given is theirs.
    """
    try:
        block = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in block.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def started(pid: int) -> float:
    """Return when a process started, in seconds since 1970; never (infinity), if it has ended."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return float("inf")


def _rss(pid: int) -> int:
    """Return RSS in bytes.

    proc_pid_smaps(5) is exact. proc_pid_statm(5) may be off by many pages for each core, and is for kernels and
    processes that do not show the other.
    """
    folder = _PROC / str(pid)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
