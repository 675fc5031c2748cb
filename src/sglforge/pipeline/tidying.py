"""What lies about in a workspace outside its store: archives, mirrors, unpacked trees, runs, working folders."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from sglforge.base import scratch
from sglforge.base.exclusive import take
from sglforge.base.files import listed
from sglforge.base.rubbish import Rubbish, age_s, discard, rubbish
from sglforge.base.runrecord import RunRecord
from sglforge.base.workspace import Workspace
from sglforge.build.modules.keep import unused
from sglforge.config.lockfile import LockedArchive
from sglforge.pipeline.select import Planned

SPARED_S = 3600.0
"""What was touched within an hour may be in the hands of a run that leaves no note."""
_HEX = re.compile(r"[0-9a-f]{64}")


def locked_hashes(catalog_root: Path) -> frozenset[str]:
    """Return every hash that a lock of the catalog names; a lock that cannot be parsed names its hashes too."""
    found: set[str] = set()
    for path in (catalog_root / "locks").glob("*.toml"):
        found.update(_HEX.findall(path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(found)


def works_with(planned: Planned, record: RunRecord) -> Iterator[str]:
    """Yield the names of what a run of a plan needs: its wheels, environment, record, and what its lock names."""
    yield from (step.key for step in planned.plan.steps)
    yield from (planned.plan.environment_key, record.id)
    yield from planned.python.locked.torch.sha256
    if planned.toolkit:
        yield planned.toolkit.chosen.toolkit.fingerprint
    for step in planned.plan.steps:
        if isinstance(step.locked, LockedArchive):
            yield from (file.sha256 for file in step.locked.files)


def tidy(
    workspace: Workspace,
    *,
    locked: frozenset[str],
    live: frozenset[str],
    keep_s: float,
    now: float,
    dry_run: bool,
) -> tuple[Rubbish, ...]:
    """Remove archives and trees that no lock names, and what is old: runs, modules, working folders and free locks.

    Args:
        workspace: What is tidied.
        locked: Hashes that a lock names.
        live: What running verbs work with.
        keep_s: What was changed within so many seconds stays.
        now: Seconds since the epoch.
        dry_run: Only say what would be removed.
    """
    keep_s = max(keep_s, SPARED_S)
    found = [*_archives(workspace, locked | live, keep_s, now), *_runs(workspace, live, keep_s, now)]
    found += [*_mirrors(workspace, keep_s, now), *unused(workspace, keep_s=keep_s, now=now)]
    left = [*_working_folders(workspace, keep_s, now)]
    if not dry_run:
        for item in found:
            discard(item)
        swept = scratch.sweep(workspace, older_than_s=keep_s)
        left = [item for item in left if item.path in swept]
        _free_locks(workspace, keep_s, now)
    return (*found, *left)


def _archives(workspace: Workspace, staying: frozenset[str], keep_s: float, now: float) -> Iterator[Rubbish]:
    for parent, kind in ((workspace.sources, "archive"), (workspace.trees, "tree")):
        for folder in listed(parent):
            name = folder.name.removeprefix(".").partition(".")[0]
            if not _HEX.fullmatch(name) or age_s(folder, now) < keep_s:
                continue
            if folder.name.startswith(".") and kind == "tree":
                yield rubbish(kind, folder, "an interrupted run left it")
            elif name not in staying and not any(_is_held(path) for path in folder.glob(".*.part")):
                yield rubbish(kind, folder, "no lock names it")


def _mirrors(workspace: Workspace, keep_s: float, now: float) -> Iterator[Rubbish]:
    """Yield mirrors that were not finished, and those that were put aside; the others stay."""
    for folder in listed(workspace.sources / "git"):
        if age_s(folder, now) < keep_s:
            continue
        if folder.name.startswith(".") and folder.name.endswith(".tmp"):
            yield rubbish("mirror", folder, "an interrupted run left it")
        elif folder.name.endswith(".damaged"):
            yield rubbish("mirror", folder, "it was put aside as damaged")


def _runs(workspace: Workspace, live: frozenset[str], keep_s: float, now: float) -> Iterator[Rubbish]:
    latest = (workspace.runs / "latest").resolve()
    for folder in listed(workspace.runs):
        if folder.is_symlink() or not folder.is_dir() or folder == latest or folder.name in live:
            continue
        if age_s(folder, now) >= keep_s:
            yield rubbish("run", folder, "it is old")


def _working_folders(workspace: Workspace, keep_s: float, now: float) -> Iterator[Rubbish]:
    for folder in listed(workspace.scratch):
        if scratch.is_abandoned(folder, older_than_s=keep_s, now=now):
            yield rubbish("scratch", folder, "nobody works in it any more")


def _free_locks(workspace: Workspace, keep_s: float, now: float) -> None:
    """Remove lock files that nobody holds: whoever takes one makes sure that it is still the one of that name."""
    for path in workspace.locks.glob("key-*.lock"):
        if age_s(path, now) >= keep_s and (held := take(path)) is not None:
            path.with_suffix(".holder").unlink(missing_ok=True)  # of a run that was killed
            path.unlink(missing_ok=True)
            os.close(held)


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
