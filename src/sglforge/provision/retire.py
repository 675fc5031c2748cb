"""Environments: who is there, what they were made from, and which of them nobody needs any more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.exclusive import take
from sglforge.base.files import listed, remove
from sglforge.base.ids import BuildKey
from sglforge.base.rubbish import Rubbish, age_s, discard, rubbish
from sglforge.base.workspace import Workspace
from sglforge.provision.install import environment_lock
from sglforge.provision.receipt import RECEIPT

_KEY = re.compile(r"[0-9a-f]{64}")
_HALF = re.compile(r"\.[0-9a-f]{64}\.[0-9]+\.tmp")
_BUILT = re.compile(rb'"build_key": ?"([0-9a-f]{64})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Inhabited:
    """An environment's folder, the names that point at it, and the build keys that its receipt names."""

    folder: Path
    names: tuple[str, ...]
    keys: frozenset[BuildKey]

    @property
    def label(self) -> str:
        """The environment in words."""
        return ", ".join(self.names) or f"{self.folder.name[:12]} (no name points at it)"


def environments(workspace: Workspace) -> tuple[Inhabited, ...]:
    """Return the environments of a workspace; a receipt that is damaged still says what can be read of it."""
    entries = listed(workspace.environments)
    names: dict[Path, list[str]] = {}
    for path in entries:
        if path.is_symlink():
            names.setdefault(path.resolve(), []).append(path.name)
    return tuple(
        Inhabited(folder=path, names=tuple(names.get(path.resolve(), ())), keys=_keys(path / RECEIPT))
        for path in entries
        if path.is_dir() and not path.is_symlink() and _KEY.fullmatch(path.name)
    )


def retire(
    workspace: Workspace, *, keep_s: float, now: float, live: frozenset[str], dry_run: bool
) -> tuple[Rubbish, ...]:
    """Remove environments that no name points at, that are older than ``keep_s`` seconds and that nobody works with.

    Nobody works with one whose lock is free, that no running verb has noted and that no process was started from.
    """
    return tuple(_retire(workspace, keep_s=keep_s, now=now, live=live, dry_run=dry_run))


def _retire(
    workspace: Workspace, *, keep_s: float, now: float, live: frozenset[str], dry_run: bool
) -> Iterator[Rubbish]:
    for path in listed(workspace.environments):
        if _HALF.fullmatch(path.name) and path.is_dir():  # whoever removed it was killed; it had no receipt any more
            item = rubbish("environment", path, "an interrupted run left it")
            if not dry_run:
                remove(path)
            yield item
    for found in environments(workspace):
        if found.names or found.folder.name in live or age_s(found.folder, now) < keep_s:
            continue
        lock = environment_lock(workspace, BuildKey(found.folder.name))
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = take(lock.with_name(f"{lock.name}.lock"))
        if held is None:
            continue
        try:
            if any(path.is_symlink() and path.resolve() == found.folder for path in workspace.environments.iterdir()):
                continue  # named meanwhile
            if _serves(found.folder):
                continue
            item = rubbish("environment", found.folder, "no name points at it")
            if not dry_run:
                (found.folder / RECEIPT).unlink(missing_ok=True)  # first: then it does not count any more
                discard(item)
            yield item
        finally:
            os.close(held)


def _keys(receipt: Path) -> frozenset[BuildKey]:
    try:
        return frozenset(BuildKey(found.decode()) for found in _BUILT.findall(receipt.read_bytes()))
    except OSError:
        return frozenset()


def _serves(folder: Path) -> bool:
    """Say whether a process of this machine was started from a folder, or has a library of it loaded."""
    wanted = os.fsencode(folder) + b"/"
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "maps"):
            try:
                if wanted in (process / name).read_bytes():
                    return True
            except OSError:
                continue
    return False
