"""Unpack archives that nobody vouches for: nothing is written outside, nothing grows without bound."""

from __future__ import annotations

import contextlib
import errno
import gzip
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from sglforge.base.files import remove
from sglforge.errors import FetchError

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an archive may become: files, bytes, and bytes per byte of the archive.

    The ratio counts from ``ratio_from_bytes`` on: small texts compress well. Released wheels of this field
    grow three to ten times, a bomb a thousand times.
    """

    files: int = 200_000
    total_bytes: int = 16 * 1024**3
    ratio: float = 100.0
    ratio_from_bytes: int = 64 * 1024**2
    read_bytes: int = 16 * 1024**2


LIMITS = Limits()


def unpack(archive: Path, into: Path, *, limits: Limits = LIMITS) -> Path:
    """Unpack a wheel, zip or tar.gz into a new folder, which is removed again if anything is wrong.

    Names must be relative, plain and unique, also where case and Unicode form do not count. Links must stay
    inside and are made last; hard links, devices and encrypted members are refused. Of the mode only the
    executable bit survives.

    Returns:
        The folder that holds the source: the single top folder of a source archive, else ``into``.

    Raises FetchError ``unsafe-archive``, ``archive-corrupt`` and ``disk-full``.
    """
    into.mkdir(parents=True)
    try:
        with _named(archive):
            extraction = _Extraction(archive=archive, into=into, limits=limits)
            if archive.suffix in {".whl", ".zip"}:
                _unpack_zip(extraction)
            else:
                _unpack_tar(extraction)
            extraction.make_links()
    except BaseException:
        remove(into)
        raise
    entries = list(into.iterdir())
    is_source = archive.suffix != ".whl"
    return entries[0] if is_source and len(entries) == 1 and entries[0].is_dir() else into


def unsafe_name(name: str) -> str | None:
    """Return what is wrong with a member's name, None when nothing is."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute():
        return "is not a relative name"
    if ".." in path.parts:
        return "climbs out of the folder"
    if "\\" in name or (len(name) > 1 and name[1] == ":") or not name.isprintable():
        return "has characters that mean something else elsewhere"
    if any(len(part.encode()) > 255 for part in path.parts):
        return "is longer than a file system allows"
    return None


@dataclass(slots=True, kw_only=True)
class _Extraction:
    """One archive on its way to the disk, with all that was seen of it so far."""

    archive: Path
    into: Path
    limits: Limits
    taken: dict[str, bool] = field(default_factory=dict)  # folded name -> is a folder
    links: list[tuple[PurePosixPath, str]] = field(default_factory=list)
    grown_bytes: int = 0

    def admit(self, name: str, *, size: int = 0, is_folder: bool = False) -> PurePosixPath:
        """Check a member's name and size before anything of it is written."""
        if trouble := unsafe_name(name):
            raise self.unsafe(name, trouble)
        path = PurePosixPath(name)
        for parent in list(path.parents)[:-1]:
            if self.taken.setdefault(_folded(parent), True) is False:
                raise self.unsafe(name, "lies in something that is not a folder")
        if is_folder:
            if self.taken.setdefault(_folded(path), True) is False:
                raise self.unsafe(name, "is there twice")
        elif _folded(path) in self.taken:
            raise self.unsafe(name, "is there twice, at least for a file system that ignores case")
        else:
            self.taken[_folded(path)] = False
        if len(self.taken) > self.limits.files:
            raise self.unsafe(name, f"is one more than {self.limits.files} files")
        self.grow(name, size)
        return path

    def grow(self, name: str, size: int) -> None:
        """Count bytes that will be written."""
        self.grown_bytes += size
        allowed = self.archive.stat().st_size * self.limits.ratio
        if self.grown_bytes > min(self.limits.total_bytes, max(self.limits.ratio_from_bytes, allowed)):
            raise self.unsafe(name, f"makes it grow to {self.grown_bytes / 2**20:.0f} MiB and more")

    def write(self, path: PurePosixPath, source: IO[bytes], *, executable: bool) -> None:
        """Write one admitted file."""
        target = self.into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as stream:
            shutil.copyfileobj(source, stream, CHUNK_BYTES)
        target.chmod(0o755 if executable else 0o644)

    def make_links(self) -> None:
        """Make the symbolic links, each to something inside; last, so that nothing is written through one."""
        for path, target in self.links:
            link = self.into / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        root = self.into.resolve()
        for path, _ in self.links:
            if _is_circle(self.into / path):
                raise self.unsafe(str(path), "is a link that leads nowhere")
            if not (self.into / path).resolve().is_relative_to(root):
                raise self.unsafe(str(path), "is a link that leads out of the folder")

    def unsafe(self, name: str, trouble: str) -> FetchError:
        """Return the error for a member."""
        return FetchError(
            code="unsafe-archive",
            message=f"{self.archive.name} is not unpacked: its member {name!r} {trouble}",
            where=str(self.archive),
            hint="do not use this file; compare it with the one that the project published",
        )


