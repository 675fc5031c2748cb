"""What units were measured to take, kept between builds: ``compiling/peaks/<target>/<package>.json``.

Of each unit the peak in MiB, and the most that it took once it had given back a good part of that.

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
from sglforge.build.compiling import room
from sglforge.build.compiling.journal import DONE, KILLED, Line

SCHEMA = 1
MOST_MIB = 4 * 2**20
LOCK_S = 5.0
BEYOND = 1.05


def load(path: Path) -> dict[str, tuple[int, int]]:
    """Return peak and what came after it, in MiB, by unit; none where the file is missing or says something else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    match document:
        case {"schema": 1, "units": dict(units)}:
            return {name: (pair[0], pair[1]) for name, pair in units.items() if _can_be(pair)}
        case _:
            return {}


def learn(path: Path, lines: Iterable[Line]) -> None:
    """Add what the units of a build took; another build that does the same loses nothing.

    The newest measurement counts. A unit that was killed alone takes more than it reached: more than there was.
    """
    ran = {line.unit: line for line in lines if line.outcome in {DONE, KILLED}}
    pairs = {name: (_peak_mib(line), line.tail_mib) for name, line in ran.items() if line.peak_mib > 0}
    measured = {name: pair for name, pair in pairs.items() if _can_be(list(pair))}
    if not measured:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _taken(path.with_name(f"{path.name}.lock"))
    try:
        write_json(path, {"schema": SCHEMA, "units": dict(sorted({**load(path), **measured}.items()))})
    finally:
        if lock is not None:
            os.close(lock)


def table(peaks: Mapping[str, tuple[int, int]]) -> bytes:
    """Return the file that launchers look a unit up in."""
    plain = {unit: pair for unit, pair in peaks.items() if "\n" not in unit and "\t" not in unit}
    lines = (f"{unit}\t{peak}\t{tail}\n" for unit, (peak, tail) in plain.items())
    return "".join(lines).encode(errors="surrogateescape")


def _taken(lock: Path) -> int | None:
    """Return the held lock, or None after some seconds: its holder may be stopped, and a lost peak is no harm."""
    deadline = time.monotonic() + LOCK_S
    while (descriptor := take(lock)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return descriptor


def _peak_mib(line: Line) -> int:
    return line.peak_mib if line.outcome == DONE else int(line.peak_mib * BEYOND) + room.MARGIN_KIB // 1024


def _can_be(pair: object) -> bool:
    match pair:
        case [int(peak), int(tail)] if not isinstance(peak, bool) and not isinstance(tail, bool):
            return 0 <= tail <= peak <= MOST_MIB and peak > 0
        case _:
            return False
