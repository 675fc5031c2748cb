"""Pack a tree into a wheel: the same tree gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import IO

from sglforge.artifacts.wheel import CHUNK_BYTES, record_hash
from sglforge.errors import BuildError

SUMMARY_NAME = "sglforge.json"
COMPRESSION_LEVEL = 2
"""Half the time of zlib's default for 9 % more bytes on the sglang wheel, which is unpacked once, here."""
ZIP64_FROM_BYTES = 1 << 30

_SIGNATURES = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s"})
_VERSION_LINE = re.compile(rb"^(Version:[ \t]*)([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


def extend_version(version: str, label: str) -> str:
    """Return a version with a label added to its local part, normalised (PEP 440): ``0.5.23+cpu.t0123``."""
    from packaging.version import Version

    parsed = Version(version)
    local = ".".join(part for part in (parsed.local, label) if part)
    return str(Version(f"{parsed.public}+{local}")) if local else str(parsed)


def pack(
    tree: Path,
    out_dir: Path,
    *,
    local_version: str,
    exclude: Mapping[str, str],
    summary: Mapping[str, object],
) -> Path:
    """Pack an unpacked wheel under a longer version.

    Only the Version line of METADATA changes; RECORD is computed anew, signatures over the old one are left
    out, and ``sglforge.json`` says inside the wheel what it is. Order, times and modes are fixed, so that two
    packs of one tree are equal byte for byte (with one version of zlib). Executable bits stay.

    Args:
        tree: The unpacked wheel; it is not changed.
        out_dir: The folder for the wheel.
        local_version: The label that the version is extended by, empty for none.
        exclude: Globs of files to leave out (``*`` crosses folders), each with its reason.
        summary: What ``sglforge.json`` says.

    Returns:
        The wheel.

    Raises BuildError ``not-a-wheel-tree`` and ``exclude-without-effect``.
    """
    frame = _Frame.of(tree, local_version)
    files = dict(_files(tree, frame))
    left_out = _left_out(files, frame, exclude)
    out_dir.mkdir(parents=True, exist_ok=True)
    wheel = out_dir / frame.file_name
    draft = out_dir / f".{frame.file_name}.tmp"
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
            rows = [
                _write(archive, name, source)
                for name, source in files.items()
                if name not in left_out and name != frame.metadata
            ]
            rows.append(_write(archive, frame.metadata, frame.new_metadata(files[frame.metadata])))
            text = json.dumps(summary, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            rows.append(_write(archive, f"{frame.new}.dist-info/{SUMMARY_NAME}", text.encode()))
            _write(archive, f"{frame.new}.dist-info/RECORD", _record(rows, frame))
        draft.replace(wheel)
    finally:
        draft.unlink(missing_ok=True)
    return wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The names that change: ``old`` and ``new`` are ``<project>-<version>``."""

    old: str
    new: str
    version: str
    file_name: str

    @property
    def metadata(self) -> str:
        return f"{self.new}.dist-info/METADATA"

    def rename(self, name: str) -> str:
        """Return where a file of the tree stands in the wheel."""
        top, _, rest = name.partition("/")
        if top in {f"{self.old}.dist-info", f"{self.old}.data"}:
            return f"{self.new}{top.removeprefix(self.old)}/{rest}"
        return name

    def new_metadata(self, source: Path) -> bytes:
        """Return METADATA with nothing changed but its Version line."""
        head, separator, body = _head(source.read_bytes())
        return _VERSION_LINE.sub(rb"\g<1>" + self.version.encode(), head, count=1) + separator + body

    @staticmethod
    def of(tree: Path, label: str) -> _Frame:
        """Read the names from a tree."""
        folders = [path for path in tree.iterdir() if path.name.endswith(".dist-info")]
        if len(folders) != 1:
            raise _no_wheel(tree, f"it has {len(folders)} dist-info folders, one is expected")
        old = folders[0].name.removesuffix(".dist-info")
        try:
            version = _VERSION_LINE.search(_head((folders[0] / "METADATA").read_bytes())[0])
            wheel = (folders[0] / "WHEEL").read_text(encoding="utf-8")
            if not version:
                raise _no_wheel(tree, "its METADATA has no Version line")
            new_version = extend_version(version[2].decode(), label)
        except (FileNotFoundError, ValueError) as error:  # no text, no version
            raise _no_wheel(tree, str(error)) from error
        new = f"{old.rpartition('-')[0]}-{new_version}"
        build = "".join(f"-{value}" for value in _fields(wheel, "Build"))
        file_name = f"{new}{build}-{_compressed_tags(tree, _fields(wheel, 'Tag'))}.whl"
        return _Frame(old=old, new=new, version=new_version, file_name=file_name)


def _head(metadata: bytes) -> tuple[bytes, bytes, bytes]:
    """Split METADATA at the empty line that ends its headers."""
    end = re.search(rb"\r?\n\r?\n", metadata)
    if not end:
        return metadata, b"", b""
    return metadata[: end.start()], end[0], metadata[end.end() :]


def _fields(wheel: str, name: str) -> list[str]:
    return [
        value.strip()
        for key, colon, value in (line.partition(":") for line in wheel.splitlines())
        if colon and key.lower() == name.lower()
    ]


def _compressed_tags(tree: Path, tags: list[str]) -> str:
    """Return the one tag set that stands for all tags of WHEEL: ``py2.py3-none-any`` for two lines."""
    parts = [tag.split("-") for tag in tags]
    if not parts or any(len(part) != 3 for part in parts):
        raise _no_wheel(tree, "its WHEEL file has no proper Tag line")
    columns = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
    if set(map(tuple, parts)) != set(product(*columns)):
        raise _no_wheel(tree, f"its tags fit no file name: {', '.join(tags)}")
    return "-".join(".".join(column) for column in columns)


def _files(tree: Path, frame: _Frame) -> Iterator[tuple[str, Path]]:
    """Yield every file with its name in the wheel, the dist-info folder last."""
    found = []
    for current, folders, files in os.walk(tree):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*files, *folders):
            path = Path(current, name)
            if path.is_symlink() or (name in files and not path.is_file()):
                raise _no_wheel(tree, f"{path.relative_to(tree)} is a link or a special file")
            if name in files:
                found.append((frame.rename(path.relative_to(tree).as_posix()), path))
    dist_info = f"{frame.new}.dist-info/"
    for wheel_name, path in sorted(found, key=lambda entry: (entry[0].startswith(dist_info), entry[0])):
        if wheel_name.removeprefix(dist_info) not in {*_SIGNATURES, SUMMARY_NAME}:
            yield wheel_name, path


def _left_out(files: Mapping[str, Path], frame: _Frame, exclude: Mapping[str, str]) -> frozenset[str]:
    """Return the names that the globs leave out; each glob must be about something."""
    names = [name for name in files if not name.startswith(f"{frame.new}.dist-info/")]
    left_out: set[str] = set()
    for glob in exclude:
        matching = [name for name in names if fnmatchcase(name, glob)]
        if not matching:
            raise BuildError(
                code="exclude-without-effect",
                message=f"the recipe excludes {glob!r}, and the wheel has no such file",
                hint="correct the recipe's `exclude`, or take it out: upstream may have removed the file",
            )
        left_out.update(matching)
    return frozenset(left_out)


def _write(archive: zipfile.ZipFile, name: str, source: Path | bytes) -> tuple[str, str, int]:
    """Add one file with fixed time and mode; return its row of RECORD."""
    executable = isinstance(source, Path) and bool(source.stat().st_mode & 0o100)
    large = isinstance(source, Path) and source.stat().st_size > ZIP64_FROM_BYTES
    with archive.open(name, "w", force_zip64=large) as target:
        digest, size = record_hash(_copied(source, target))
    archive.getinfo(name).external_attr = (0o100755 if executable else 0o100644) << 16
    return name, digest, size


def _copied(source: Path | bytes, target: IO[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a file as they are copied."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            target.write(chunk)
            yield chunk


def _record(rows: list[tuple[str, str, int]], frame: _Frame) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(sorted(rows))
    writer.writerow((f"{frame.new}.dist-info/RECORD", "", ""))
    return text.getvalue().encode()


def _no_wheel(tree: Path, why: str) -> BuildError:
    return BuildError(
        code="not-a-wheel-tree",
        message=f"{tree.name} cannot be packed: {why}",
        hint="the wheel that was taken apart is malformed, or a patch broke it",
    )
