"""A memory control group of our own, version 1 or 2, where this machine lets us make one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group with a limit; a process enters it and stays in it, with what it starts."""

    folder: Path
    version: int

    def enter(self) -> None:
        """Put this process into the group (before it becomes another program)."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def kills(self) -> int:
        """How many of its processes were killed for want of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        rows = (line.split() for line in (self.folder / name).read_text().splitlines())
        return next((int(row[1]) for row in rows if row[0] == "oom_kill"), 0)

    @property
    def peak_mib(self) -> int:
        """The most that it took, in MiB, page cache included."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        file = self.folder / name
        return int(file.read_text()) >> 20 if file.exists() else 0


@contextlib.contextmanager
def memory_group(limit_mib: int) -> Iterator[Group | None]:
    """Yield a group with a limit and no swap, None where none can be made."""
    version = 1 if (V1 / "memory.limit_in_bytes").exists() else 2
    folder = (V1 if version == 1 else V2) / f"sglforge-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        _make(folder, version, limit_mib << 20)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        yield None
        return
    try:
        yield Group(folder=folder, version=version)
    finally:
        _remove(folder)


def _make(folder: Path, version: int, limit: int) -> None:
    if version == 2:
        with contextlib.suppress(OSError):
            (V2 / "cgroup.subtree_control").write_text("+memory")
    folder.mkdir()
    (folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit))
    swap = folder / ("memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max")
    with contextlib.suppress(OSError):
        swap.write_text(str(limit) if version == 1 else "0")


def _remove(folder: Path) -> None:
    """Remove the group once its last processes have ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
