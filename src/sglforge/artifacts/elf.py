"""Read ELF files that nobody vouches for: what they need, what they define, where their sections are.

Everything that a file says about itself is held against its size before it is believed, so that a file made to do
harm costs no more time and memory than its size allows. Run-time tables are found through the dynamic segment, as
the loader finds them; sections are what linkers and tools add, and may be missing.

Sources: elf(5); the System V ABI; the Linux Standard Base, "Symbol Versioning". pyelftools reads the same, and the
tests hold this reader against it; it takes thirteen times as long for torch's symbols (1.6 s), and believes the lengths
that it reads.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Data: TypeAlias = "bytes | mmap.mmap"

MACHINES: Mapping[int, str] = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 190: "cuda", 243: "riscv"}
KINDS: Mapping[int, str] = {1: "object", 2: "program", 3: "shared object", 4: "core dump"}
MOST_SECTIONS, MOST_SEGMENTS, MOST_SYMBOLS, MOST_VERSIONS = 1 << 18, 1 << 10, 1 << 22, 1 << 16
"""Far more than any file of this field has: torch's largest library exports a quarter of a million symbols."""
MOST_TEXT_BYTES = 1 << 28

_IDENT_BYTES = 20
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED, _VERNAUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_VERDEF, _VERDAUX = struct.Struct("<HHHHIII"), struct.Struct("<II")

_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_NOBITS, _SHT_DYNSYM = 8, 11
_DT_NULL, _DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 0, 1, 4, 5, 6, 10
_DT_SONAME, _DT_RPATH, _DT_RUNPATH, _DT_GNU_HASH = 14, 15, 29, 0x6FFFFEF5
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_STB_LOCAL, _STB_WEAK = 0, 2
_HIDDEN_VERSION, _LAST_PLAIN_VERSION = 0x8000, 1


