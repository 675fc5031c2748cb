"""Upstream trees that are only read: unpacked once, kept with the blob of every file, checked before each use."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sglforge.base.files import publish_directory, remove, write_text
from sglforge.base.ids import Sha256
from sglforge.base.treeid import Blob, Blobs, blobs
from sglforge.base.workspace import Workspace
from sglforge.sources.model import SourceArchive
from sglforge.sources.unpack import unpack

MANIFEST = "manifest.json"
FORMAT = 1
_TREE = "tree"

Seen: TypeAlias = tuple[int, int, int, int]
"""What tells whether a file is still the one that was unpacked: mode, size in bytes, time of change in ns, inode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTree:
    """An unpacked archive: its root, and the blob of every file in it."""

    root: Path
    blobs: Blobs


def kept_tree(sha256: Sha256, workspace: Workspace) -> UpstreamTree | None:
    """Return the tree of an archive that was unpacked before and is as it was, else None; the archive is not needed.

    It is believed when each file has the mode, size, time and inode that it was unpacked with, and none came or went.
    """
    return _kept(workspace.trees / sha256)


def upstream_tree(archive: SourceArchive, workspace: Workspace) -> UpstreamTree:
    """Return the tree of an archive, unpacked into ``trees/<sha256>/`` when it is not there as it was.

    Of several runs at once one unpacks and the others wait for it; a kill leaves nothing that counts.

    Raises FetchError ``unsafe-archive``, ``archive-corrupt`` and ``disk-full``.
    """
    from filelock import FileLock

    final = workspace.trees / archive.sha256
    if found := _kept(final):
        return found
    workspace.locks.mkdir(parents=True, exist_ok=True)
    with FileLock(workspace.locks / f"tree-{archive.sha256}.lock"):
        if found := _kept(final):  # another run was faster
            return found
        for leftover in (final, *workspace.trees.glob(f".{final.name}.*.tmp")):
            remove(leftover)
        with publish_directory(final) as draft:
            root = unpack(archive.path, draft / _TREE)
            _write_manifest(draft, root)
        found = _kept(final)
    if found is None:
        raise AssertionError(f"{final} was published with a manifest that does not describe it")
    return found


def _write_manifest(folder: Path, root: Path) -> None:
    seen = dict(_seen(root))
    files = {name: [blob.mode, blob.id, *seen[name]] for name, blob in blobs(root).items()}
    document = {"format": FORMAT, "root": root.relative_to(folder).as_posix(), "files": files}
    write_text(folder / MANIFEST, json.dumps(document, separators=(",", ":")))


def _kept(folder: Path) -> UpstreamTree | None:
    """Return a tree that is as it was unpacked, else None."""
    try:
        document = json.loads((folder / MANIFEST).read_bytes())
        root = folder / document["root"]
        files: Mapping[str, list[object]] = document["files"]
        if document["format"] != FORMAT or dict(_seen(root)) != {
            name: tuple(entry[2:]) for name, entry in files.items()
        }:
            return None
        found = {name: Blob(mode=str(entry[0]), id=str(entry[1])) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    return UpstreamTree(root=root, blobs=found)


def _seen(root: Path) -> Iterator[tuple[str, Seen]]:
    """Yield every file and link under a folder with what tells it apart."""
    pending = [("", os.fspath(root))]
    while pending:
        prefix, folder = pending.pop()
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((f"{prefix}{entry.name}/", entry.path))
                    continue
                state = entry.stat(follow_symlinks=False)
                yield f"{prefix}{entry.name}", (state.st_mode, state.st_size, state.st_mtime_ns, state.st_ino)
