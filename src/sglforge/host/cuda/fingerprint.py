"""What decides in a toolkit of the machine: its programs and headers, hashed once and then looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from sglforge.base.files import digest, sha256_file, write_text
from sglforge.base.ids import Sha256
from sglforge.base.workspace import Workspace

FORMAT = 1
FOLDERS = ("bin", "include", "nvvm/bin", "nvvm/libdevice")
"""What decides about objects; of libraries only the static ones go into what is linked."""


def fingerprint(home: Path, workspace: Workspace) -> Sha256:
    """Return the digest of a toolkit's programs, headers and static libraries.

    Files are read again only where size, times or inode of one of them is another than the last time.

    Raises OSError where a file cannot be read.
    """
    stamps = [(name, *_stamp(path)) for name, path in _files(home)]
    seen = digest([FORMAT, str(home), stamps])
    note = workspace.toolkits / "found" / f"{digest(str(home))}.json"
    try:
        known = json.loads(note.read_bytes())
        if known["seen"] == seen:
            return Sha256(str(known["fingerprint"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = digest([FORMAT, [(name, sha256_file(path)) for name, path in _files(home)]])
    if [(name, *_stamp(path)) for name, path in _files(home)] == stamps:  # else it was changed while it was read
        _remember(note, {"home": str(home), "seen": seen, "fingerprint": found})
    return found


def _files(home: Path) -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for parent, folders, names in os.walk(home / folder, followlinks=True):
            folders.sort()
            for name in sorted(names):
                path = Path(parent, name)
                if path.is_file():
                    yield str(path.relative_to(home)), path
    for path in sorted((home / "lib64").glob("libcuda*.a")):
        yield str(path.relative_to(home)), path


def _stamp(path: Path) -> tuple[int, int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _remember(note: Path, document: dict[str, str]) -> None:
    """Write down what was found; a workspace that cannot be written to costs time, nothing else."""
    try:
        write_text(note, json.dumps(document) + "\n")
    except OSError:
        return
