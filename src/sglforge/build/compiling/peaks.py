"""What units were measured to take, kept between builds: ``compiling/peaks/<target>/<package>.json``.

Only the build itself writes here, from what launchers said: a build step cannot. What is damaged counts as not there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from sglforge.base.exclusive import take
from sglforge.base.files import write_json
from sglforge.build.compiling.journal import DONE, KILLED, Line

SCHEMA = 1
MOST_MIB = 4 * 2**20
LOCK_S = 5.0


def load(path: Path) -> dict[str, int]:
    """Return the peaks in MiB by unit; none where the file is missing or says something else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    match document:
        case {"schema": 1, "units": dict(units)}:
            return {name: mib for name, mib in units.items() if _is_peak(mib)}
        case _:
            return {}


def learn(path: Path, lines: Iterable[Line]) -> None:
    """Add what the units of a build took; another build that does the same loses nothing.

    A unit that was killed alone is known to take more than it reached; the newest measurement counts otherwise.
    """
    measured = {line.unit: line.peak_mib for line in lines if line.outcome in {DONE, KILLED} and line.peak_mib > 0}
    if not measured:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _taken(path.with_name(f"{path.name}.lock"))
    try:
        write_json(path, {"schema": SCHEMA, "units": dict(sorted({**load(path), **measured}.items()))})
    finally:
        if lock is not None:
            os.close(lock)


def table(peaks: Mapping[str, int]) -> bytes:
    """Return the file that launchers look a unit up in."""
    lines = (f"{unit}\t{mib}\n" for unit, mib in peaks.items() if "\n" not in unit and "\t" not in unit)
    return "".join(lines).encode(errors="surrogateescape")


def _taken(lock: Path) -> int | None:
    """Return the held lock, or None after some seconds: its holder may be stopped, and a lost peak is no harm."""
    deadline = time.monotonic() + LOCK_S
    while (descriptor := take(lock)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return descriptor


def _is_peak(mib: object) -> bool:
    return isinstance(mib, int) and not isinstance(mib, bool) and 0 < mib <= MOST_MIB
