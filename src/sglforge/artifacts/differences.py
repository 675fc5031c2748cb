"""Where two wheels differ: which files, at which bytes, in which sections."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sglforge.artifacts.elf import Elf, ElfError, is_elf, read_elf

CHUNK_BYTES = 1 << 16
CHANGES = 16
"""How many places of a file are told; all of its bytes are counted."""
OF_SECTION = 2
"""How many places of a section are told, where files are compared section by section."""
SHOWN_BYTES = 16
_RUNS = re.compile(rb"[^\0]+(?:\0{1,7}[^\0]+)*", re.DOTALL)
"""Bytes that differ, with short stretches between them that do not."""

Kind = Literal["content", "only-first", "only-second", "archive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A place where two files differ: the offset in the first one, its ELF section (None in other files), both bytes.

    In files of different sizes whose sections have the same names the offset in the second one may be another.
    """

    offset: int
    section: str | None
    first: bytes
    second: bytes

    def to_json(self) -> dict[str, object]:
        """Return the form that documents have."""
        return {
            "offset": self.offset,
            "section": self.section,
            "first": self.first.hex(),
            "second": self.second.hex(),
        }

    def describe(self) -> str:
        """Return the place in words, with both bytes."""
        where = f"{self.offset:#x}" + (f" in {self.section}" if self.section else "")
        return f"at {where}: {_shown(self.first)} | {_shown(self.second)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDifference:
    """A file that is not the same in two wheels.

    ``kind`` is ``content``, ``only-first`` and ``only-second`` (the other one has no such file), or ``archive``: the
    files are the same, and the zip archive around them is not. ``differing`` counts bytes, of the longer file.
    """

    name: str
    kind: Kind
    sizes: tuple[int, int]
    differing: int = 0
    changes: tuple[Change, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the form that documents have."""
        return {
            "file": self.name,
            "kind": self.kind,
            "sizes": list(self.sizes),
            "differing": self.differing,
            "changes": [change.to_json() for change in self.changes],
        }

    def lines(self, *, changes: int) -> Iterator[str]:
        """Yield the difference for people, with its first places."""
        match self.kind:
            case "only-first":
                yield f"{self.name} is only in the first wheel"
            case "only-second":
                yield f"{self.name} is only in the second wheel"
            case _:
                sizes = "" if self.sizes[0] == self.sizes[1] else f" ({self.sizes[0]} and {self.sizes[1]} bytes long)"
                yield f"{self.name}{sizes}: {self.differing} bytes differ"
                yield from (f"  {change.describe()}" for change in self.changes[:changes])
                if len(self.changes) > changes:
                    yield "  ..."


def differences(first: Path, second: Path) -> tuple[FileDifference, ...]:
    """Return the files in which two wheels differ, by name; RECORD only where nothing else does.

    Raises what :data:`sglforge.artifacts.wheel.UNREADABLE` names for a file that is no wheel.
    """
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        found = tuple(_files(one, other))
    if found:
        return tuple(file for file in found if not file.name.endswith(".dist-info/RECORD")) or found
    return tuple(_archives(first, second))


def _files(one: zipfile.ZipFile, other: zipfile.ZipFile) -> Iterator[FileDifference]:
    ours, theirs = ({info.filename: info for info in archive.infolist()} for archive in (one, other))
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            yield FileDifference(name=name, kind="only-first", sizes=(ours[name].file_size, 0))
        elif name not in ours:
            yield FileDifference(name=name, kind="only-second", sizes=(0, theirs[name].file_size))
        elif (ours[name].CRC, ours[name].file_size) != (theirs[name].CRC, theirs[name].file_size):
            yield _contents(name, one.read(ours[name]), other.read(theirs[name]))


def _archives(first: Path, second: Path) -> Iterator[FileDifference]:
    """Yield the difference of two archives with the same files: times, modes, order, compression."""
    one, other = first.read_bytes(), second.read_bytes()
    if one != other:
        count, changes = _compared(one, other)
        yield FileDifference(
            name=first.name, kind="archive", sizes=(len(one), len(other)), differing=count, changes=tuple(changes)
        )


def _contents(name: str, one: bytes, other: bytes) -> FileDifference:
    sections = _sections(one), _sections(other)
    if len(one) != len(other) and sections[0] and sections[1]:
        count, changes = _by_section(one, other, sections[0], sections[1])
    else:
        count, changes = _compared(one, other, sections=sections[0])
    if not changes:  # between sections, or in their table
        count, changes = _compared(one, other, sections=sections[0])
    return FileDifference(
        name=name, kind="content", sizes=(len(one), len(other)), differing=count, changes=tuple(changes)
    )


def _by_section(one: bytes, other: bytes, ours: Elf, theirs: Elf) -> tuple[int, list[Change]]:
    """Compare the sections that two files both have, so that one more byte early does not hide what is the same."""
    count, changes = 0, []
    for section in ours.sections:
        twin = theirs.section(section.name)
        if not section.size and not (twin and twin.size):
            continue
        mine = one[section.offset : section.offset + section.size]
        its = other[twin.offset : twin.offset + twin.size] if twin else b""
        found, places = _compared(mine, its)
        count += found
        changes += [
            Change(offset=section.offset + place.offset, section=section.name, first=place.first, second=place.second)
            for place in places[:OF_SECTION]
        ]
    return count, changes[: OF_SECTION * CHANGES]


def _compared(one: bytes, other: bytes, *, sections: Elf | None = None) -> tuple[int, list[Change]]:
    """Return how many bytes differ, and the first places; what one is longer by differs."""
    common = min(len(one), len(other))
    count, places = max(len(one), len(other)) - common, list[tuple[int, int]]()
    for start in range(0, common, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, common)
        ours, theirs = one[start:end], other[start:end]
        if ours == theirs:
            continue
        apart = (int.from_bytes(ours) ^ int.from_bytes(theirs)).to_bytes(end - start)
        count += len(apart) - apart.count(0)
        if len(places) < CHANGES:
            places += [(start + run.start(), start + run.end()) for run in _RUNS.finditer(apart)]
    if len(one) != len(other) and len(places) < CHANGES:
        places.append((common, max(len(one), len(other))))
    return count, [_change(one, other, begin, end, sections) for begin, end in places[:CHANGES]]


def _change(one: bytes, other: bytes, begin: int, end: int, sections: Elf | None) -> Change:
    section = sections.section_at(begin) if sections else None
    shown = slice(begin, min(end, begin + SHOWN_BYTES))
    return Change(offset=begin, section=section.name if section else None, first=one[shown], second=other[shown])


def _sections(data: bytes) -> Elf | None:
    """Return what an ELF file says of its sections; None for any other file, and for one that is broken."""
    try:
        return read_elf(data, symbols=False) if is_elf(data) else None
    except ElfError:
        return None


def _shown(data: bytes) -> str:
    """Return bytes as numbers, and as the text that they may be."""
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)
    return f"{data.hex(' ')} {text!r}" if data else "nothing"
