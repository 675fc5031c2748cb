"""Read a wheel and check that it is what it says: names, tags, and every file against its RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from sglforge.errors import CheckError, Finding, Severity
from sglforge.sources.unpack import LIMITS, unsafe_name

if TYPE_CHECKING:
    from packaging.tags import Tag
    from packaging.utils import NormalizedName
    from packaging.version import Version

CHUNK_BYTES = 1024 * 1024
DETAIL_LINES = 20
Through: TypeAlias = Callable[[str, Iterator[bytes]], Iterator[bytes]]
_READ_WHOLE = frozenset({"METADATA", "WHEEL", "RECORD"})
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelInfo:
    """What a wheel says about itself, in its file name and inside."""

    name: NormalizedName
    version: Version
    build: str
    tags: frozenset[Tag]
    root_is_purelib: bool
    dist_info: str


def read_wheel(path: Path) -> WheelInfo:
    """Return what a wheel says about itself, without checking that it is true.

    Raises CheckError ``wheel-unreadable``, ``wheel-metadata``, and ``wheel-members`` for one that grows without bound.
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        name, version, build, tags = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            if growth := [*_growth_faults(path, archive.infolist())]:
                raise _refusal("wheel-members", path, growth[0])
            dist_info = _dist_info(archive.namelist())
            wheel = _headers(archive, f"{dist_info}/WHEEL")
    except InvalidWheelFilename as error:
        raise _refusal("wheel-metadata", path, str(error)) from error
    except UNREADABLE as error:
        raise _refusal("wheel-unreadable", path, _words(error)) from error
    except (KeyError, ValueError) as error:
        raise _refusal("wheel-metadata", path, str(error.args[0])) from error
    return WheelInfo(
        name=name,
        version=version,
        build="".join(str(part) for part in build),
        tags=tags,
        root_is_purelib=str(wheel.get("Root-Is-Purelib")).strip().lower() == "true",
        dist_info=dist_info,
    )


def check_wheel(
    path: Path,
    *,
    python_minor: str,
    project: str | None = None,
    version: str | None = None,
    import_name: str | None = None,
    through: Through = lambda _, chunks: chunks,
) -> tuple[Finding, ...]:
    """Return everything that is wrong with a wheel.

    Args:
        path: The wheel.
        python_minor: The Python that it is for, ``3.11``.
        project: The project that it must be of, None for any.
        version: The version that it must have, its local part aside, None for any.
        import_name: The module that it must provide, None for any.
        through: Is handed the name and the chunks of every file that is hashed, and hands the chunks on.

    Findings are ``wheel-unreadable``, ``wheel-metadata``, ``wheel-members``, ``wheel-record``, ``wheel-tags``
    and ``wheel-import``. What its machine code needs is looked at by :mod:`sglforge.artifacts.examine`.
    """
    try:
        info = read_wheel(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            faults = {
                "wheel-metadata": [*_metadata_faults(archive, info, project, version)],
                "wheel-members": [*_member_faults(members)],
                "wheel-record": [*_record_faults(archive, members, info, through)],
                "wheel-tags": [*_tag_faults(archive, info, python_minor)],
                "wheel-import": [*_import_faults(archive.namelist(), info, import_name)],
            }
    except CheckError as error:
        return error.as_findings()
    except UNREADABLE as error:
        return _refusal("wheel-unreadable", path, _words(error)).as_findings()
    return tuple(_finding(code, path, found) for code, found in faults.items() if found)


def record_hash(chunks: Iterable[bytes], algorithm: str = "sha256") -> tuple[str, int]:
    """Return the hash of a file's chunks as RECORD writes it, and its length in bytes."""
    state, size = hashlib.new(algorithm), 0
    for chunk in chunks:
        state.update(chunk)
        size += len(chunk)
    return f"{algorithm}={base64.urlsafe_b64encode(state.digest()).decode().rstrip('=')}", size


def _metadata_faults(
    archive: zipfile.ZipFile, info: WheelInfo, project: str | None, version: str | None
) -> Iterator[str]:
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    try:
        metadata = _headers(archive, f"{info.dist_info}/METADATA")
        wheel = _headers(archive, f"{info.dist_info}/WHEEL")
    except KeyError as error:
        yield str(error.args[0])
        return
    if project and info.name != canonicalize_name(project):
        yield f"it is of project {info.name}, wanted is {canonicalize_name(project)}"
    if version and info.version.public != Version(version).public:
        yield f"it is version {info.version}, wanted is {version}"
    if not str(wheel.get("Wheel-Version")).startswith("1."):
        yield f"WHEEL has Wheel-Version {wheel.get('Wheel-Version')}, 1.x is understood"
    inside = (str(metadata.get("Name")), str(metadata.get("Version")))
    folder = info.dist_info.removesuffix(".dist-info").rpartition("-")[::2]
    for where, (name, stated) in (("METADATA", inside), ("its dist-info folder", folder)):
        if canonicalize_name(name) != info.name or not _same_version(stated, info.version):
            yield f"the file name says {info.name} {info.version}, {where} says {name} {stated}"


def _member_faults(members: Iterable[zipfile.ZipInfo]) -> Iterator[str]:
    counts = Counter(PurePosixPath(member.orig_filename) for member in members)
    yield from (f"{name} is there {count} times" for name, count in counts.items() if count > 1)
    for member in members:
        if trouble := unsafe_name(member.orig_filename):
            yield f"{member.orig_filename!r} {trouble}"
        if stat.S_IFMT(member.external_attr >> 16) not in {0, stat.S_IFREG, stat.S_IFDIR}:
            yield f"{member.orig_filename!r} is neither a file nor a folder"


def _growth_faults(path: Path, members: Sequence[zipfile.ZipInfo]) -> Iterator[str]:
    """Say whether a wheel is a bomb: too many files, too much for its size, or a table of contents without end."""
    total, allowed = sum(member.file_size for member in members), path.stat().st_size * LIMITS.ratio
    if len(members) > LIMITS.files:
        yield f"it has {len(members)} files, {LIMITS.files} are read"
    if total > min(LIMITS.total_bytes, max(LIMITS.ratio_from_bytes, allowed)):
        yield f"it grows from {path.stat().st_size} to {total} bytes"
    for member in members:
        parts = member.filename.split("/")
        if parts[0].endswith(".dist-info") and parts[-1] in _READ_WHOLE and member.file_size > LIMITS.read_bytes:
            yield f"{member.orig_filename!r} has {member.file_size} bytes"


def _record_faults(
    archive: zipfile.ZipFile, members: Iterable[zipfile.ZipInfo], info: WheelInfo, through: Through
) -> Iterator[str]:
    own = f"{info.dist_info}/RECORD"
    unlisted = {own, f"{own}.jws", f"{own}.p7s"}
    try:
        text = archive.read(own).decode()
        recorded = {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(text)) if row}
    except KeyError:
        yield "there is no RECORD"
        return
    except (IndexError, UnicodeDecodeError, csv.Error):
        yield "RECORD is not a table of names, hashes and sizes"
        return
    files = {member.filename: member for member in members if not member.filename.endswith("/")}
    yield from (f"{name} is missing" for name in sorted(recorded.keys() - files.keys()))
    yield from (f"{name} is not recorded" for name in sorted(files.keys() - recorded.keys() - unlisted))
    for name in sorted(recorded.keys() & files.keys() - unlisted):
        stated, size = recorded[name]
        algorithm = stated.partition("=")[0]
        if algorithm not in {"sha256", "sha384", "sha512"}:
            yield f"{name} is recorded without a strong hash"
            continue
        with archive.open(files[name]) as stream:
            found = record_hash(through(name, iter(partial(stream.read, CHUNK_BYTES), b"")), algorithm)
        if (stated, size) != (found[0], str(found[1])):
            yield f"{name} is not what was recorded"


