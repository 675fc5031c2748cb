"""What was hit: phases by faults, what was left behind, and on which machine."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from torture.rounds import Report


def counted(reports: Sequence[Report]) -> dict[str, dict[str, int]]:
    """Return how many rounds hit a phase with a fault, by phase and fault; those that missed are not counted."""
    found: dict[str, dict[str, int]] = {}
    for report in reports:
        row = found.setdefault(report.scenario.phase, {})
        row[report.scenario.fault] = row.get(report.scenario.fault, 0) + report.hit
    return {phase: dict(sorted(row.items())) for phase, row in sorted(found.items())}


def table(rows: Mapping[str, Mapping[str, int]]) -> str:
    """Return phases by faults as text; a cell without a number was not tried."""
    faults = sorted({fault for row in rows.values() for fault in row})
    head = " " * 12 + "".join(f"{fault[:11]:>12}" for fault in faults)
    lines = [f"{phase:<12}" + "".join(f"{row.get(fault, ''):>12}" for fault in faults) for phase, row in rows.items()]
    return "\n".join([head, *lines])


def litter(reports: Sequence[Report]) -> Counter[str]:
    """Return after how many rounds something was left behind, by kind."""
    return Counter(kind for report in reports for kind in set(report.litter))


def machine() -> dict[str, object]:
    """Return what can be said about the machine without saying whose it is."""
    models = (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": next(models, platform.machine()).partition(":")[2].strip(),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
