"""Files that are published whole or not at all, and hashes of files."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sglforge.base.ids import Sha256


def sha256_file(path: Path) -> Sha256:
    """Return the sha256 of a file's bytes.

    Raises OSError, also for what is no regular file.
    """
    with open_plain(path) as stream:
        return Sha256(hashlib.file_digest(stream, "sha256").hexdigest())


def open_plain(path: Path) -> io.BufferedReader:
    """Open a regular file to read, and nothing else: a pipe would never answer.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces: the same value gives the same text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> Sha256:
    """Return the sha256 of a value's canonical JSON."""
    return Sha256(hashlib.sha256(canonical_json(value).encode()).hexdigest())


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file under a temporary name beside it, then rename it into place."""
    write_bytes(path, text.encode(), mode=mode)


def write_bytes(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file under a temporary name beside it, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_beside(path) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, whole or not at all; bytes of file names that are no UTF-8 as JSON's escapes."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(errors="backslashreplace"))


def listed(folder: Path) -> list[Path]:
    """Return what is in a folder, by name; nothing where there is no such folder."""
    try:
        return sorted(folder.iterdir(), key=lambda path: path.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk before anything else happens.

    A file system that cannot do this for folders is left to its own ways.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.EROFS, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def publish_directory(final: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``final`` when the block ends well.

    If ``final`` appeared meanwhile (another run was faster), the new folder is dropped: both were made from
    the same key. A block that raises leaves nothing behind.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_beside(final) as draft:
        draft.mkdir()
        yield draft
        try:
            draft.rename(final)
        except OSError:
            if not final.is_dir():
                raise


def remove(path: Path) -> None:
    """Remove a file, link or folder; a missing one is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_link(link: Path, target: Path) -> None:
    """Point a symbolic link at a target in one step."""
    with _temporary_beside(link) as draft:
        draft.symlink_to(target)
        draft.replace(link)


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    draft = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        yield draft
    finally:
        if draft.exists() or draft.is_symlink():
            remove(draft)
