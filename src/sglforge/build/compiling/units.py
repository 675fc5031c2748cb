"""What a compiler makes, by a name that is the same in every build, and what memory that takes. Light."""

from __future__ import annotations

import os

from sglforge.build.compiling import room

MEASURED_MARGIN = 1.1
"""A measured peak is taken for this many times what it was: runs differ a little."""


def name(output: str, roots: tuple[str, ...]) -> str:
    """Return the unit's name: its object's path below a root of the build, else the last two parts of the path."""
    path = os.path.normpath(os.path.join(os.getcwd(), output))
    for root in roots:
        if path.startswith(f"{root.rstrip('/')}/"):
            return path[len(root.rstrip("/")) + 1 :]
    return "/".join(path.split("/")[-2:])


def matches(unit: str, glob: str) -> bool:
    """Say whether a name fits a pattern in which ``*`` stands for anything, slashes too."""
    first, *others = glob.split("*")
    if not others:
        return unit == glob
    *middle, last = others
    if len(unit) < len(first) + len(last) or not (unit.startswith(first) and unit.endswith(last)):
        return False
    at, end = len(first), len(unit) - len(last)
    for part in middle:
        found = unit.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def expected_mib(unit: str, measured: int | None, patterns: tuple[tuple[str, int], ...], default_mib: int) -> int:
    """Return what a unit will take: what it was measured to take, else the recipe's first pattern, else its default."""
    if measured is not None:
        return measured
    return next((mib for glob, mib in patterns if matches(unit, glob)), default_mib)


def fits(expected: int, *, measured: bool, capacity_mib: int) -> bool:
    """Say whether a unit can run here at all; what was measured may take the margin as well, when it is alone."""
    return expected <= capacity_mib + (room.MARGIN_KIB // 1024 if measured else 0)


def reserved_mib(expected: int, *, measured: bool, capacity_mib: int) -> int:
    """Return what is set aside for a unit that fits: a little more than was measured, and no more than there is."""
    return min(int(expected * MEASURED_MARGIN) + 1 if measured else expected, capacity_mib)


def measured_mib(path: str, unit: str) -> tuple[int, int] | None:
    """Return what a file of ``unit, tab, peak, tab, tail`` lines knows of a unit, in MiB; None where it does not."""
    try:
        with open(path, "rb") as stream:
            text = b"\n" + stream.read()
    except OSError:
        return None
    _, found, rest = text.partition(b"\n" + os.fsencode(unit) + b"\t")
    peak, _, tail = rest.partition(b"\n")[0].partition(b"\t")
    return (int(peak), int(tail)) if found and peak.isdigit() and tail.isdigit() else None