def _tag_faults(archive: zipfile.ZipFile, info: WheelInfo, python_minor: str) -> Iterator[str]:
    from packaging.tags import parse_tag

    from sglforge.sources.tags import supported_tags

    stated = _headers(archive, f"{info.dist_info}/WHEEL").get_all("Tag", [])
    try:
        inside = frozenset(tag for line in stated for tag in parse_tag(str(line).strip()))
    except ValueError:
        yield "WHEEL has a Tag line that is no tag"
        return
    if inside != info.tags:
        yield f"the file name says {_tag_words(info.tags)}, WHEEL says {_tag_words(inside)}"
    if info.tags.isdisjoint(supported_tags(python_minor)):
        yield f"{_tag_words(info.tags)} does not fit Python {python_minor} on this machine"


def _import_faults(names: Iterable[str], info: WheelInfo, import_name: str | None) -> Iterator[str]:
    if not import_name:
        return
    roots = (
        "",
        *(f"{info.dist_info.removesuffix('.dist-info')}.data/{kind}/" for kind in ("purelib", "platlib")),
    )
    prefixes = tuple(
        f"{root}{import_name.replace('.', '/')}{end}" for root in roots for end in ("/", ".py", ".cpython-", ".abi3.so")
    )
    if not any(name.startswith(prefixes) for name in names):
        yield f"it does not provide the module {import_name}"


def _headers(archive: zipfile.ZipFile, name: str) -> Message:
    try:
        return BytesHeaderParser().parsebytes(archive.read(name))
    except KeyError:
        raise KeyError(f"{name} is missing") from None


def _dist_info(names: Iterable[str]) -> str:
    found = {name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} dist-info folders, one is expected")
    return found.pop()


def _same_version(text: str, version: Version) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text.replace("_", "-")) == version
    except InvalidVersion:
        return False


def _tag_words(tags: Iterable[Tag]) -> str:
    return ", ".join(sorted(map(str, tags))) or "no tag"


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


HINTS: Mapping[str, str] = {
    "wheel-unreadable": "build or fetch it again",
    "wheel-tags": "use the Python that it was built for, or build it for this one",
}


def _finding(code: str, path: Path, faults: list[str]) -> Finding:
    more = [f"and {len(faults) - DETAIL_LINES} more"] if len(faults) > DETAIL_LINES else []
    return Finding(
        code=code,
        severity=Severity.ERROR,
        subject=path.name,
        message=faults[0] if len(faults) == 1 else f"{faults[0]} (and {len(faults) - 1} more)",
        hint=HINTS.get(code, "the build that made it is at fault: do not install it"),
        where=str(path),
        detail=(*faults[:DETAIL_LINES], *more),
    )


def _refusal(code: str, path: Path, message: str) -> CheckError:
    finding = _finding(code, path, [message])
    return CheckError(code=code, message=message, where=str(path), hint=finding.hint, findings=(finding,))
