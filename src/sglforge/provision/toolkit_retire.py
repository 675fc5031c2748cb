"""CUDA toolkits of a workspace that no lock names any more."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from sglforge.base.exclusive import take
from sglforge.base.files import listed
from sglforge.base.rubbish import Rubbish, age_s, discard, rubbish
from sglforge.base.workspace import Workspace

_NAME = re.compile(r"(?P<draft>\.)?(?P<fingerprint>[0-9a-f]{64})(?(draft)\..+\.tmp)")


def retire_toolkits(
    workspace: Workspace, *, keep: Collection[str], keep_s: float, now: float, dry_run: bool
) -> tuple[Rubbish, ...]:
    """Remove toolkits that are not among ``keep`` and older than ``keep_s`` seconds, and that nobody installs now.

    What killed runs left half made goes too. ``keep`` are fingerprints, ``now`` is in seconds since the epoch.
    """
    return tuple(_retire(workspace, keep=keep, keep_s=keep_s, now=now, dry_run=dry_run))


def _retire(
    workspace: Workspace, *, keep: Collection[str], keep_s: float, now: float, dry_run: bool
) -> Iterator[Rubbish]:
    for folder in listed(workspace.toolkits):
        name = _NAME.fullmatch(folder.name)
        if name is None or age_s(folder, now) < keep_s or (not name["draft"] and name["fingerprint"] in keep):
            continue
        held = take(_lock(workspace, name["fingerprint"]))
        if held is None:
            continue
        try:
            item = rubbish("toolkit", folder, "an interrupted run left it" if name["draft"] else "no lock names it")
            if not dry_run:
                discard(item)
            yield item
        finally:
            os.close(held)


def _lock(workspace: Workspace, fingerprint: str) -> Path:
    workspace.locks.mkdir(parents=True, exist_ok=True)
    return workspace.locks / f"toolkit-{fingerprint}.lock"
