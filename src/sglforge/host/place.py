"""Whether a workspace can be worked in."""

from __future__ import annotations

import os
from pathlib import Path

from sglforge.base.workspace import Workspace
from sglforge.errors import Finding, Severity


def judge_place(workspace: Workspace) -> tuple[Finding, ...]:
    """Return a finding ``workspace-unusable`` for each folder of a workspace that this user cannot write to.

    What is not there yet is judged by the nearest folder that is; where that of the workspace itself is refused, the
    folders in it are not asked for.
    """
    parts = (
        workspace.sources,
        workspace.store,
        workspace.environments,
        workspace.toolkits,
        workspace.runs,
        workspace.verdicts,
        workspace.locks,
        workspace.scratch,
    )
    root = _nearest(workspace.root)
    wrong = [root] if not _can_write(root) else [path for path in parts if path.exists() and not _can_write(path)]
    return tuple(
        Finding(
            code="workspace-unusable",
            severity=Severity.ERROR,
            subject="workspace",
            message="it cannot be written to by this user" if path.is_dir() else "it is not a folder",
            where=str(path),
            hint="name a folder that you may write to with --workspace DIR or SGLFORGE_HOME",
        )
        for path in wrong
    )


def _nearest(path: Path) -> Path:
    """Return a path, or the nearest one above it that exists."""
    return next((place for place in (path, *path.parents) if os.path.lexists(place)), path)


def _can_write(path: Path) -> bool:
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
