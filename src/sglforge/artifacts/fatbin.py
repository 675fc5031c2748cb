"""Read the GPU code of a file: which architectures, as machine code (SASS) or PTX.

nvcc puts a container ("fat binary") for every translation unit into the section `.nv_fatbin`; its entries name their
architecture with its suffix in their headers, compressed or not. The format is NVIDIA's own and not documented: what
is read here was found by compiling with the toolkits 13.0 and 13.4 and comparing with `cuobjdump`, and the tests do it
again for 13.0.
Whatever is new in it (a version, a kind, a flag, a length that does not add up) is said to be not understood, never
guessed; then cuobjdump is asked (:mod:`sglforge.artifacts.sass`).

`.nvFatBinSegment` has one record for every container that is registered at start-up: their number must be the number
of containers that were found, so that none is overlooked.

A cubin of its own (no container) says in a note which options ptxas was called with, from toolkit 13.0 on.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sglforge.artifacts.architectures import Architecture, names, of_number
from sglforge.artifacts.elf import Data, Elf, Section

Kind = Literal["sass", "ptx", "lto"]
LOADED, RELOCATABLE, REGISTERED = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"
CUBIN_NOTE = ".note.nv.tkinfo"
MOST_ENTRIES, MOST_ODD = 1 << 20, 100

_PIECE_BYTES, _SEARCHED_BYTES = 4096, 1 << 31
_MAGIC, _VERSION = 0xBA55ED50, 1
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_WRAPPER_BYTES = 24
_KINDS: Mapping[int, Kind] = {1: "ptx", 2: "sass", 8: "lto"}
# 64 bit, debug, host linux, LZ4, zstd, LTO, `a`, `f`, extended header
_KNOWN_FLAGS = 0x1 | 0x2 | 0x10 | 0x2000 | 0x8000 | 0x10000 | 0x100000 | 0x200000 | 0x1000000
_SUFFIX = {0: "", 0x100000: "a", 0x200000: "f"}
_PTXAS_ARCH = re.compile(rb"-arch[= ]sm_(\d{2,3})([af]?)(?![\w])")
_CUBIN_ABI, _CUBIN_OLD_ABI = 0x41, 0x33


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """One piece of GPU code; ``unit`` counts the containers (translation units) of the file."""

    kind: Kind
    architecture: Architecture
    unit: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The GPU code of a file; ``unsure`` says what was not understood, empty when ``codes`` is all there is.

    ``units`` is how many containers hold code for the GPU; relocatable code, which is not loaded, is left out.
    """

    codes: tuple[DeviceCode, ...] = ()
    units: int = 0
    unsure: tuple[str, ...] = ()

    def architectures(self, kind: Kind) -> frozenset[Architecture]:
        """Return the architectures that there is code of a kind for."""
        return frozenset(code.architecture for code in self.codes if code.kind == kind)


def read_device_code(data: Data, elf: Elf) -> Reading:
    """Return the GPU code in a shared object, a program or an object file of the host."""
    found = [(section.name, section) for section in elf.sections if section.size]
    loaded = [section for name, section in found if name == LOADED]
    relocatable = [section for name, section in found if name == RELOCATABLE]
    if not elf.sections and data.find(struct.pack("<I", _MAGIC), 0, _SEARCHED_BYTES) >= 0:
        return Reading(unsure=("it has GPU code, and no section headers that say where",))
    codes: list[DeviceCode] = []
    unsure: list[str] = []
    units, others = 0, 0
    for section in loaded or relocatable:
        units = _walk(data, section, units, codes, unsure)
    for section in relocatable if loaded else ():
        others = _walk(data, section, others, [], unsure)
    registered = sum(section.size for name, section in found if name == REGISTERED) // _WRAPPER_BYTES
    if registered != units + others:
        unsure.append(f"{registered} containers are registered, {units + others} were found")
    return Reading(codes=tuple(codes), units=units, unsure=tuple(unsure))


