"""Which integration tests may run beside each other (`-n 2 --dist loadfile`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

IN_THE_WORKSPACE = frozenset(
    f"test_{name}"
    for name in (
        "main_line",
        "modules",
        "older_releases",
        "releases",
        "sm120",
        "smoke_faults",
        "smoke_real",
        "store_sharing",
        "threshold_crash",
    )
)
"""Files whose tests use the shared workspace, change it, or start servers: one after the other, in one process."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give each file to one process, and all that share the workspace to the same one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SideBySide(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return "the shared workspace" if Path(file).stem in IN_THE_WORKSPACE else file

    return SideBySide(config, log)
