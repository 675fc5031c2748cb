"""Compiled modules that are kept: ``modules/<key>/<digest of what was read>/`` has ``module.json`` and the library.

The key has everything but the headers that compilers read; those stand in ``module.json`` with their hashes, and a
module is taken only while every one of them has its hash. A module is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import digest, listed, open_plain, publish_directory, sha256_file, sync
from sglforge.base.ids import Sha256
from sglforge.base.rubbish import Rubbish, rubbish
from sglforge.base.workspace import Workspace
from sglforge.build.entry import is_key
from sglforge.build.modules.contents import ABSENT, Contents
from sglforge.build.modules.roots import Roots

SCHEMA = 1
RECORD, LIBRARY = "module.json", "library.so"
LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A compiled module in the store: its name, its file and the file's hash."""

    name: str
    path: Path
    sha256: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What ``module.json`` says: whose library it is, its hash, and the hashes of what was read, by name."""

    name: str
    sha256: Sha256
    read: Mapping[str, str]


def find(workspace: Workspace, key: Sha256, *, roots: Roots, contents: Contents) -> Kept | None:
    """Return the module of a key that was compiled from the headers that are there now, None where none was.

    One that is damaged counts as absent.
    """
    for folder in listed(workspace.modules / key):
        record = _whole(folder) if is_key(folder.name) else None
        if record and all(contents.of(roots.real(name)) == expected for name, expected in record.read.items()):
            with contextlib.suppress(OSError):
                os.utime(folder / RECORD)
            return Kept(name=record.name, path=folder / LIBRARY, sha256=record.sha256)
    return None


def keep(workspace: Workspace, key: Sha256, library: Path, *, name: str, read: Mapping[str, str]) -> Kept | None:
    """Keep a module that was just compiled, with the hashes of what was read for it.

    None for one of which something that was read is no file any more: nobody could say later whether it changed. One
    that another run has kept meanwhile stays, unless it is damaged.
    """
    if ABSENT in read.values():
        return None
    final = workspace.modules / key / digest(dict(read))
    if final.is_dir() and not _whole(final):
        shutil.rmtree(final, ignore_errors=True)
    with publish_directory(final) as draft:
        shutil.copyfile(library, draft / LIBRARY)
        sha256 = sha256_file(draft / LIBRARY)
        record = {"schema": SCHEMA, "name": name, "sha256": sha256, "read": dict(read)}
        (draft / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for file in (draft / LIBRARY, draft / RECORD):
            file.chmod(0o444)
            sync(file)
    sync(final.parent)
    return Kept(name=name, path=final / LIBRARY, sha256=sha256)


def unused(workspace: Workspace, *, keep_s: float, now: float) -> Iterator[Rubbish]:
    """Yield kept modules that no build took for a time (seconds), and what interrupted runs left."""
    for key in listed(workspace.modules):
        if not is_key(key.name) or key.is_symlink():
            continue
        there = listed(key)
        old = [folder for folder in there if now - _used_s(folder) >= keep_s]
        if len(old) == len(there) and now - key.stat().st_mtime >= keep_s:
            yield rubbish("module", key, "no build took it lately")
            continue
        for folder in old:
            yield rubbish("module", folder, "no build took it lately")


def damaged(workspace: Workspace) -> Iterator[Path]:
    """Yield the folders of kept modules that are not as they were kept; builds do not take these."""
    for key in listed(workspace.modules):
        if is_key(key.name) and not key.is_symlink():
            for folder in listed(key):
                if is_key(folder.name) and _whole(folder) is None and folder.exists():
                    yield folder


def _used_s(folder: Path) -> float:
    """Return when a module was taken or kept, in seconds since the epoch."""
    record = folder / RECORD
    return (record if record.exists() else folder).lstat().st_mtime


def _whole(folder: Path) -> _Record | None:
    """Return the record of a module that is as it was kept."""
    try:
        with open_plain(folder / RECORD) as stream:
            document = json.loads(stream.read(LIMIT_BYTES))
        match document:
            case {"schema": 1, "name": str(name), "sha256": str(sha256), "read": dict(read)}:
                fits = digest(read) == folder.name and sha256_file(folder / LIBRARY) == sha256
                return _Record(name=name, sha256=Sha256(sha256), read=read) if fits else None
            case _:
                return None
    except (OSError, ValueError, RecursionError):
        return None
