"""Git's tree id of a folder, without git: sha1 over names, modes and contents.

It is the id that ``git write-tree`` prints after ``git add --force --all`` in an empty index with no filter,
attribute, ignore rule or line-ending conversion at work; a test holds both against each other. Git itself
writes a loose object for every file: 2 s for the 5,800 files of SGLang 0.5.23, where this takes 0.2 s.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sglforge.base.ids import TreeId
from sglforge.errors import PatchError

_IGNORED = ".git"
_FOLDER, _FILE, _PROGRAM, _LINK = "40000", "100644", "100755", "120000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """What git keeps of a file or link: ``mode`` as git writes it, ``id`` of its content (40 hexadecimal digits)."""

    mode: str
    id: str


Blobs: TypeAlias = Mapping[str, Blob]
"""Every file of a tree, by its name relative to the root (``/`` between the parts)."""


def tree_id(folder: Path) -> TreeId:
    """Return the git tree id of everything under a folder, but for ``.git``; empty folders do not count.

    Raises PatchError ``tree-unreadable`` when an entry is neither file, folder nor link, or cannot be read.
    """
    return tree_id_of(blobs(folder))


def tree_id_of(files: Blobs, *, changed: Mapping[str, Blob | None] | None = None) -> TreeId:
    """Return the git tree id of files that are known by their blobs: a matter of milliseconds.

    Args:
        files: Every file of the tree.
        changed: Files that take the place of these, or come to them; None for one that goes.
    """
    root: dict[str, object] = {}
    for name, entry in {**files, **(changed or {})}.items():
        if entry is None:
            continue
        folder = root
        *parents, last = name.split("/")
        for parent in parents:
            inner = folder.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise _unreadable(name, "lies below a file")
            folder = inner
        folder[last] = entry
    return TreeId(_tree(root))


def blobs(folder: Path) -> Blobs:
    """Return the blob of everything under a folder, but for ``.git``.

    Raises PatchError ``tree-unreadable`` when an entry is neither file, folder nor link, or cannot be read.
    """
    try:
        return dict(_walk(os.fspath(folder), ""))
    except OSError as error:
        raise _unreadable(error.filename or folder, error.strerror or "cannot be read") from error


def blob(content: bytes, *, executable: bool = False) -> Blob:
    """Return the blob of a file's content."""
    return Blob(mode=_PROGRAM if executable else _FILE, id=_object(b"blob", content))


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, Blob]]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name == _IGNORED:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            name = prefix + entry.name
            if stat.S_ISDIR(mode):
                yield from _walk(entry.path, f"{name}/")
            elif stat.S_ISREG(mode):
                yield name, blob(_read(entry.path), executable=bool(mode & stat.S_IXUSR))
            elif stat.S_ISLNK(mode):
                target = os.fsencode(os.readlink(entry.path))  # noqa: PTH115 - thousands of entries: no Path for each
                yield name, Blob(mode=_LINK, id=_object(b"blob", target))
            else:
                raise _unreadable(entry.path, "is neither a file, a folder nor a link")


def _tree(folder: Mapping[str, object]) -> str:
    """Return the id of a tree object; git sorts its lines by name, that of a folder with a slash behind."""
    lines = []
    for name, entry in folder.items():
        raw = os.fsencode(name)
        if isinstance(entry, Blob):
            lines.append((raw, _line(entry.mode, raw, entry.id)))
        elif isinstance(entry, dict):
            lines.append((raw + b"/", _line(_FOLDER, raw, _tree(entry))))
    return _object(b"tree", b"".join(line for _, line in sorted(lines)))


def _line(mode: str, name: bytes, content: str) -> bytes:
    return b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(content))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - thousands of files: no Path for each
        return stream.read()


def _object(kind: bytes, content: bytes) -> str:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(content)), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def _unreadable(path: object, why: str) -> PatchError:
    return PatchError(
        code="tree-unreadable",
        message=f"{path}: {why}",
        hint="a source tree holds plain files, folders and links",
    )
