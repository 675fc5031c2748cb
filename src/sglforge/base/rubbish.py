"""What nobody needs any more: where it is, how large, and why it may go."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import remove


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubbish:
    """A file or folder to remove; ``size`` in bytes on the disk, ``why`` in words."""

    kind: str
    path: Path
    size: int
    why: str

    def to_json(self) -> dict[str, object]:
        """Return it for a document."""
        return {"kind": self.kind, "path": str(self.path), "bytes": self.size, "why": self.why}


def rubbish(kind: str, path: Path, why: str) -> Rubbish:
    """Return a path as something to remove, with the bytes that this frees."""
    return Rubbish(kind=kind, path=path, size=size_of(path), why=why)


def discard(found: Rubbish) -> None:
    """Remove a file or folder, whatever its mode; a folder is renamed first, so that no half of it counts."""
    if found.path.is_dir() and not found.path.is_symlink():
        doomed = found.path.with_name(f".{found.path.name}.{os.getpid()}.tmp")
        found.path.replace(doomed)
        remove(doomed)
    else:
        found.path.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Return the bytes that removing a path frees: a file that is linked from elsewhere too frees none."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    if not stat.S_ISDIR(status.st_mode):
        return status.st_blocks * 512 if status.st_nlink == 1 else 0
    total = status.st_blocks * 512
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                total += size_of(Path(entry.path))
    except OSError:
        return total
    return total


def age_s(path: Path, now: float) -> float:
    """Return how long ago a path or, of a folder, the newest file right in it was changed; 0 if it is gone."""
    try:
        newest = path.lstat().st_mtime
        if path.is_dir() and not path.is_symlink():
            with os.scandir(path) as entries:
                newest = max([newest, *(entry.stat(follow_symlinks=False).st_mtime for entry in entries)])
    except OSError:
        return 0.0
    return now - newest
