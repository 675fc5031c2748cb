"""The shipped topics on the very archives that the lock names."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import ROOT

from sglforge.base import proc
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import lock_path, read_lock
from sglforge.host import package_index
from sglforge.patches.result import TopicState
from sglforge.patches.series import Series, apply_series, load_series
from sglforge.patches.treeid import tree_id
from sglforge.sources.fetch import fetch
from sglforge.sources.unpack import unpack
from sglforge.trees.version import tree_version

pytestmark = pytest.mark.integration

EDITED = {
    "sglang": {
        "sglang/kernels/ops/speculative/gather_spec_extras.py",
        "sglang/srt/arg_groups/overrides.py",
        "sglang/srt/arg_groups/speculative_hook.py",
    },
    "torchvision": {"torchvision/extension.py"},
}
VERSIONS = {"sglang": "0.5.23", "torchvision": "0.28.0"}
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"

Fresh = Callable[[str], Path]


@pytest.fixture(scope="session")
def unpacked(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The trees of the locked archives, as they came."""
    sources = read_lock(lock_path(ROOT, "release-0.5.23", "cpu")).sources
    locations, place = package_index.read(), Workspace(root=workspace)
    trees = {}
    for package, version in VERSIONS.items():
        assert sources[package].version == version
        archive = fetch(sources[package], package=package, python_minor=MINOR, locations=locations, workspace=place)
        trees[package] = unpack(archive.path, tmp_path_factory.mktemp("unpacked") / package)
    return trees


@pytest.fixture
def fresh(unpacked: dict[str, Path], tmp_path: Path) -> Fresh:
    """A function that copies a tree."""

    def copy(package: str) -> Path:
        folder = tmp_path / f"{package}-{len(list(tmp_path.iterdir()))}"
        return Path(shutil.copytree(unpacked[package], folder, symlinks=True))

    return copy


def series_of(package: str) -> Series:
    series = load_series(ROOT, package)
    assert series is not None
    return series


def contents(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def git(tree: Path, git_dir: Path, *words: str, stdin: str | None = None) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(tree),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return proc.run(["git", *words], env=env, cwd=tree, stdin=stdin).stdout.strip()


@pytest.mark.parametrize("package", EDITED)
def test_every_topic_applies_and_nothing_else_changes(fresh: Fresh, package: str) -> None:
    series, tree = series_of(package), fresh(package)
    before = contents(tree)
    result = apply_series(series, tree, version=VERSIONS[package])
    assert [topic.state for topic in result.topics] == [TopicState.APPLIED] * len(series.topics)
    assert result.findings == ()
    after = contents(tree)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == EDITED[package]
    for topic in result.topics:
        assert any(topic.evidence.encode() in after[name] for name in topic.files)
    again = apply_series(series, tree, version=VERSIONS[package])
    assert {topic.state for topic in again.topics} == {TopicState.CONFLICT}
    assert contents(tree) == after


@pytest.mark.parametrize("package", EDITED)
def test_git_makes_the_same_tree_of_the_diff(fresh: Fresh, package: str, tmp_path: Path) -> None:
    tree, other, git_dir = fresh(package), fresh(package), tmp_path / "repository.git"
    proc.run(["git", "init", "--quiet", "--bare", git_dir])
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
    result = apply_series(series_of(package), tree, version=VERSIONS[package])
    git(other, git_dir, "add", "--force", "--all", ".")
    git(other, git_dir, "apply", "--index", "-", stdin=result.diff)
    assert git(other, git_dir, "write-tree") == result.tree_id == tree_id(other)


@pytest.mark.parametrize(
    ("package", "topic"),
    [(package, topic.name) for package in EDITED for topic in series_of(package).topics],
)
def test_each_topic_applies_alone_and_only_to_its_version(fresh: Fresh, package: str, topic: str) -> None:
    series, tree = series_of(package), fresh(package)
    before = tree_id(tree)
    other = apply_series(series, tree, version="0.0.1", topic=topic)
    assert [entry.state for entry in other.topics] == [TopicState.NOT_FOR_VERSION]
    assert other.tree_id == before
    assert apply_series(series, tree, version=VERSIONS[package], topic=topic).require() != before


def test_a_renamed_anchor_is_drift_and_leaves_the_tree_alone(fresh: Fresh) -> None:
    tree = fresh("sglang")
    path = tree / "sglang/srt/arg_groups/speculative_hook.py"
    path.write_bytes(path.read_bytes().replace(b"_disable_overlap_schedule_for_cpu", b"_no_overlap_schedule_on_cpu"))
    before = tree_id(tree)
    result = apply_series(series_of("sglang"), tree, version="0.5.23")
    assert [topic.state for topic in result.topics] == [TopicState.APPLIED, TopicState.DRIFTED]
    assert "`_no_overlap_schedule_on_cpu` (line " in result.findings[0].message
    assert tree_id(tree) == before


def test_the_version_of_the_tree_is_read(unpacked: dict[str, Path]) -> None:
    assert tree_version(unpacked["sglang"]) == "0.5.23"
