"""What files look like without reading them: size, time of the last change, inode."""

from __future__ import annotations

import hashlib
import io
import os
import re
from array import array
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sglforge.base.beside import Beside
from sglforge.base.ids import Sha256

BYTE_CODE = "__pycache__"
_ABSENT = (-1, -1, -1)
_FIRST_CELL = re.compile(r"^([^,\n]+).*", re.MULTILINE)
_SPLIT_FROM = 400
"""From so many files on, two threads look: the kernel does its part without Python's lock."""


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
        try:  # one row of numbers for all, as long as none is missing
            numbers = _numbers(folder, paths)
            missing: tuple[str, ...] = ()
        except (OSError, ValueError):
            numbers, missing = _one_by_one(folder, paths)
    finally:
        os.close(folder)
    return Stamps(Sha256(hashlib.sha256(numbers).hexdigest()), missing)


def _numbers(folder: int, paths: Sequence[str]) -> array[int]:
    """Return size, time and inode of files, one after the other; raise what `os.stat` does for one that is missing."""
    if len(paths) >= _SPLIT_FROM:
        half = len(paths) // 2
        first = Beside(partial(_row, folder, paths[:half]))
        try:
            second = _row(folder, paths[half:])
        finally:
            row = first.result()
        return row + second
    return _row(folder, paths)


def _row(folder: int, paths: Sequence[str]) -> array[int]:
    found = (os.stat(path, dir_fd=folder) for path in paths)
    return array("q", [n for one in found for n in (one.st_size, one.st_mtime_ns, one.st_ino)])


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
        paths = _FIRST_CELL.findall(text)
    if BYTE_CODE in text:
        paths = [path for path in paths if BYTE_CODE not in path]
    return [os.path.normpath(path) if "./" in path else path for path in paths] if "./" in text else paths
