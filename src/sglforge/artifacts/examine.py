"""Examine a wheel or a library: read every binary in it once, look up its symbols, and judge.

A wheel is read once: its files are hashed for RECORD, and its binaries written aside on the way, into a folder that
stands for site-packages. Kernels that are files of their own, of which a wheel may have thousands, are read in memory.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sglforge.artifacts.architectures import Architecture
from sglforge.artifacts.binary import Binary, Wanted, number
from sglforge.artifacts.claims import listed, with_listings
from sglforge.artifacts.elf import Data, Elf, ElfError, is_elf, opened, read_elf, read_ident
from sglforge.artifacts.fatbin import is_cubin, read_cubin, read_device_code
from sglforge.artifacts.judge import judge, verdict
from sglforge.artifacts.libraries import Libraries
from sglforge.artifacts.loader import not_loaded
from sglforge.artifacts.sass import Disassembler
from sglforge.artifacts.symbols import unresolved
from sglforge.artifacts.wheel import check_wheel, read_wheel
from sglforge.base.proc import Runner
from sglforge.base.proc import run as run_process
from sglforge.errors import CheckError, Finding, Verdict
from sglforge.sources.unpack import unsafe_name

_LIBRARY = re.compile(r".*\.so(?:\.\d+)*", re.DOTALL)
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_")
_OLD_MANYLINUX = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_SCRIPT = re.compile(rb"\s*(?:/\*|INPUT|GROUP|OUTPUT_FORMAT)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found out about a file: its findings, and the facts about each binary in it, for some GPUs."""

    file: Path
    findings: tuple[Finding, ...]
    binaries: tuple[Binary, ...]
    gpus: tuple[Architecture, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict; inconclusive where something that matters was not understood."""
        return verdict(self.findings)

    def not_loaded(self) -> dict[Architecture, dict[str, str]]:
        """Return for each GPU the files that are not loaded on it, with the reasons."""
        paths = [binary.path for binary in self.binaries if not binary.is_cubin]
        return {gpu: not_loaded(paths, gpu) for gpu in self.gpus}

    def to_json(self) -> dict[str, object]:
        """Return what the document of ``check`` says of the file."""
        return {
            "file": str(self.file),
            "verdict": self.verdict,
            "binaries": [binary.to_json() for binary in self.binaries if not binary.is_cubin],
            "not_loaded": {gpu.capability: reasons for gpu, reasons in self.not_loaded().items()},
            "cubins": _counted(binary for binary in self.binaries if binary.is_cubin),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What examining works with.

    Args:
        scratch: An empty folder on a disk with room for the binaries of a wheel.
        libraries: Where symbols are looked up; None: they are not.
        disassembler: cuobjdump, for instructions and for what our reader does not know; None: there is none.
        run: How to run it.
    """

    scratch: Path
    libraries: Libraries | None = None
    disassembler: Disassembler | None = None
    run: Runner = run_process


def examine_wheel(
    wheel: Path,
    wanted: Wanted,
    tools: Tools,
    *,
    python_minor: str,
    project: str | None = None,
    version: str | None = None,
    import_name: str | None = None,
) -> Examined:
    """Return everything that is wrong with a wheel and its binaries.

    Raises OSError where the scratch folder has no room.
    """
    spool = _Spool(tools.scratch / "site")
    try:
        findings = check_wheel(
            wheel,
            python_minor=python_minor,
            project=project,
            version=version,
            import_name=import_name,
            through=spool.through,
        )
    except _NoRoomError as error:
        raise error.cause from error
    places = [(binary, spool.root / binary.path) for binary in spool.binaries]
    looked_up = [(_looked_up(binary, place, spool.root, wanted, tools), place) for binary, place in places]
    binaries = with_listings(looked_up, wanted, tools.disassembler, tools.run)
    wanted = replace(
        wanted, tag_glibc=_promised_glibc(wheel), python_minor=python_minor, package=wanted.package or _project(wheel)
    )
    return Examined(
        file=wheel, findings=(*findings, *judge(binaries, wanted)), binaries=tuple(binaries), gpus=wanted.gpus
    )


def examine_library(file: Path, wanted: Wanted, tools: Tools, *, name: str | None = None) -> Examined:
    """Return everything that is wrong with a library, a program or a cubin; ``name`` is what to call it."""
    shown = printable(name or str(file))
    try:
        with opened(file) as data:
            binary = _read(shown, data, len(data))
    except OSError as error:
        binary = Binary(path=shown, size=0, trouble=str(error.strerror))
    binary = _looked_up(binary, file, _root_of(file), wanted, tools)
    (binary,) = with_listings([(binary, file)], wanted, tools.disassembler, tools.run)
    return Examined(file=file, findings=judge([binary], wanted), binaries=(binary,), gpus=wanted.gpus)


def printable(name: str) -> str:
    """Return a name without what would steer a terminal or break a line."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


class _NoRoomError(Exception):
    """The spool cannot be written; a fault of the disk, not of the wheel."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Spool:
    """Writes the binaries of a wheel aside while they are hashed, and reads them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.binaries: list[Binary] = []

    def through(self, name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Hand on the chunks of a file; look at it where it is a binary."""
        first = next(chunks, b"")
        yield first
        named = bool(_LIBRARY.fullmatch(PurePosixPath(name).name)) or name.endswith(".cubin")
        if unsafe_name(name) or not (is_elf(first) or named):
            yield from chunks
        elif name.endswith(".cubin"):
            pieces = [first]
            for chunk in chunks:
                pieces.append(chunk)
                yield chunk
            self._add(name, b"".join(pieces), named=named)
        elif (stream := self._create(name)) is None:
            yield from chunks
        else:
            with stream:
                self._write(stream, first)
                for chunk in chunks:
                    self._write(stream, chunk)
                    yield chunk
            with opened(self.root / installed(name)) as data:
                self._add(name, data, named=named)

    def _create(self, name: str) -> BinaryIO | None:
        """Open the file for a member; None where its folder is a file, or the other way round."""
        place = self.root / installed(name)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            return place.open("wb")
        except OSError as error:
            if error.errno in {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}:
                trouble = f"its path cannot be made: {error.strerror}"
                self.binaries.append(Binary(path=installed(name), size=0, trouble=trouble))
                return None
            raise _NoRoomError(error) from error

    @staticmethod
    def _write(stream: BinaryIO, chunk: bytes) -> None:
        try:
            stream.write(chunk)
        except OSError as error:
            raise _NoRoomError(error) from error

    def _add(self, name: str, data: Data, *, named: bool) -> None:
        binary = _read(installed(name), data, len(data))
        if named or not binary.trouble:  # a piece of ELF in somebody's test data is no binary
            self.binaries.append(binary)


def installed(name: str) -> str:
    """Return where in site-packages a file of a wheel is installed."""
    top, _, rest = name.partition("/")
    kind, _, inner = rest.partition("/")
    return inner if top.endswith(".data") and kind in {"purelib", "platlib"} and inner else name


def _read(path: str, data: Data, size: int) -> Binary:
    """Return what a file says of itself; why not, where it cannot be read."""
    try:
        if not is_elf(data):
            return Binary(path=path, size=size, trouble=_no_elf(data))
        ident = read_ident(data)
        if ident.bits != 64 or not ident.little_endian:
            machine = f"{ident.bits}-bit {ident.machine}{'' if ident.little_endian else ', big-endian'}"
            bare = Elf(ident=replace(ident, machine=machine), flags=0, versions={}, defined={})
            return Binary(path=path, size=size, elf=bare)
        elf = read_elf(data)
        reading = read_cubin(data, elf) if is_cubin(elf) else read_device_code(data, elf)
    except ElfError as error:
        return Binary(path=path, size=size, trouble=str(error))
    elf = replace(elf, defined={})  # nobody asks for it again, and a large library defines much
    return Binary(path=path, size=size, elf=elf, reading=reading if reading.codes or reading.unsure else None)


def _no_elf(data: Data) -> str:
    if not data[:1]:
        return "it is empty"
    if _SCRIPT.match(data[:256]):
        return "it is text, a linker script: linkers read it, the loader does not"
    return "it is no ELF file"


def _looked_up(binary: Binary, place: Path, root: Path, wanted: Wanted, tools: Tools) -> Binary:
    """Return a binary with its symbols looked up, and with what cuobjdump says where that is needed."""
    if binary.elf is None or binary.is_cubin or binary.elf.ident.machine != wanted.machine:
        return binary
    if tools.libraries:
        scope = tools.libraries.scope(binary.elf, folder=place.parent, root=root)
        binary = replace(
            binary, scope=scope, unresolved=unresolved(binary.elf.undefined, scope, torch=tools.libraries.of_torch)
        )
    if not (binary.reading and wanted.gpus and tools.disassembler):
        return binary
    if binary.reading.unsure:
        listing = listed(place, None, tools.disassembler, tools.run)
        reading = binary.reading if listing.trouble else listing.reading()
        return replace(binary, listing=listing, reading=reading)
    return binary


def _root_of(file: Path) -> Path:
    """Return the site-packages folder that a file lies in, else its own folder."""
    return next(
        (folder for folder in file.absolute().parents if folder.name == "site-packages"), file.absolute().parent
    )


def _project(wheel: Path) -> str | None:
    """Return the name of a wheel's project, None where its file name is that of no wheel."""
    try:
        return read_wheel(wheel).name
    except CheckError:
        return None


def _promised_glibc(wheel: Path) -> str | None:
    """Return the oldest GNU C library that a wheel's tags promise to do with."""
    try:
        tags = read_wheel(wheel).tags
    except CheckError:
        return None
    named = [match for tag in tags if (match := _MANYLINUX.match(tag.platform))]
    found = [f"{match[1]}.{match[2]}" for match in named]
    found += [old for name, old in _OLD_MANYLINUX.items() for tag in tags if tag.platform.startswith(f"{name}_")]
    return min(found, key=number, default=None)


def _counted(cubins: Iterable[Binary]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for cubin in cubins:
        for name in _architectures_of(cubin):
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _architectures_of(cubin: Binary) -> Sequence[str]:
    if cubin.reading is None:
        return ("unreadable",)
    mark = "?" if cubin.reading.unsure else ""
    return [f"{one.name}{mark}" for one in sorted(cubin.reading.architectures("sass"))]
