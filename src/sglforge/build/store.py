"""The store of built wheels: one folder per build key, published whole, never changed afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import publish_directory, remove, sha256_file, write_json
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.errors import Finding, Severity

PROVENANCE = "provenance.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWheel:
    """A wheel in the store, with the hash that it was published with."""

    key: BuildKey
    path: Path
    sha256: Sha256
    provenance: Mapping[str, object]


def lookup(workspace: Workspace, key: BuildKey) -> StoredWheel | None:
    """Return the wheel of a key when it is there with its provenance and its size; contents are not read.

    What is damaged counts as absent: :func:`publish` replaces it.
    """
    folder = workspace.store / key
    try:
        provenance = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
        wheel = provenance["wheel"]
        path = folder / wheel["name"]
        if path.stat().st_size != wheel["size"]:
            return None
        return StoredWheel(key=key, path=path, sha256=Sha256(wheel["sha256"]), provenance=provenance)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keys(workspace: Workspace) -> frozenset[BuildKey]:
    """Return the keys that have a usable wheel in the store."""
    return frozenset(stored.key for stored in _all(workspace))


def damaged_keys(workspace: Workspace) -> frozenset[BuildKey]:
    """Return the keys of entries that :func:`lookup` does not accept."""
    if not workspace.store.is_dir():
        return frozenset()
    present = {BuildKey(folder.name) for folder in workspace.store.iterdir() if not folder.name.startswith(".")}
    return frozenset(present - keys(workspace))


def drop_damaged(workspace: Workspace, key: BuildKey) -> bool:
    """Remove an entry whose wheel is not the one that was published; return whether it was one."""
    if not ((stored := lookup(workspace, key)) and verify(stored)):
        return False
    with _locked(workspace, key):
        # looked at again: another run may have built it anew meanwhile
        if (stored := lookup(workspace, key)) and verify(stored):
            remove(workspace.store / key)
    return True


def latest_key_parts(workspace: Workspace) -> dict[str, Mapping[str, str]]:
    """Return what the newest wheel of each package was built from, part by part: what a plan compares with."""
    oldest_first = sorted(_all(workspace), key=lambda stored: str(stored.provenance.get("started", "")))
    return {
        str(stored.provenance["package"]): {str(name): str(value) for name, value in parts.items()}
        for stored in oldest_first
        if "package" in stored.provenance and isinstance(parts := stored.provenance.get("key-parts"), dict)
    }


def publish(workspace: Workspace, key: BuildKey, wheel: Path, provenance: Mapping[str, object]) -> StoredWheel:
    """Move a wheel with its provenance under its key and return what the store has then.

    When another run has published the same key meanwhile, its wheel stays: both were made from the same key.

    Args:
        workspace: Whose store.
        key: The build key.
        wheel: The wheel, on the same file system; it is moved.
        provenance: The document; its ``wheel`` has the name, size and sha256 of the wheel.
    """
    with _locked(workspace, key):
        stored = lookup(workspace, key)
        if stored is None:
            remove(workspace.store / key)
            with publish_directory(workspace.store / key) as draft:
                shutil.move(wheel, draft / wheel.name)
                write_json(draft / PROVENANCE, provenance)
            stored = lookup(workspace, key)
    if stored is None:
        raise AssertionError(f"{key} was published with a provenance that does not describe it")
    return stored


def _locked(workspace: Workspace, key: BuildKey) -> AbstractContextManager[object]:
    from filelock import FileLock

    workspace.locks.mkdir(parents=True, exist_ok=True)
    return FileLock(workspace.locks / f"store-{key}.lock")


def _all(workspace: Workspace) -> Iterator[StoredWheel]:
    if workspace.store.is_dir():
        for folder in workspace.store.iterdir():
            if stored := lookup(workspace, BuildKey(folder.name)):
                yield stored


def verify(stored: StoredWheel) -> tuple[Finding, ...]:
    """Return a finding ``store-damaged`` when a stored wheel is not what was published."""
    if stored.path.is_file() and sha256_file(stored.path) == stored.sha256:
        return ()
    return (
        Finding(
            code="store-damaged",
            severity=Severity.ERROR,
            subject=stored.path.name,
            message="the wheel in the store is not the one that was built",
            where=str(stored.path),
            hint="nox -s build",
        ),
    )
