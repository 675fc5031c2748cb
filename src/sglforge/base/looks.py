"""What files look like without reading them: one digest, which any change of any of them changes.

Size, mode, times of the last change, inode and device are compared. The time of change of the inode (ctime) is among
them, which nobody can set: an edit that keeps the size and puts the old modification time back is seen all the same.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sglforge.base.ids import Sha256

LIMIT_FILES = 50_000
BYTE_CODE = "__pycache__"


class Look(NamedTuple):
    """A digest over the looks of files, and when the last of them, or of their folders, was changed (ns)."""

    digest: Sha256
    newest_ns: int


def look(places: Iterable[Path]) -> Look | None:
    """Look at files, and at folders with everything in them but byte code; what is absent is known to be.

    A link stands for the file that it leads to. None where that would not be the whole truth: links to folders, more
    than 50,000 files, what cannot be looked at.
    """
    hashed, newest_ns, left = hashlib.sha256(), 0, LIMIT_FILES
    try:
        for name, status in _all(places):
            hashed.update(os.fsencode(name))
            if status is None:
                hashed.update(b"\0absent\0")
                continue
            newest_ns = max(newest_ns, status.st_mtime_ns, status.st_ctime_ns)
            hashed.update(_words(status))
            left -= 1
            if left < 0:
                return None
    except (OSError, RecursionError):
        return None
    return Look(Sha256(hashed.hexdigest()), newest_ns)


def _words(status: os.stat_result) -> bytes:
    if stat.S_ISDIR(status.st_mode):  # what is in it follows; its times only say how young that is
        return b"\0folder %d %d\0" % (status.st_ino, status.st_dev)
    numbers = (status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
    return b"\0%d %d %d %d %d %d\0" % numbers


def _all(places: Iterable[Path]) -> Iterator[tuple[str, os.stat_result | None]]:
    for place in places:
        try:
            status = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            yield str(place), None
            continue
        yield str(place), status
        if stat.S_ISDIR(status.st_mode):
            yield from _below(str(place))


def _below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name == BYTE_CODE:
            continue
        if entry.is_symlink():
            yield str(Path(entry.path).readlink()), entry.stat(follow_symlinks=False)
            if entry.is_dir():
                raise OSError(errno.ELOOP, "a link to a folder", entry.path)
        status = entry.stat()
        yield entry.path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _below(entry.path)