def read_cubin(data: Data, elf: Elf) -> Reading:
    """Return what a cubin is for: the architecture that ptxas was told, held against that in the header.

    Before toolkit 13.0 nothing in a cubin tells `sm_120f` from `sm_120`: then it is taken for the plain one, and
    ``unsure`` says so.
    """
    number = _number(elf)
    note = elf.section(CUBIN_NOTE)
    said = _PTXAS_ARCH.findall(data[note.offset : note.offset + min(note.size, 1 << 16)]) if note else []
    told = {of_number(int(digits), suffix.decode()) for digits, suffix in said} or {of_number(number)}
    trouble: tuple[str, ...] = ()
    if not said:
        trouble = (f"it is for sm_{number}, and nothing in it says with which suffix",)
    elif {one.capability for one in told} != {of_number(number).capability} or len(told) > 1:
        trouble = (f"its header says sm_{number}, its note {names(told)}",)
        told = {of_number(number)}
    code = DeviceCode(kind="sass", architecture=told.pop(), unit=0, size=len(data))
    return Reading(codes=(code,), units=1, unsure=trouble)


def is_cubin(elf: Elf) -> bool:
    """Return whether an ELF file is GPU code itself."""
    return elf.ident.machine == "cuda"


def _number(elf: Elf) -> int:
    return elf.flags >> 8 & 0xFF if elf.ident.os_abi == _CUBIN_ABI else elf.flags & 0xFF


def _walk(data: Data, section: Section, units: int, codes: list[DeviceCode], unsure: list[str]) -> int:
    """Read the containers of a section, and return how many there are with those before; stop where one is odd."""
    at, end = section.offset, section.offset + section.size
    while (at := _behind_zeros(data, at, end)) + _CONTAINER.size <= end:
        magic, version, header, size = _CONTAINER.unpack_from(data, at)
        if magic != _MAGIC or version != _VERSION or header != _CONTAINER.size or size > end - at - header:
            unsure.append(f"{section.name} has something else than a container at {at:#x}")
            return units
        for kind, architecture, length in _entries(data, at + header, at + header + size, unsure):
            codes.append(DeviceCode(kind=kind, architecture=architecture, unit=units, size=length))
        units += 1
        if max(len(codes), units) > MOST_ENTRIES or len(unsure) > MOST_ODD:
            unsure.append(f"{section.name} has more than is read")
            return units
        at += header + size
    if at < end:
        unsure.append(f"{section.name} ends with something else than a container")
    return units


def _behind_zeros(data: Data, at: int, end: int) -> int:
    """Return the place of the next byte that is not zero: containers begin at multiples of 8."""
    while at < end:
        piece = data[at : min(at + _PIECE_BYTES, end)]
        if left := piece.lstrip(b"\0"):
            return at + len(piece) - len(left)
        at += len(piece)
    return end


def _entries(data: Data, at: int, end: int, unsure: list[str]) -> Iterator[tuple[Kind, Architecture, int]]:
    """Yield kind, architecture and bytes of the entries of a container."""
    while at + _ENTRY.size <= end:
        kind, _, header, size, _, _, _, _, number, _, _, flags, _, _ = _ENTRY.unpack_from(data, at)
        suffix = _SUFFIX.get(flags & 0x300000)
        if kind not in _KINDS or flags & ~_KNOWN_FLAGS or suffix is None or not 10 <= number < 1000:
            unsure.append(f"an entry at {at:#x} is of kind {kind}, architecture {number}, flags {flags:#x}")
        elif header < _ENTRY.size or size > end - at - header:
            unsure.append(f"an entry at {at:#x} ends behind its container")
            return
        else:
            yield _KINDS[kind], of_number(number, suffix), size
        at += max(header, _ENTRY.size) + size
        if len(unsure) > MOST_ODD:
            return
    if at != end:
        unsure.append(f"a container ends {abs(end - at)} bytes beside its last entry")
