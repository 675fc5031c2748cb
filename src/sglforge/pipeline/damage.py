"""Damage in what a workspace keeps beside its wheels: compiled modules and the lock's CUDA toolkits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import listed
from sglforge.base.workspace import Workspace
from sglforge.build.entry import is_key
from sglforge.build.modules.keep import damaged
from sglforge.errors import Finding, Severity
from sglforge.provision.toolkit_receipt import RECEIPT, other_bytes, read_receipt

SHOWN = 12
_HINT = "nox -s store -- verify --repair drops it; nox -s build makes it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that is not what it was made as; ``broken`` goes when it is repaired."""

    finding: Finding
    broken: Path


def look(workspace: Workspace) -> tuple[Damage, ...]:
    """Return what is damaged, every file hashed."""
    return (*_modules(workspace), *_toolkits(workspace))


def repair(found: Damage) -> None:
    """Drop what is damaged: of a toolkit the receipt, so that builds that run with it go on."""
    if found.broken.name == RECEIPT:
        found.broken.unlink(missing_ok=True)
    else:
        shutil.rmtree(found.broken, ignore_errors=True)


def _modules(workspace: Workspace) -> Iterator[Damage]:
    for folder in damaged(workspace):
        yield Damage(
            finding=Finding(
                code="store-damaged",
                severity=Severity.ERROR,
                subject=folder.parent.name,
                message="a module is not the one that was compiled: builds do not take it",
                where=str(folder),
                hint=_HINT,
            ),
            broken=folder,
        )


def _toolkits(workspace: Workspace) -> Iterator[Damage]:
    for folder in listed(workspace.toolkits):
        receipt = read_receipt(folder) if is_key(folder.name) else None
        if receipt is None or not (names := other_bytes(folder, receipt)):
            continue
        more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
        yield Damage(
            finding=Finding(
                code="store-damaged",
                severity=Severity.ERROR,
                subject=folder.name,
                message=f"a CUDA toolkit is not what was installed: {names[0]}",
                where=str(folder),
                hint=_HINT,
                detail=(*names[:SHOWN], *more),
            ),
            broken=folder / RECEIPT,
        )