class ElfError(Exception):
    """A file that is no ELF file, or is not what it says; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ident:
    """The first bytes of an ELF file: what it is for.

    ``bits`` is 32 or 64; ``machine`` is a name of :data:`MACHINES` or the number; ``kind`` one of :data:`KINDS`.
    """

    bits: int
    little_endian: bool
    machine: str
    kind: str
    os_abi: int
    abi_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section with its place in the file, in bytes; ``size`` is 0 where it takes no room there."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """An undefined symbol: the version and library that it was linked to, None where it names none."""

    name: str
    version: str | None = None
    library: str | None = None
    weak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """What a file of a 64-bit little-endian machine says.

    ``versions`` are the symbol versions that it needs, by library; ``defined`` the exported symbols with the
    versions that each is defined in, "" for none.
    """

    ident: Ident
    flags: int
    sections: tuple[Section, ...] = ()
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]]
    undefined: tuple[Symbol, ...] = ()
    defined: Mapping[str, tuple[str, ...]]

    def section(self, name: str) -> Section | None:
        """Return the first section of a name."""
        return next((section for section in self.sections if section.name == name), None)

    def section_at(self, offset: int) -> Section | None:
        """Return the section that a byte of the file belongs to, None outside of all."""
        return next((one for one in self.sections if one.offset <= offset < one.offset + one.size), None)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Data]:
    """Yield the bytes of a file, mapped and not read.

    Raises OSError.
    """
    with path.open("rb") as stream:
        try:
            view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            yield b""
            return
        with view:
            yield view


def is_elf(data: Data) -> bool:
    """Return whether a file begins as an ELF file does."""
    return data[:4] == b"\x7fELF"


def read_ident(data: Data) -> Ident:
    """Return what an ELF file is for, of any machine.

    Raises ElfError.
    """
    if not is_elf(data):
        raise ElfError("it is no ELF file")
    head = _piece(data, 0, _IDENT_BYTES, "its first bytes")
    bits, little = {1: 32, 2: 64}.get(head[4]), {1: True, 2: False}.get(head[5])
    if bits is None or little is None:
        raise ElfError("its first bytes name no class or byte order")
    kind, machine = struct.unpack("<HH" if little else ">HH", head[16:20])
    return Ident(
        bits=bits,
        little_endian=little,
        machine=MACHINES.get(machine, str(machine)),
        kind=KINDS.get(kind, str(kind)),
        os_abi=head[7],
        abi_version=head[8],
    )


def read_elf(data: Data, *, symbols: bool = True) -> Elf:
    """Return what a 64-bit little-endian file says; without its symbols it is a matter of microseconds.

    Raises ElfError.
    """
    ident = read_ident(data)
    if ident.bits != 64 or not ident.little_endian:
        raise ElfError(f"it is for a {ident.bits}-bit {'little' if ident.little_endian else 'big'}-endian machine")
    fields = _HEADER.unpack(_piece(data, 0, _HEADER.size, "its header"))
    segments_at, sections_at, flags, entry_bytes, count = fields[5], fields[6], fields[7], fields[9], fields[10]
    sections = _sections(data, sections_at, fields[11], fields[12], fields[13])
    plain = tuple(section for section, _ in sections)
    segments = _segments(data, segments_at, entry_bytes, count)
    dynamic = next((segment for segment in segments if segment[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return Elf(ident=ident, flags=flags, sections=plain, versions={}, defined={})
    tables = _Tables.read(data, segments, dynamic)
    count = tables.symbol_count(sections) if symbols else 0
    needed_versions, names = tables.versions()
    undefined, defined = tables.symbols(count, names)
    return Elf(
        ident=ident,
        flags=flags,
        sections=plain,
        soname=next(iter(tables.texts(_DT_SONAME)), None),
        needed=tables.texts(_DT_NEEDED),
        rpath=_paths(tables.texts(_DT_RPATH)),
        runpath=_paths(tables.texts(_DT_RUNPATH)),
        versions=needed_versions,
        undefined=undefined,
        defined=defined,
    )


def _paths(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(":"))


def _segments(data: Data, at: int, entry_bytes: int, count: int) -> list[tuple[int, ...]]:
    """Return the program headers: kind, flags, offset, address, physical address, size in the file and in memory."""
    if not count:
        return []
    if entry_bytes != _SEGMENT.size or count > MOST_SEGMENTS:
        raise ElfError(f"it announces {count} segments of {entry_bytes} bytes")
    return list(_SEGMENT.iter_unpack(_piece(data, at, count * _SEGMENT.size, "its program headers")))


def _sections(data: Data, at: int, entry_bytes: int, count: int, names_in: int) -> list[tuple[Section, int]]:
    """Return the sections with their types; none where the file has no table of them."""
    if not at:
        return []
    if entry_bytes != _SECTION.size:
        raise ElfError(f"it announces section headers of {entry_bytes} bytes")
    first = _SECTION.unpack(_piece(data, at, _SECTION.size, "its first section header"))
    count, names_in = count or first[5], first[6] if names_in == 0xFFFF else names_in
    if count > MOST_SECTIONS:
        raise ElfError(f"it announces {count} sections")
    headers = list(_SECTION.iter_unpack(_piece(data, at, count * _SECTION.size, "its section headers")))
    if names_in >= len(headers):
        raise ElfError("its section names are in a section that is not there")
    names = _Strings.of(data, headers[names_in][4], headers[names_in][5], "its section names")
    found = []
    for name, kind, _, _, offset, size, *_ in headers:
        in_file = 0 if kind in {0, _SHT_NOBITS} else size
        text = names.text(name)
        if in_file and offset + in_file > len(data):
            raise ElfError(f"its section {text!r} ends {offset + in_file - len(data)} bytes behind the file")
        found.append((Section(name=text, offset=offset, size=in_file), kind))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """The tables of the dynamic segment."""

    data: Data
    loads: list[tuple[int, int, int]]  # address, offset, bytes
    entries: list[tuple[int, int]]
    strings: _Strings

    @staticmethod
    def read(data: Data, segments: list[tuple[int, ...]], dynamic: tuple[int, ...]) -> _Tables:
        loads = [(segment[3], segment[2], segment[5]) for segment in segments if segment[0] == _PT_LOAD]
        raw = _piece(data, dynamic[2], dynamic[5] // _ENTRY.size * _ENTRY.size, "its dynamic segment")
        entries: list[tuple[int, int]] = []
        for tag, value in _ENTRY.iter_unpack(raw):
            if tag == _DT_NULL:
                break
            entries.append((tag, value))
        bare = _Tables(data=data, loads=loads, entries=entries, strings=_Strings(b""))
        if not bare.has(_DT_STRTAB):
            return bare
        strings = _Strings.of(data, bare.place(_DT_STRTAB), bare.value(_DT_STRSZ), "its dynamic strings")
        return _Tables(data=data, loads=loads, entries=entries, strings=strings)

    def has(self, tag: int) -> bool:
        return any(one == tag for one, _ in self.entries)

    def value(self, tag: int) -> int:
        return next((value for one, value in self.entries if one == tag), 0)

    def texts(self, tag: int) -> tuple[str, ...]:
        return tuple(self.strings.text(value) for one, value in self.entries if one == tag)

    def place(self, tag: int) -> int:
        """Return where in the file a table is whose address the segment holds."""
        address = self.value(tag)
        for start, offset, size in self.loads:
            if start <= address < start + size:
                return offset + address - start
        raise ElfError(f"its table at {address:#x} is in no segment")

    def symbol_count(self, sections: list[tuple[Section, int]]) -> int:
        """Return how many dynamic symbols there are: no field of the dynamic segment says it."""
        if not self.has(_DT_SYMTAB):
            return 0
        begin = self.place(_DT_SYMTAB)
        room = (len(self.data) - begin) // _SYMBOL.size
        if self.has(_DT_HASH):
            _, count = struct.unpack("<II", _piece(self.data, self.place(_DT_HASH), 8, "its hash table"))
        elif found := [one for one, kind in sections if kind == _SHT_DYNSYM and one.offset == begin]:
            count = found[0].size // _SYMBOL.size
        elif self.has(_DT_GNU_HASH):
            count = self._last_hashed(self.place(_DT_GNU_HASH)) + 1
        else:
            count = 0
        if count > min(room, MOST_SYMBOLS):
            raise ElfError(f"it announces {count} symbols")
        return int(count)

    def _last_hashed(self, at: int) -> int:
        """Return the index of the last symbol of a GNU hash table."""
        buckets, first, words, _ = struct.unpack("<4I", _piece(self.data, at, 16, "its hash table"))
        start: int = at + 16 + words * 8
        if buckets > MOST_SYMBOLS:
            raise ElfError(f"its hash table announces {buckets} buckets")
        heads = _piece(self.data, start, buckets * 4, "its hash table")
        last: int = max((head for (head,) in struct.iter_unpack("<I", heads)), default=0)
        chains = start + buckets * 4
        while last >= first and not _piece(self.data, chains + (last - first) * 4, 1, "its hash table")[0] & 1:
            last += 1
            if last > MOST_SYMBOLS:
                raise ElfError("its hash table does not end")
        return max(last, int(first) - 1)

    def versions(self) -> tuple[dict[str, tuple[str, ...]], dict[int, tuple[str | None, str]]]:
        """Return the versions that are needed, by library; and library (None: its own) and name by version index."""
        needed: dict[str, list[str]] = {}
        names: dict[int, tuple[str | None, str]] = {}
        budget = MOST_VERSIONS
        for at in self._chain(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED.size, 12):
            _, count, file, first, _ = _VERNEED.unpack(_piece(self.data, at, _VERNEED.size, "its version needs"))
            library, place = self.strings.text(file), at + first
            for _ in range(count):
                if (budget := budget - 1) < 0:
                    raise ElfError("it needs more versions than there can be")
                _, _, index, name, step = _VERNAUX.unpack(_piece(self.data, place, 16, "its version needs"))
                names[index & ~_HIDDEN_VERSION] = (library, text := self.strings.text(name))
                needed.setdefault(library, []).append(text)
                if not step:
                    break
                place += step
        for at in self._chain(_DT_VERDEF, _DT_VERDEFNUM, _VERDEF.size, 16):
            _, _, index, count, _, first, _ = _VERDEF.unpack(_piece(self.data, at, _VERDEF.size, "its versions"))
            if count and index > _LAST_PLAIN_VERSION:
                name, _ = _VERDAUX.unpack(_piece(self.data, at + first, _VERDAUX.size, "its versions"))
                names[index & ~_HIDDEN_VERSION] = (None, self.strings.text(name))
        return {library: tuple(texts) for library, texts in needed.items()}, names

    def _chain(self, table: int, count: int, size: int, next_at: int) -> Iterator[int]:
        """Yield the places of the records of a chained table; each is farther on, so that the file's end ends it."""
        if not self.has(table):
            return
        at = self.place(table)
        for _ in range(min(self.value(count), MOST_VERSIONS)):
            yield at
            (step,) = struct.unpack_from("<I", _piece(self.data, at, size, "a version table"), next_at)
            if not step:
                return
            at += step

    def symbols(
        self, count: int, names: Mapping[int, tuple[str | None, str]]
    ) -> tuple[tuple[Symbol, ...], dict[str, tuple[str, ...]]]:
        """Return the undefined symbols, and the defined ones with their versions."""
        if not count:
            return (), {}
        table = _piece(self.data, self.place(_DT_SYMTAB), count * _SYMBOL.size, "its symbols")
        marks: tuple[int, ...] = (0,) * count
        if self.has(_DT_VERSYM):
            marks = struct.unpack(f"<{count}H", _piece(self.data, self.place(_DT_VERSYM), count * 2, "its versions"))
        undefined: list[Symbol] = []
        defined: dict[str, tuple[str, ...]] = {}
        for (name, info, other, section, _, _), mark in zip(_SYMBOL.iter_unpack(table), marks, strict=True):
            binding = info >> 4
            if not name or binding == _STB_LOCAL:
                continue
            text = self.strings.text(name)
            library, version = names.get(mark & ~_HIDDEN_VERSION, (None, ""))
            if not section:
                undefined.append(Symbol(name=text, version=version or None, library=library, weak=binding == _STB_WEAK))
            elif not other & 3 or other & 3 == 3:  # default and protected ones are seen from outside
                known = defined.get(text, ())
                defined[text] = known if version in known else (*known, version)
        return tuple(undefined), defined


def _piece(data: Data, at: int, length: int, what: str) -> bytes:
    """Return a piece of a file, which says nothing sure about itself."""
    if at < 0 or at + length > len(data):
        raise ElfError(f"the file ends before {what}: {at + length} bytes are announced, it has {len(data)}")
    return data[at : at + length]


class _Strings:
    """A string table; names that share their ends would let a small file stand for gigabytes: their sum has a limit."""

    __slots__ = ("_left", "_table")

    def __init__(self, table: bytes) -> None:
        self._table = table
        self._left = 8 * len(table) + (1 << 20)

    @staticmethod
    def of(data: Data, at: int, length: int, what: str) -> _Strings:
        if length > MOST_TEXT_BYTES:
            raise ElfError(f"it announces {length} bytes for {what}")
        return _Strings(_piece(data, at, length, what))

    def text(self, at: int) -> str:
        """Return the string at a place."""
        end = self._table.find(b"\0", at)
        if at >= len(self._table) or end < 0:
            raise ElfError("one of its names is outside of its string table, or does not end")
        self._left -= end - at
        if self._left < 0:
            raise ElfError("its names are longer than its string table could make them")
        return self._table[at:end].decode(errors="backslashreplace")
