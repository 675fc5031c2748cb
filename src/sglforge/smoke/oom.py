"""How many processes the kernel has killed for want of memory, as the control groups count them."""

from __future__ import annotations

import contextlib
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def oom_kills(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Return the number of kills in our control group so far; 0 where it does not tell.

    cgroup v2 counts in ``memory.events``, v1 in ``memory.oom_control``; both count ``oom_kill``. Inside a container
    the own group is what is mounted, whatever its path outside.
    """
    for file in _counters(groups, own):
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0


def _counters(groups: Path, own: Path) -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            inside = path.lstrip("/")
            if controllers == "memory" or "memory" in controllers.split(","):
                found += [groups / "memory" / inside / "memory.oom_control", groups / "memory" / "memory.oom_control"]
            if not controllers:
                found += [groups / inside / "memory.events", groups / "memory.events"]
    return found