def _is_circle(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _folded(path: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", str(path)).casefold()


def _unpack_zip(extraction: _Extraction) -> None:
    with zipfile.ZipFile(extraction.archive) as archive:
        members = archive.infolist()
        admitted = []
        for member in members:
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise extraction.unsafe(member.filename, "is neither a file nor a folder")
            if member.flag_bits & 0x1:
                raise extraction.unsafe(member.filename, "is encrypted")
            name = member.orig_filename  # zipfile cuts a name at its first NUL: what that hides is judged too
            path = extraction.admit(name, size=member.file_size, is_folder=name.endswith("/"))
            admitted.append((member, path, bool(mode & 0o111)))
        for member, path, executable in admitted:
            if member.filename.endswith("/"):
                (extraction.into / path).mkdir(parents=True, exist_ok=True)
                continue
            with archive.open(member) as source:
                extraction.write(path, source, executable=executable)


def _unpack_tar(extraction: _Extraction) -> None:
    with gzip.open(extraction.archive) as stream:
        bounded = cast("BinaryIO", _Bounded(stream, extraction))
        with tarfile.open(fileobj=bounded, mode="r:") as archive:
            for member in archive:
                _unpack_member(extraction, archive, member)


def _unpack_member(extraction: _Extraction, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    name = member.name.rstrip("/")
    if name in {".", ""} and member.isdir():
        return
    if member.isdir():
        path = extraction.admit(name, is_folder=True)
        (extraction.into / path).mkdir(parents=True, exist_ok=True)
    elif member.issym():
        path = extraction.admit(name)
        if PurePosixPath(member.linkname).is_absolute() or not member.linkname.isprintable():
            raise extraction.unsafe(name, "is a link that leads out of the folder")
        extraction.links.append((path, member.linkname))
    elif member.isreg() and not member.issparse():
        path = extraction.admit(name, size=member.size)
        source = archive.extractfile(member)
        if source is None:
            raise extraction.unsafe(name, "has no content")
        extraction.write(path, source, executable=bool(member.mode & 0o111))
    else:
        raise extraction.unsafe(name, "is a hard link, a device or another special file")


class _Bounded:
    """A decompressed stream for tarfile that never hands out a huge block: headers can ask for gigabytes."""

    def __init__(self, stream: gzip.GzipFile, extraction: _Extraction) -> None:
        self._stream = stream
        self._extraction = extraction
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        """Read a block of a bounded size."""
        limits = self._extraction.limits
        if size > limits.read_bytes:
            raise self._extraction.unsafe("(header)", f"asks for a block of {size / 2**20:.0f} MiB")
        return self._stream.read(size)


@contextlib.contextmanager
def _named(archive: Path) -> Iterator[None]:
    """Turn what the archive modules and the file system raise into errors with a name."""
    corrupt = (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        EOFError,
        NotImplementedError,
        gzip.BadGzipFile,
    )
    try:
        yield
    except corrupt as error:
        raise FetchError(
            code="archive-corrupt",
            message=f"{archive.name} cannot be unpacked: {str(error) or type(error).__name__}",
            where=str(archive),
            hint="remove the file and fetch again; if it comes back like this, it was published like this",
        ) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise FetchError(
            code="disk-full" if full else "not-writable",
            message=f"cannot unpack {archive.name}: {error.strerror or error}",
            hint="free some space, or use another workspace (--workspace DIR, SGLFORGE_HOME)",
        ) from error
