"""A built environment, shared by the tests that need one.

`SGLFORGE_HOME` names the workspace; without it a temporary one is made. Either way the environment is the one
that `sglforge build` makes, through the package registries of this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from calling import Called, call


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    configured = os.environ.get("SGLFORGE_HOME")
    return Path(configured) if configured else tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="session")
def built(workspace: Path) -> Called:
    """The result of `sglforge build` on the CPU target."""
    result = call("build", "--target", "cpu", workspace=workspace, timeout_s=1800)
    assert result.code == 0, result.talk
    return result
