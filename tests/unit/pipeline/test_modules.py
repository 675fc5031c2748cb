"""What modules are compiled with, for a build and for the proof of one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sglforge.base.files import sha256_file
from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.pipeline import modules
from sglforge.pipeline.request import Request


def test_only_builds_take_objects_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild works in another workspace: what it took from storage that others share would prove nothing."""
    seen: list[bool] = []

    def compiling(_package: str, *, cached: bool, **_: object) -> AbstractContextManager[None]:
        seen.append(cached)
        return nullcontext()

    monkeypatch.setattr(modules, "compiling", compiling)
    driver = tmp_path / "driver.py"
    driver.touch()
    request = Request(argv=("build",), catalog_root=tmp_path, workspace=Workspace(root=tmp_path / "ws"))
    step = SimpleNamespace(
        package="toy",
        modules=SimpleNamespace(driver="driver.py", driver_sha256=sha256_file(driver), locked=None),
        recipe=SimpleNamespace(memory=None),
    )
    target = SimpleNamespace(target=SimpleNamespace(name="gpu"))
    planned = SimpleNamespace(
        selection=target, python=SimpleNamespace(locked=SimpleNamespace(minor="3.11")), toolkit=None
    )
    nothing = cast("Any", None)
    tools = modules.module_tools(
        cast("Any", step),
        cast("Any", planned),
        request,
        IndexLocations(),
        server=nothing,
        run=nothing,
        pause=nothing,
    )
    assert tools
    for root in (tmp_path / "ws", tmp_path / "ws" / "scratch" / "elsewhere"):
        with tools.compiling(tmp_path, Workspace(root=root)):
            pass
    assert seen == [True, False]
