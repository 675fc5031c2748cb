"""The verb plan, beside builds of toy packages that really build: what changed, what it takes, what is there."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from calling import Called, call
from toy_catalog import offline, write_catalog


class Toys:
    """A toy catalog and a workspace of its own."""

    def __init__(self, root: Path) -> None:
        self.catalog = write_catalog(root / "catalog")
        self.workspace = root / "workspace"

    def __call__(self, verb: str, *words: str, env: Mapping[str, str] | None = None) -> Called:
        env = {**offline(self.catalog), **(env or {})}
        done = call(
            verb, *words, "--offline", "--catalog", self.catalog, "--target", "cpu", workspace=self.workspace, env=env
        )
        assert done.code == 0, done.talk
        return done

    def steps(self, *words: str, env: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
        steps = self("plan", *words, env=env).document["steps"]
        assert isinstance(steps, list)
        return {step["package"]: step for step in steps}

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.catalog / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """Toys of which everything is built."""
    toys = Toys(tmp_path_factory.mktemp("toys"))
    before = toys.steps()
    assert {step["why"] for step in before.values()} == {"never built here"}
    assert [step["estimate"] for step in before.values()] == [{"seconds": None, "peak_rss_mib": None}] * 2
    built = toys("build", "engine")
    steps = built.document["steps"]
    assert isinstance(steps, list)
    # asked for one, which is built with the other
    assert [step["package"] for step in steps] == ["base", "engine"]
    return toys


def seen(toys: Toys, key: str) -> str:
    (wheel,) = toys.workspace.rglob(f"store/**/engine-*{key}*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read("engine/seen.py").decode()


def test_what_is_built_is_there_and_its_build_saw_its_variables_and_its_dependency(toys: Toys) -> None:
    steps = toys.steps()
    assert {step["state"] for step in steps.values()} == {"hit"}
    assert [step["estimate"] for step in steps.values()] == [None, None]
    assert steps["engine"]["key_parts"]["environment"] == {"ENGINE_MODE": "fast"}
    assert steps["engine"]["key_parts"]["depends"] == {"base": steps["base"]["key"]}
    assert seen(toys, steps["engine"]["local_version"]) == "MODE = 'fast'\nBASE = 'first'\n"


def test_what_changed_since_the_last_build_is_said_leaf_by_leaf(toys: Toys) -> None:
    before = toys.steps()
    toys.edit("kernels/base/src/base/__init__.py", "first", "second")
    toys.edit("recipes/packages/engine.toml", '"fast"', '"slow"')
    after = toys.steps("--explain")
    digests = [step["base"]["key_parts"]["source"]["digest"] for step in (before, after)]
    old, new = (step["base"]["key"] for step in (before, after))
    assert after["base"]["changes"] == [
        {
            "part": "source.digest",
            "before": digests[0],
            "after": digests[1],
            "text": f"source: digest {digests[0][:8]} -> {digests[1][:8]}",
        }
    ]
    assert after["base"]["why"] == "changed since the last build: source"
    assert [change["text"] for change in after["engine"]["changes"]] == [
        "environment: ENGINE_MODE fast -> slow",
        f"depends: base changed ({old[:8]} -> {new[:8]})",
    ]
    assert after["engine"]["why"] == "changed since the last build: depends, environment"
    # what it took the last time is known
    assert after["base"]["estimate"]["seconds"] > 0
    toys("build", "engine")
    built = toys.steps()
    assert {step["state"] for step in built.values()} == {"hit"}
    # the label is that of the source, which is the same: both wheels are in the store
    assert before["engine"]["local_version"] == after["engine"]["local_version"]
    # back again: the first wheels are still there, and nothing changed that had to be built
    toys.edit("kernels/base/src/base/__init__.py", "second", "first")
    toys.edit("recipes/packages/engine.toml", '"slow"', '"fast"')
    assert {name: step["key"] for name, step in toys.steps().items()} == {n: step["key"] for n, step in before.items()}
    assert {step["state"] for step in toys.steps().values()} == {"hit"}


def test_nothing_but_what_decides_changes_a_plan(toys: Toys, tmp_path: Path) -> None:
    """Other words, other times, another user's surroundings, another place, a change of somebody else."""
    before = toys.steps()
    toys.edit("recipes/packages/engine.toml", "A toy.", "In other words.")
    toys.edit("recipes/stacks/toys.toml", "Two toys.", "Some toys.")
    (toys.catalog / "README.md").write_text("unrelated\n")
    (toys.catalog / "kernels/other").mkdir()
    (toys.catalog / "kernels/base/src/base/__pycache__").mkdir(exist_ok=True)
    for path in (toys.catalog / "kernels").rglob("*.py"):
        path.touch()
        path.chmod(0o600)
    env = {
        "HOME": str(tmp_path),
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "7",
        "TMPDIR": str(tmp_path),
        "USER": "somebody",
        "CC": "gcc-99",
        "MAX_JOBS": "3",
        "TZ": "Asia/Tokyo",
    }
    after = toys.steps(env=env)
    assert {name: step["key_parts"] for name, step in after.items()} == {n: s["key_parts"] for n, s in before.items()}
    elsewhere = Toys(tmp_path / "elsewhere")
    assert {name: step["key"] for name, step in elsewhere.steps().items()} == {n: s["key"] for n, s in before.items()}
    assert json.dumps(before) == json.dumps(toys.steps())


def test_a_compiler_that_nobody_can_read_is_refused(toys: Toys) -> None:
    env = {**offline(toys.catalog), "CC": "gcc\udcff"}
    words = ("--offline", "--catalog", toys.catalog, "--target", "cpu")
    done = call("plan", *words, workspace=toys.workspace, env=env)
    assert (done.code, done.codes) == (2, {"value-not-printable"})
