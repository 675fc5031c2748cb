"""What files look like without reading them: size, time of the last change, inode."""

from __future__ import annotations

import hashlib
import io
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sglforge.base.ids import Sha256

BYTE_CODE = "__pycache__"
_ABSENT = (-1, -1, -1)


class Stamps(NamedTuple):
    """One digest over the stamps of many files, in their order, and the files that are not there."""

    digest: Sha256
    missing: tuple[str, ...]


def stamp(site: Path, paths: Sequence[str]) -> Stamps:
    """Look at files, given by their paths from site-packages."""
    try:
        folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return Stamps(Sha256(hashlib.sha256().hexdigest()), tuple(paths))
    try:
        numbers, missing = row(folder, paths), tuple[str, ...]()
        if numbers is None:
            numbers, missing = _one_by_one(folder, paths)
    finally:
        os.close(folder)
    return Stamps(Sha256(hashlib.sha256(numbers).hexdigest()), missing)


def row(folder: int, paths: Sequence[str]) -> array[int] | None:
    """Return size, time and inode of files, one after the other; None where one is missing.

    ``folder`` is an open folder that the paths are relative to. One thread looks: two would wait for Python's lock
    after every file, and take longer together.
    """
    try:
        found = (os.stat(path, dir_fd=folder) for path in paths)
        return array("q", [n for one in found for n in (one.st_size, one.st_mtime_ns, one.st_ino)])
    except (OSError, ValueError):
        return None


def _one_by_one(folder: int, paths: Sequence[str]) -> tuple[array[int], tuple[str, ...]]:
    numbers, missing = array("q"), []
    for path in paths:
        try:
            status = os.stat(path, dir_fd=folder)
        except (OSError, ValueError):
            numbers.extend(_ABSENT)
            missing.append(path)
        else:
            numbers.extend((status.st_size, status.st_mtime_ns, status.st_ino))
    return numbers, tuple(missing)


def recorded_paths(record: Path) -> list[str]:
    """Return the normalised paths of a RECORD, byte code left out; a missing RECORD has none.

    This is the fast reading of a run that has nothing to do: see `distributions.read_record` for the whole one.
    """
    try:
        text = record.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if '"' in text:
        import csv

        paths = [row[0] for row in csv.reader(io.StringIO(text)) if row and row[0]]
    else:
        paths = [path for line in text.split("\n") if (path := line.partition(",")[0])]
    if BYTE_CODE in text:
        paths = [path for path in paths if BYTE_CODE not in path]
    return [os.path.normpath(path) if "./" in path else path for path in paths] if "./" in text else paths
