"""Remove from the store what nothing refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.base.files import listed, sync
from sglforge.base.ids import BuildKey
from sglforge.base.rubbish import Rubbish, discard, rubbish
from sglforge.base.workspace import Workspace
from sglforge.build.entry import Entry, is_key
from sglforge.build.store import read_entry, writing
from sglforge.build.uses import in_use

DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What must stay: build keys with the reason, and packages of which nothing may go, with the reason."""

    keys: Mapping[BuildKey, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed, or would be; ``kept`` are the entries that stayed, with the reason."""

    removed: tuple[Rubbish, ...]
    kept: Mapping[BuildKey, str]


def collect(
    workspace: Workspace,
    refers: Callable[[], Kept],
    *,
    keep_s: float,
    now: float,
    dry_run: bool,
    waiting: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Remove entries that nothing needs, then objects without an entry, and what older stores and killed runs left.

    An entry stays when what ``refers`` returns (asked once nobody else writes) has its key or its package, when it was
    used within ``keep_s`` seconds of ``now`` (seconds since the epoch), and when a running verb works with it. All of
    it happens under the lock of the store: what is published or looked up meanwhile is so before, or afterwards.
    """
    store = workspace.store
    removed: list[Rubbish] = []
    staying: dict[BuildKey, str] = {}
    with writing(workspace, waiting=waiting):
        live, kept = in_use(workspace), refers()
        objects: set[tuple[str, str]] = set()
        for path in _ours(store / "entries"):
            key = BuildKey(path.name.removesuffix(".json"))
            found = _read(store, key) if is_key(key) else None
            if why := _why_kept(path, key, found, kept, live, now - keep_s):
                staying[key] = why
                if found:
                    objects.add((found.sha256, found.name))
                continue
            reason = "nothing refers to it" if found else "it is damaged, or an interrupted run left it"
            removed.append(rubbish("entry", path, reason))
            _discard(removed[-1], dry_run=dry_run)
        if not dry_run and (store / "entries").is_dir():
            sync(store / "entries")  # an object may go once its entry is gone for good
        for leftover in (*_unreferenced(store / "objects", objects), *_old_layout(store)):
            removed.append(leftover)
            _discard(leftover, dry_run=dry_run)
    return Collected(removed=tuple(removed), kept=staying)


def _why_kept(
    path: Path, key: BuildKey, found: Entry | None, kept: Kept, live: frozenset[str], since: float
) -> str | None:
    """Return why an entry stays; one that cannot be read counts as absent for every reader, and never does."""
    if found is None:
        return None
    if key in kept.keys:
        return kept.keys[key]
    if key in live:
        return "a running command works with it"
    if found.package in kept.packages:
        return kept.packages[found.package]
    return "it was used lately" if path.stat().st_mtime >= since else None


def _unreferenced(objects: Path, referenced: set[tuple[str, str]]) -> Iterator[Rubbish]:
    """Yield objects without an entry, and folders that hold nothing else."""
    for folder in _ours(objects):
        names = {path.name for path in listed(folder)} if folder.is_dir() else set()
        staying = {name for name in names if (folder.name, name) in referenced}
        if not staying:
            yield rubbish("object", folder, "no entry refers to it")
            continue
        for name in sorted(names - staying):
            yield rubbish("object", folder / name, "no entry refers to it")


def _old_layout(store: Path) -> Iterator[Rubbish]:
    for path in listed(store):
        if path.is_dir() and not path.is_symlink() and (is_key(path.name) or path.name.endswith(".tmp")):
            yield rubbish("old-entry", path, "an older sglforge wrote it; this one does not read it")


def _discard(found: Rubbish, *, dry_run: bool) -> None:
    if not dry_run:
        discard(found)


def _read(store: Path, key: BuildKey) -> Entry | None:
    try:
        return read_entry(store, key)
    except (OSError, ValueError):
        return None


def _ours(folder: Path) -> Iterator[Path]:
    """Yield what has a name that a store gives, also to what is not finished; anything else stays where it is."""
    for path in listed(folder):
        if is_key(path.name.removesuffix(".json")) or (path.name.startswith(".") and path.name.endswith(".tmp")):
            yield path
