"""What the loader reads of a shared object: its own name and the libraries it needs.

Reads only the dynamic segment, so that the several hundred files of a server take a few milliseconds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# elf(5), 64 bit, little endian: x86_64 and aarch64
_IDENT = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQ14xHH")  # e_phoff, e_phentsize, e_phnum
_SEGMENT = struct.Struct("<I4xQQ8xQ16x")  # p_type, p_offset, p_vaddr, p_filesz
_ENTRY = struct.Struct("<QQ")  # d_tag, d_val
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 0, 1, 5, 10, 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Linkage:
    """DT_SONAME and DT_NEEDED of a shared object."""

    soname: str | None
    needed: tuple[str, ...]


def read_linkage(path: Path) -> Linkage | None:
    """Return how a file is linked; None when it is no ELF file of a 64-bit little-endian machine.

    Raises OSError when the file cannot be read.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            return _read(lambda at, length: _piece(stream, at, length, size))
        except (struct.error, ValueError):
            return None


def _piece(stream: IO[bytes], at: int, length: int, size: int) -> bytes:
    """Return a piece of a file of ``size`` bytes, which says nothing sure about itself."""
    if at + length > size:
        raise ValueError("the file ends before what it announces")
    stream.seek(at)
    return stream.read(length)


def _read(piece: Callable[[int, int], bytes]) -> Linkage:
    head = piece(0, _HEADER.size)
    if not head.startswith(_IDENT):
        raise ValueError("another kind of file")
    offset, size, count = _HEADER.unpack(head)
    table = piece(offset, size * count)
    segments = [_SEGMENT.unpack_from(table, index * size) for index in range(count)]
    entries: list[tuple[int, int]] = []
    for kind, at, _, length in segments:
        if kind == _PT_DYNAMIC:
            entries = list(_ENTRY.iter_unpack(piece(at, length // _ENTRY.size * _ENTRY.size)))
    tags: dict[int, int] = {}
    needed = []
    for tag, value in entries:
        if tag == _DT_NULL:
            break
        tags[tag] = value
        if tag == _DT_NEEDED:
            needed.append(value)
    if _DT_STRTAB not in tags:
        return Linkage(soname=None, needed=())
    names = piece(_offset(segments, tags[_DT_STRTAB]), tags.get(_DT_STRSZ, 0))
    return Linkage(
        soname=_string(names, tags[_DT_SONAME]) if _DT_SONAME in tags else None,
        needed=tuple(_string(names, at) for at in needed),
    )


def _offset(segments: list[tuple[int, ...]], address: int) -> int:
    """Return where in the file an address in memory is."""
    for kind, at, start, length in segments:
        if kind == _PT_LOAD and start <= address < start + length:
            return at + address - start
    raise ValueError("the address is in no segment")


def _string(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode(errors="replace")
