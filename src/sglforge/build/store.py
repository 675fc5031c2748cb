"""The store of built wheels: an entry for each build key, an object for each wheel, never changed afterwards.

``entries/<build key>.json`` says which wheel a key stands for; ``objects/<sha256>/<wheel name>`` is the wheel. The
object is there before its entry, so an entry that can be read means a wheel that is whole; what is damaged counts as
absent and is replaced. All writing is done by one run at a time, under a lock; reading needs none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.exclusive import STORE, WHEEL, exclusive
from sglforge.base.files import open_plain, remove, sha256_file, sync, write_bytes
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.build.entry import LIMIT_BYTES, Entry, dump, entry, is_key, parse
from sglforge.errors import Finding, Severity

READ_ONLY = 0o444
MAKING_TIMEOUT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWheel:
    """A wheel in the store, with the hash that it was published with, and its provenance document."""

    key: BuildKey
    path: Path
    sha256: Sha256
    provenance: Mapping[str, object]


def entry_path(store: Path, key: BuildKey) -> Path:
    """Return where the entry of a key is, in any store."""
    return store / "entries" / f"{key}.json"


def object_path(store: Path, found: Entry) -> Path:
    """Return where the wheel of an entry is, in any store."""
    return store / "objects" / found.sha256 / found.name


def read_entry(store: Path, key: BuildKey) -> Entry:
    """Return the entry of a key in any store; its wheel is not looked at.

    Raises OSError, and ValueError for one that is not whole.
    """
    with open_plain(entry_path(store, key)) as stream:
        return parse(stream.read(LIMIT_BYTES + 1), key)


def lookup(workspace: Workspace, key: BuildKey) -> StoredWheel | None:
    """Return the wheel of a key when its entry is whole and its wheel has the right size; the wheel is not read.

    What is damaged counts as absent: :func:`publish` replaces it.
    """
    try:
        found = read_entry(workspace.store, key)
    except (OSError, ValueError):
        return None
    if not has_wheel(workspace.store, found):
        return None
    path = object_path(workspace.store, found)
    return StoredWheel(key=key, path=path, sha256=found.sha256, provenance=found.document)


def has_wheel(store: Path, found: Entry) -> bool:
    """Say whether the wheel of an entry is there, a file of the right size; it is not read."""
    try:
        status = object_path(store, found).lstat()
    except OSError:
        return False
    return status.st_size == found.size and stat.S_ISREG(status.st_mode)


def keys(workspace: Workspace) -> Collection[BuildKey]:
    """Return the keys that have a usable wheel in the store; a key that is asked for is looked up, no other is."""
    return _Keys(workspace, lambda key: lookup(workspace, key) is not None)


def damaged_keys(workspace: Workspace) -> Collection[BuildKey]:
    """Return the keys of entries that :func:`lookup` does not accept; they too are looked up one by one."""
    return _Keys(
        workspace,
        lambda key: entry_path(workspace.store, key).exists() and lookup(workspace, key) is None,
    )


def entry_keys(workspace: Workspace) -> tuple[BuildKey, ...]:
    """Return the keys of all entries, usable or not: those that were used last come first."""
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(workspace.store / "entries") as files:
        for file in files:
            name = file.name.removesuffix(".json")
            if name != file.name and is_key(name):
                with contextlib.suppress(FileNotFoundError):
                    found.append((-file.stat(follow_symlinks=False).st_mtime_ns, BuildKey(name)))
    return tuple(key for _, key in sorted(found))


def used(workspace: Workspace, key: BuildKey) -> None:
    """Note that the wheel of a key is used now: the time of its entry says when that was last."""
    with contextlib.suppress(OSError):
        os.utime(entry_path(workspace.store, key))


def making(
    workspace: Workspace,
    key: BuildKey,
    *,
    waiting: Callable[[str], None],
    timeout_s: float = MAKING_TIMEOUT_S,
    pause: Callable[[float], None] = time.sleep,
) -> AbstractContextManager[None]:
    """Let nobody else make the wheel of a key meanwhile; ``waiting`` is told for whom it waits.

    ``pause`` waits some seconds; what it raises ends the waiting.

    Raises BuildError ``workspace-busy``.
    """
    return exclusive(workspace.locks / f"key-{key}", waiting=waiting, timeout_s=timeout_s, use=WHEEL, pause=pause)


def writing(workspace: Workspace, *, waiting: Callable[[str], None] = lambda _: None) -> AbstractContextManager[None]:
    """Let nobody else write to the store, nor remove anything from it, meanwhile.

    Raises BuildError ``workspace-busy``.
    """
    return exclusive(workspace.locks / "store", waiting=waiting, use=STORE)


def publish(workspace: Workspace, key: BuildKey, wheel: Path, provenance: Mapping[str, object]) -> StoredWheel:
    """Move a wheel into the store, then write the entry of its key, and return what the store has then.

    When another run has published the same key meanwhile, its wheel stays: both were made from the same key. An object
    that is there is replaced: it may be damaged, and this one was just hashed.

    Args:
        workspace: Whose store.
        key: The build key.
        wheel: The wheel; it is moved.
        provenance: The document; its ``wheel`` has the name, size and sha256 of the wheel.
    """
    try:
        made = entry(key, provenance)
    except ValueError as error:
        raise AssertionError(f"{key} was published with a provenance that does not describe it: {error}") from error
    if wheel.stat().st_size != made.size:
        raise AssertionError(f"{key} was published with a provenance that does not describe it: another size")
    wheel.chmod(READ_ONLY)
    sync(wheel)  # before the lock: it may take long
    with writing(workspace):
        stored = lookup(workspace, key)
        if stored is None:
            _place(wheel, object_path(workspace.store, made))
            path = entry_path(workspace.store, key)
            if path.is_dir() and not path.is_symlink():
                remove(path)
            write_bytes(path, dump(made), mode=READ_ONLY)
            sync(path.parent)
            stored = lookup(workspace, key)
    if stored is None:
        raise OSError(errno.EIO, "what was written cannot be read back", str(workspace.store))
    return stored


def drop_damaged(workspace: Workspace, key: BuildKey) -> bool:
    """Remove an entry whose wheel is not the one that was published, and the wheel; return whether it was one."""
    stored = lookup(workspace, key)
    if stored is None:
        return False
    try:
        before = stored.path.stat()
        damaged = sha256_file(stored.path) != stored.sha256
    except FileNotFoundError:
        return False
    if damaged:
        with writing(workspace), contextlib.suppress(FileNotFoundError):
            # another run may have replaced it meanwhile
            if os.path.samestat(before, stored.path.stat()):
                entry_path(workspace.store, key).unlink(missing_ok=True)
                remove(stored.path)
    return damaged


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


def _place(wheel: Path, final: Path) -> None:
    """Move a file to its place in one step, and make sure that it stays there; what was there goes."""
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
    try:
        shutil.move(wheel, draft)
        sync(draft)
        if final.is_dir() and not final.is_symlink():
            remove(final)
        draft.replace(final)
    finally:
        draft.unlink(missing_ok=True)
    for folder in (final.parent, final.parent.parent):
        sync(folder)


class _Keys(Collection[BuildKey]):
    """The keys of a store that meet a condition, asked only for those that somebody wants to know of."""

    def __init__(self, workspace: Workspace, meets: Callable[[BuildKey], bool]) -> None:
        self._workspace, self._meets = workspace, meets

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and is_key(key) and self._meets(BuildKey(key))

    def __iter__(self) -> Iterator[BuildKey]:
        return (key for key in entry_keys(self._workspace) if self._meets(key))

    def __len__(self) -> int:
        return sum(1 for _ in self)
