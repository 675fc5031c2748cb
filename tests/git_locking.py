"""Lock what tests put into git repositories."""

from __future__ import annotations

import pytest
from git_repositories import Repository

from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit
from sglforge.config.model import GitSource
from sglforge.sources.git import pin
from sglforge.sources.git.mirror import Mirror, mirror_of


def source_of(repository: Repository, *paths: str, ref: str = "main", version: str | None = None) -> GitSource:
    return GitSource(kind="git", url=repository.url, ref=ref, source_paths=list(paths), version=version)


def lock_of(source: GitSource, workspace: Workspace) -> LockedGit:
    """Lock a source at what its ref is now."""
    commit = pin.newest(source.url, source.ref, workspace=workspace, waiting=pytest.fail)
    return pin.pin_commit(source, commit, package="toy", workspace=workspace, waiting=pytest.fail)


def mirror_here(repository: Repository, workspace: Workspace) -> Mirror:
    return mirror_of(repository.url, workspace)
