"""Contents of files and names in folders, each looked at once in a build."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sglforge.base.files import sha256_file

ABSENT = ""
"""Stands for the hash of what is no file."""


class Contents:
    """Remembers what it has looked at: nothing of it changes while modules are compiled."""

    def __init__(self) -> None:
        self._files: dict[Path, str] = {}
        self._names: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """Return the sha256 of a file, :data:`ABSENT` where there is none."""
        if path not in self._files:
            try:
                self._files[path] = sha256_file(path)
            except OSError:
                self._files[path] = ABSENT
        return self._files[path]

    def names(self, folder: Path) -> str:
        """Return a digest of the names of everything below a folder: a file that comes or goes changes it."""
        if folder not in self._names:
            found = hashlib.sha256()
            for current, folders, files in os.walk(folder):
                folders.sort()
                below = os.path.relpath(current, folder)
                found.update("\0".join((below, *folders, "", *sorted(files), "\n")).encode(errors="surrogateescape"))
            self._names[folder] = found.hexdigest()
        return self._names[folder]
