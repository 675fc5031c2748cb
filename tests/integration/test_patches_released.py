"""The shipped topics on the very archives that the CPU locks name."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import patching
import pytest
from calling import ROOT
from patching import Put

from sglforge.base import proc
from sglforge.base.treeid import tree_id
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedArchive, read_lock
from sglforge.errors import Severity
from sglforge.host import package_index
from sglforge.patches.apply import apply_series
from sglforge.patches.model import PythonEdit, TomlEdit
from sglforge.patches.result import TopicState
from sglforge.patches.series import Series, load_series
from sglforge.patches.topic import Topic
from sglforge.sources.fetch import fetch
from sglforge.sources.unpack import unpack
from sglforge.trees.version import tree_version

pytestmark = pytest.mark.integration

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """An archive that a lock names, of a package that has patches."""

    package: str
    locked: LockedArchive

    @property
    def version(self) -> str:
        return self.locked.version


RELEASED = {
    f"{package}-{locked.version}": Released(package=package, locked=locked)
    for path in sorted((ROOT / "locks").glob("*.cpu.lock.toml"))
    for package, locked in read_lock(path).sources.items()
    if isinstance(locked, LockedArchive) and (ROOT / "patches" / package).is_dir()
}

Fresh = Callable[[str], Path]


@pytest.fixture(scope="session")
def unpacked(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """A function that returns the tree of an archive as it came."""
    trees: dict[str, Path] = {}

    def bring(name: str) -> Path:
        if name not in trees:
            source = RELEASED[name]
            archive = fetch(
                source.locked,
                package=source.package,
                python_minor=MINOR,
                locations=package_index.read(),
                workspace=Workspace(root=workspace),
            )
            trees[name] = unpack(archive.path, tmp_path_factory.mktemp("unpacked") / name)
        return trees[name]

    return bring


@pytest.fixture
def fresh(unpacked: Fresh, tmp_path: Path) -> Fresh:
    """A function that copies the tree of an archive."""

    def copy(name: str) -> Path:
        folder = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        return Path(shutil.copytree(unpacked(name), folder, symlinks=True))

    return copy


def series_of(name: str) -> Series:
    series = load_series(ROOT, RELEASED[name].package)
    assert series is not None
    return series


def meant_for(name: str) -> list[Topic]:
    return [topic for topic in series_of(name).topics if topic.standing(RELEASED[name].version) is None]


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


def test_the_releases_with_a_cpu_stack_are_here() -> None:
    assert RELEASED.keys() >= {"sglang-0.5.9", "sglang-0.5.12.post1", "sglang-0.5.23", "torchvision-0.28.0"}


@pytest.mark.parametrize("name", RELEASED)
def test_every_topic_applies_and_nothing_else_changes(fresh: Fresh, name: str) -> None:
    series, tree, version = series_of(name), fresh(name), RELEASED[name].version
    before = contents(tree)
    result = apply_series(series, tree, version=version)
    assert [finding for finding in result.findings if finding.severity is Severity.ERROR] == []
    applied = [topic for topic in result.topics if topic.state is TopicState.APPLIED]
    assert [topic.name for topic in applied] == [topic.name for topic in meant_for(name)]
    after = contents(tree)
    assert after.keys() == before.keys()
    edits = [edit for topic in meant_for(name) for edit, _ in topic.edits(version)]
    meant = {file for edit in edits if isinstance(edit, PythonEdit) for file in edit.file}
    changed = {file for file in after if after[file] != before[file]}
    assert changed == meant & before.keys() != set()
    for topic in applied:
        assert any(topic.evidence.encode() in after[file] for file in topic.files)
    again = apply_series(series, tree, version=version)
    assert {topic.state for topic in again.topics if topic.name in {entry.name for entry in applied}} == {
        TopicState.CONFLICT
    }
    assert contents(tree) == after


@pytest.mark.parametrize("name", RELEASED)
def test_git_makes_the_same_tree_of_the_diff(fresh: Fresh, name: str, tmp_path: Path) -> None:
    tree, other, git_dir = fresh(name), fresh(name), tmp_path / "repository.git"
    proc.run(["git", "init", "--quiet", "--bare", git_dir])
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
    result = apply_series(series_of(name), tree, version=RELEASED[name].version)
    git(other, git_dir, "add", "--force", "--all", ".")
    git(other, git_dir, "apply", "--index", "-", stdin=result.diff)
    assert git(other, git_dir, "write-tree") == result.tree_id == tree_id(other)


@pytest.mark.parametrize(
    ("name", "topic"),
    [(name, topic.name) for name in RELEASED for topic in meant_for(name)],
)
def test_each_topic_applies_alone_and_only_to_its_version(fresh: Fresh, name: str, topic: str) -> None:
    series, tree = series_of(name), fresh(name)
    before = tree_id(tree)
    other = apply_series(series, tree, version="0.0.1", topic=topic)
    assert [entry.state for entry in other.topics] == [TopicState.NOT_FOR_VERSION]
    assert other.tree_id == before
    assert apply_series(series, tree, version=RELEASED[name].version, topic=topic).require() != before


def test_a_renamed_anchor_is_drift_and_leaves_the_tree_alone(fresh: Fresh) -> None:
    tree = fresh("sglang-0.5.23")
    path = tree / "sglang/srt/arg_groups/speculative_hook.py"
    path.write_bytes(path.read_bytes().replace(b"_disable_overlap_schedule_for_cpu", b"_no_overlap_schedule_on_cpu"))
    before = tree_id(tree)
    result = apply_series(series_of("sglang-0.5.23"), tree, version="0.5.23")
    states = {topic.name: topic.state for topic in result.topics}
    assert states["cpu-attention-without-amx"] is TopicState.APPLIED
    assert states["cpu-overlap-with-speculation"] is TopicState.DRIFTED
    (fault,) = [finding for finding in result.findings if finding.severity is Severity.ERROR]
    assert "`_no_overlap_schedule_on_cpu` (line " in fault.message
    assert tree_id(tree) == before


@pytest.mark.parametrize("name", [name for name in RELEASED if name.startswith("sglang-")])
def test_the_version_of_the_tree_is_read(unpacked: Fresh, name: str) -> None:
    assert tree_version(unpacked(name)) == RELEASED[name].version


WORKERS = "sglang/srt/speculative/eagle_worker_v2.py"
SPECULATIVE = [name for name in RELEASED if name.startswith("sglang-")]


@pytest.mark.parametrize("name", SPECULATIVE)
def test_the_seed_crash_is_refused_with_both_classes(unpacked: Fresh, name: str, tmp_path: Path) -> None:
    read = "if 0 < self.batch_limit:\n    pass\n"
    edits = [
        Put("prepend-to-body", "EAGLEWorkerV2.forward_batch_generation", read, WORKERS),
        Put("append-to-body", "EagleDraftWorker.__init__", "self.batch_limit = 1\n", WORKERS),
    ]
    crash = patching.series_of(tmp_path / "crash", *edits)
    result = apply_series(crash, unpacked(name), version=RELEASED[name].version, write=False)
    (finding,) = result.findings
    assert finding.code == "patch-attribute-unset"
    assert "`EAGLEWorkerV2.forward_batch_generation`" in finding.message
    assert "set in `EagleDraftWorker.__init__`" in finding.message
    assert finding.message.endswith("another class: `EAGLEWorkerV2` and `StandaloneWorkerV2` may lack it")

    cure = [
        edits[0],
        Put("add-class-attribute", "EAGLEWorkerV2", "batch_limit = 0\n", WORKERS),
        Put("prepend-to-body", "EAGLEWorkerV2.__init__", "self.batch_limit = 1\n", WORKERS),
    ]
    result = apply_series(
        patching.series_of(tmp_path / "cure", *cure), unpacked(name), version=RELEASED[name].version, write=False
    )
    (finding,) = result.findings
    assert finding.code == "patch-attribute-unassigned-in-subclass"
    assert "`StandaloneWorkerV2`" in finding.message


@pytest.mark.parametrize(
    ("left_out", "codes"),
    [
        ({"payload/worker_defaults.py"}, {"patch-attribute-unset"}),
        ({"payload/worker_start.py"}, {"patch-attribute-unset"}),
        ({"payload/scheduler_confirm.py"}, {"patch-evidence-missing"}),
        ({"payload/args_flags.py"}, {"patch-flag-missing"}),
    ],
)
def test_the_threshold_without_one_of_its_safeguards_is_refused(
    unpacked: Fresh, left_out: set[str], codes: set[str]
) -> None:
    topic = series_of("sglang-0.5.9").named("speculation-threshold")
    kept = [edit for edit in topic.file.edits if not isinstance(edit, TomlEdit) and edit.payload not in left_out]
    if left_out == {"payload/worker_start.py"}:
        kept = [edit for edit in kept if edit.payload != "payload/worker_defaults.py"]
    lame = dataclasses.replace(topic, file=topic.file.model_copy(update={"edits": kept}))
    series = Series(package="sglang", topics=(lame,))
    result = apply_series(series, unpacked("sglang-0.5.9"), version="0.5.9", write=False)
    assert {finding.code for finding in result.findings} == codes


def test_the_threshold_that_standalone_does_not_take_is_refused(unpacked: Fresh) -> None:
    topic = series_of("sglang-0.5.9").named("speculation-threshold")
    kept = [edit for edit in topic.file.edits if getattr(edit, "anchor", "") != "StandaloneWorkerV2.__init__"]
    series = Series(
        package="sglang",
        topics=(dataclasses.replace(topic, file=topic.file.model_copy(update={"edits": kept})),),
    )
    result = apply_series(series, unpacked("sglang-0.5.9"), version="0.5.9", write=False)
    assert {finding.code for finding in result.findings} == {"patch-attribute-unassigned-in-subclass"}
    assert all("`StandaloneWorkerV2`" in finding.message for finding in result.findings)
