"""What can be said about the machine without saying whose it is."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sglforge.host import cgroup


def describe() -> dict[str, object]:
    """Return cores, memory and the versions of what takes part."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / cgroup.GIB, 1),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("sglforge", "fromager", "nox", "uv", "pydantic")},
    }


def load() -> list[float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
