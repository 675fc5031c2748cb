"""The last build of a package: remembered as a whole, and never believed further than it can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base.workspace import Workspace
from sglforge.build.history import last_build, remember
from sglforge.plan import Estimate, LastBuild

PARTS = {"format": 2, "target": {"name": "cpu"}, "source": {"digest": "1"}}
PROVENANCE = {
    "package": "toy",
    "python": "3.11",
    "key-parts": PARTS,
    "seconds": 12.5,
    "resources": {"seconds": 10.0, "cpu_seconds": 18.0, "peak_rss_mib": 300.0},
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path)


def last(workspace: Workspace, **other: str) -> LastBuild | None:
    return last_build(workspace, **({"package": "toy", "target": "cpu", "python_minor": "3.11"} | other))


def test_the_last_build_is_that_of_the_package_the_target_and_the_python(workspace: Workspace) -> None:
    assert last(workspace) is None
    remember(workspace, {**PROVENANCE, "key-parts": {**PARTS, "source": {"digest": "0"}}})
    remember(workspace, PROVENANCE)
    assert last(workspace) == LastBuild(key_parts=PARTS, took=Estimate(seconds=12.5, peak_rss_mib=300.0))
    assert last(workspace, package="other") is None
    assert last(workspace, target="sm120") is None
    assert last(workspace, python_minor="3.12") is None


@pytest.mark.parametrize("resources", [None, {}, {"peak_rss_mib": None}, {"peak_rss_mib": True}, [1]])
def test_what_was_not_measured_is_unknown(workspace: Workspace, resources: object) -> None:
    remember(workspace, {**PROVENANCE, "resources": resources})
    found = last(workspace)
    assert found
    assert found.took == Estimate(seconds=12.5)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, "12", None])
def test_a_time_that_cannot_be_is_unknown(workspace: Workspace, seconds: object) -> None:
    remember(workspace, {**PROVENANCE, "seconds": seconds})
    found = last(workspace)
    assert found
    assert found.took.seconds is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"schema": 2, "key-parts": {}}', '{"schema": 1, "key-parts": []}', "[" * 100_000]
)
def test_what_cannot_be_read_is_no_build(workspace: Workspace, text: str) -> None:
    remember(workspace, PROVENANCE)
    (path,) = workspace.history.rglob("*.json")
    path.write_text(text)
    assert last(workspace) is None
    path.write_bytes(b"\xff")
    assert last(workspace) is None
