"""Where payloads stand in a patched file, and what became of them when somebody edited it."""

from __future__ import annotations

import difflib
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglforge.patches.payload import UNIT, Payload, lines_inside_strings


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The lines that a payload takes in a file, ``end`` not among them; the first line is 0."""

    payload: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Lines of a file that became others: ``start`` to ``end`` before, ``new_start`` to ``new_end`` after."""

    start: int
    end: int
    new_start: int
    new_end: int


def find_region(lines: Sequence[str], payload: Payload, *, exact: bool) -> Region | None:
    """Return where the lines of a payload stand, None when that is nowhere or in several places.

    ``exact``: with the payload's own indentation.
    """
    wanted = _bare(payload.text.removesuffix("\n").split("\n"), exact=exact)
    bare = _bare(lines, exact=exact)
    count = len(wanted)
    found = [index for index in range(len(bare) - count + 1) if bare[index : index + count] == wanted]
    return Region(payload=payload.where, start=found[0], end=found[0] + count) if len(found) == 1 else None


def changes(before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    """Yield what differs between two states of a file, from the top to the bottom."""
    head = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    head = min(len(before), len(after)) if head is None else head
    old, new = list(before[head:]), list(after[head:])
    while old and new and old[-1] == new[-1]:
        old.pop()
        new.pop()
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Change(start=head + start, end=head + end, new_start=head + new_start, new_end=head + new_end)


def owners(regions: Sequence[Region], found: Sequence[Change], *, lower: bool) -> list[Region | None]:
    """Return the region that each change belongs to, None for one that is in none.

    Lines that are added where two regions meet could belong to either: to the lower one or to the upper one.
    """
    ordered = sorted(regions, key=lambda region: region.start, reverse=lower)
    return [
        next((region for region in ordered if region.start <= change.start and change.end <= region.end), None)
        for change in found
    ]


def moved(region: Region, found: Sequence[Change], owned_by: Sequence[Region | None]) -> tuple[int, int]:
    """Return the lines that a region has after some changes, its own included."""
    grown = [(change, change.new_end - change.new_start - (change.end - change.start)) for change in found]
    pairs = list(zip(grown, owned_by, strict=True))
    inside = sum(lines for (_, lines), owner in pairs if owner == region)
    before = sum(lines for (change, lines), owner in pairs if owner != region and change.end <= region.start)
    return region.start + before, region.end + before + inside


def as_payload(lines: Sequence[str], start: int, end: int, prefix: str, unit: str) -> str | None:
    """Return lines of a Python file as a payload that would give them, None when they are indented otherwise.

    ``prefix`` is the indentation of the place that the payload goes to, ``unit`` one level more.
    """
    try:
        inside = lines_inside_strings("\n".join(lines) + "\n")
    except (SyntaxError, ValueError, tokenize.TokenError):
        return None
    code: list[str] = []
    for number, line in enumerate(lines[start:end], start=start + 1):
        if number in inside:
            code.append(line)
        elif not line.strip():
            code.append("")
        elif not line.startswith(prefix):
            return None
        else:
            code.append(_in_our_units(line.removeprefix(prefix), unit))
    text = "\n".join(code).strip("\n")
    return f"{text}\n" if text else None


def indentation(lines: Sequence[str], region: Region, payload: Payload, unit: str) -> tuple[str, str]:
    """Return the indentation of the place where a payload stands, and one level of it."""
    prefix = ""
    ours = payload.text.removesuffix("\n").split("\n")
    for line, own in zip(lines[region.start : region.end], ours, strict=True):
        leading, levels = _leading(line), len(_leading(own)) // UNIT
        if own.strip() and not _leading(own):
            prefix = leading
        elif own.strip() and levels and leading.startswith(prefix) and len(leading) > len(prefix):
            rest = leading.removeprefix(prefix)
            if len(rest) % levels == 0:
                return prefix, rest[: len(rest) // levels]
    return prefix, unit


def _in_our_units(line: str, unit: str) -> str:
    levels = 0
    while line.startswith(unit):
        line = line.removeprefix(unit)
        levels += 1
    return " " * (UNIT * levels) + line


def _leading(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _bare(lines: Sequence[str], *, exact: bool) -> list[str]:
    return list(lines) if exact else [line.strip() for line in lines]
