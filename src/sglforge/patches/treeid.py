"""Git's tree id of a folder, without git: sha1 over names, modes and contents.

It is the id that ``git write-tree`` prints after ``git add --force --all`` in an empty index with no filter,
attribute, ignore rule or line-ending conversion at work; a test holds both against each other. Git itself
writes a loose object for every file: 2 s for the 5,800 files of SGLang 0.5.23, where this takes 0.2 s.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from sglforge.base.ids import TreeId
from sglforge.errors import PatchError

_IGNORED = b".git"


def tree_id(folder: Path) -> TreeId:
    """Return the git tree id of everything under a folder, but for ``.git``; empty folders do not count.

    Raises PatchError ``tree-unreadable`` when an entry is neither file, folder nor link, or cannot be read.
    """
    try:
        return TreeId(_tree(os.fsencode(folder)) or _object(b"tree", b"").hex())
    except OSError as error:
        raise _unreadable(error.filename or folder, error.strerror or "cannot be read") from error


def _tree(folder: bytes) -> str:
    """Return the id of a folder, or an empty text when nothing in it counts."""
    entries = _entries(folder)
    return _object(b"tree", b"".join(line for _, line in sorted(entries))).hex() if entries else ""


def _entries(folder: bytes) -> list[tuple[bytes, bytes]]:
    """Return the lines of a git tree object with their sort keys (a folder's ends with a slash)."""
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            mode = entry.stat(follow_symlinks=False).st_mode
            if entry.name == _IGNORED:
                continue
            if stat.S_ISDIR(mode):
                if inner := _tree(entry.path):
                    entries.append((entry.name + b"/", b"40000 %s\0%s" % (entry.name, bytes.fromhex(inner))))
                continue
            if stat.S_ISREG(mode):
                kind = b"100755" if mode & stat.S_IXUSR else b"100644"
                content = _object(b"blob", _read(entry.path))
            elif stat.S_ISLNK(mode):
                kind, content = (
                    b"120000",
                    _object(b"blob", os.fsencode(Path(os.fsdecode(entry.path)).readlink())),
                )
            else:
                raise _unreadable(os.fsdecode(entry.path), "is neither a file, a folder nor a link")
            entries.append((entry.name, b"%s %s\0%s" % (kind, entry.name, content)))
    return entries


def _read(path: bytes) -> bytes:
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - thousands of files: no Path for each
        return stream.read()


def _object(kind: bytes, content: bytes) -> bytes:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(content)), usedforsecurity=False)
    digest.update(content)
    return digest.digest()


def _unreadable(path: object, why: str) -> PatchError:
    return PatchError(
        code="tree-unreadable",
        message=f"{path}: {why}",
        hint="a source tree holds plain files, folders and links",
    )
