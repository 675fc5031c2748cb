"""A built environment, shared by the tests that need one, and which tests may run beside each other.

`SGLFORGE_HOME` names the workspace; without it a temporary one is made. Either way the environment is the one
that `sglforge build` makes, through the package registries of this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from calling import Called, call

HERE = Path(__file__).parent
ONLY_FETCH = ("test_patches_released", "test_releases", "test_sm120")
"""They take released archives from the shared workspace; what needs a built environment in them does more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process have the shared workspace and all servers; the other tests of a file stay together."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(HERE):
            fetches = "workspace" in item.fixturenames and item.path.stem not in ONLY_FETCH
            shared = fetches or "built" in item.fixturenames
            item.add_marker(pytest.mark.xdist_group("workspace" if shared else item.path.stem))


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
