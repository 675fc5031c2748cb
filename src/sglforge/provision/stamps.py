"""What files look like without reading them: size, time of the last change, inode."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sglforge.base.ids import Sha256

BYTE_CODE = "__pycache__"
_ABSENT = (-1, -1, -1)


class Stamps(NamedTuple):
    """One digest over the stamps of many files, in their order, and the files that are not there."""

    digest: Sha256
    missing: tuple[str, ...]


def stamp(site: Path, paths: Iterable[str]) -> Stamps:
    """Look at files, given by their paths from site-packages."""
    numbers = array("q")
    missing = []
    try:
        folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        missing = list(paths)
        return Stamps(Sha256(hashlib.sha256().hexdigest()), tuple(missing))
    try:
        for path in paths:
            try:
                status = os.stat(path, dir_fd=folder)
            except (OSError, ValueError):
                numbers.extend(_ABSENT)
                missing.append(path)
            else:
                numbers.extend((status.st_size, status.st_mtime_ns, status.st_ino))
    finally:
        os.close(folder)
    return Stamps(Sha256(hashlib.sha256(numbers).hexdigest()), tuple(missing))


def recorded_paths(record: Path) -> list[str]:
    """Return the normalised paths of a RECORD, byte code left out; a missing RECORD has none.

    This is the fast reading of a run that has nothing to do: see `distributions.read_record` for the whole one.
    """
    try:
        text = record.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if '"' in text:
        paths = [row[0] for row in csv.reader(io.StringIO(text)) if row]
    else:
        paths = [line.partition(",")[0] for line in text.split("\n")]
    return [os.path.normpath(path) if "./" in path else path for path in paths if path and BYTE_CODE not in path]
