"""A real repository, the workspace that mirrors it, and a git configuration of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from git_repositories import Repository, make_repository

from sglforge.base.workspace import Workspace
from sglforge.sources.git import commands


@pytest.fixture(autouse=True)
def own_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's configuration of git, which is empty."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    configuration = tmp_path / "gitconfig"
    configuration.touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr(commands, "FIRST_PAUSE_S", 0.0)
    return configuration


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def upstream(tmp_path: Path) -> Repository:
    """A repository with a package, a folder beside it, a program, a link and a tag."""
    repository = make_repository(tmp_path / "upstream")
    (repository.path / "python").mkdir()
    (repository.path / "python" / "link").symlink_to("engine.py")
    repository.commit({"python/engine.py": "ONE = 1\n", "include/a.h": "#define A\n", "tool.sh": "#!/bin/sh\n"})
    (repository.path / "tool.sh").chmod(0o755)
    repository.commit({"include/deep/b.h": "#define B\n"})
    repository.git("tag", "v1.0")
    return repository
