"""What a build does with what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base.files import sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build import store
from sglforge.config.model import PackageRecipe, PathSource
from sglforge.pipeline.building import _looked_at
from sglforge.pipeline.request import Request
from sglforge.plan import Step

KEY = BuildKey("k" * 64)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(argv=(), catalog_root=tmp_path, workspace=Workspace(root=tmp_path / "workspace"))


def step() -> Step:
    return Step(
        package="toy",
        recipe=PackageRecipe(name="toy", description="", import_name="toy"),
        source=PathSource(kind="path", path="toy"),
        locked=None,
        build_requires=(),
        key=KEY,
        key_parts={},
        local_version="cpu.t1",
        state="hit",
        why="in the store",
    )


def test_a_wheel_that_was_changed_in_the_store_is_dropped_and_built_again(request_: Request, tmp_path: Path) -> None:
    wheel = tmp_path / "toy-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    described = {"name": wheel.name, "size": 5, "sha256": sha256_file(wheel)}
    stored = store.publish(request_.workspace, KEY, wheel, {"wheel": described})
    assert _looked_at(step(), request_) == step()
    stored.path.write_bytes(b"WHEEL")
    damaged = _looked_at(step(), request_)
    assert (damaged.state, damaged.why) == ("miss", "its wheel in the store is damaged")
    assert store.lookup(request_.workspace, KEY) is None
