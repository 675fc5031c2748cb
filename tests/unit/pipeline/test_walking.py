"""Which commits are locked: kept, moved, walked back to; in a real repository, without a package index."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
from git_repositories import Repository, make_repository
from toy_series import WORKER, Bench, edit

from sglforge.base.console import Console
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedSource
from sglforge.config.model import GitSource
from sglforge.errors import LockError
from sglforge.patches import apply
from sglforge.pipeline import walking
from sglforge.pipeline.gitlocking import Move, Moved, lock_git
from sglforge.pipeline.request import Request

GONE = WORKER.replace("def run", "def go")


@pytest.fixture(autouse=True)
def own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A series of one topic, which is for a method ``run``."""
    made = Bench(root=tmp_path / "catalog", tree=tmp_path / "tree")
    made.topic("louder", edit("prepend-to-body", "log", "Worker.run"), log="print(batch)\n")
    return made


@pytest.fixture
def upstream(tmp_path: Path) -> Repository:
    repository = make_repository(tmp_path / "upstream")
    repository.commit({"pkg/worker.py": WORKER, "pkg/__init__.py": "", "docs/a": "a"}, "first")
    repository.git("tag", "v1.0")
    return repository


class Stand:
    """Locks packages of one repository as the verb does."""

    def __init__(self, bench: Bench, repository: Repository, workspace: Path) -> None:
        self.bench, self.repository, self.workspace = bench, repository, Workspace(root=workspace)
        self.previous: Mapping[str, LockedSource] = {}
        self.sources = {
            name: GitSource(kind="git", url=repository.url, ref="main", source_paths=[path])
            for name, path in (("toy", "pkg"), ("docs", "docs"))
        }

    def lock(self, **options: object) -> Moved:
        root = self.bench.root
        request = Request(argv=(), catalog_root=root, workspace=self.workspace, options=MappingProxyType(options))
        moved = lock_git(
            self.sources, self.previous, request=request, console=Console(stream=io.StringIO()),
            selection=cast("Any", SimpleNamespace(catalog=SimpleNamespace(root=root))),
        )  # fmt: skip
        self.previous = moved.sources
        return moved

    @property
    def commits(self) -> set[str]:
        return {locked.commit for locked in self.previous.values() if locked.kind == "git"}


@pytest.fixture
def stand(bench: Bench, upstream: Repository, tmp_path: Path) -> Stand:
    return Stand(bench, upstream, tmp_path / "ws")


def only(moved: Moved) -> Move:
    (move,) = moved.moves
    return move


def test_a_commit_is_kept_until_it_is_to_move(stand: Stand, upstream: Repository) -> None:
    first = upstream.git("rev-parse", "HEAD")
    assert only(stand.lock()).old is None
    second = upstream.commit({"docs/a": "b"})
    assert stand.lock().moves == ()
    assert stand.commits == {first}
    move = only(stand.lock(update=[]))
    assert (move.old, move.new, move.commits) == (first, second, 1)
    assert stand.commits == {second}
    third = upstream.commit({"docs/a": "c"})
    move = only(stand.lock(update=["docs"]))
    assert (move.packages, move.changed) == (("toy", "docs"), ("docs",))
    assert stand.commits == {third}
    upstream.commit({"pkg/worker.py": GONE})
    assert stand.lock(update=["numpy"]).moves == ()


def test_nobody_is_asked_when_nothing_is_to_move(stand: Stand, upstream: Repository, tmp_path: Path) -> None:
    stand.lock()
    upstream.path.rename(tmp_path / "moved")
    assert stand.lock().moves == ()


def test_other_paths_of_the_same_ref_keep_the_commit(stand: Stand, upstream: Repository) -> None:
    stand.lock()
    first = stand.commits
    upstream.commit({"docs/a": "b"})
    stand.sources["docs"] = stand.sources["docs"].model_copy(update={"source_paths": ["docs/a"]})
    stand.sources["more"] = stand.sources["docs"].model_copy(update={"source_paths": ["pkg/__init__.py"]})
    assert stand.lock().moves == ()
    assert stand.commits == first
    docs = stand.previous["docs"]
    assert docs.kind == "git"
    assert [entry.path for entry in docs.paths] == ["docs/a"]


def test_another_ref_is_locked_anew(stand: Stand, upstream: Repository) -> None:
    stand.lock()
    upstream.git("branch", "other")
    newer = upstream.commit({"docs/a": "b"})
    upstream.git("branch", "--force", "other", newer)
    for name, source in stand.sources.items():
        stand.sources[name] = source.model_copy(update={"ref": "other"})
    assert only(stand.lock()).new == newer


def test_packages_that_were_locked_apart_come_together(stand: Stand, upstream: Repository) -> None:
    stand.lock()
    before = stand.previous["toy"]
    upstream.commit({"docs/a": "b"})
    stand.lock(update=[])
    stand.previous = {**stand.previous, "toy": before}
    assert len(stand.commits) == 2
    stand.lock()
    assert len(stand.commits) == 1


def test_walk_back_goes_to_the_newest_commit_that_the_series_applies_to(stand: Stand, upstream: Repository) -> None:
    good = upstream.commit({"docs/a": "b"})
    bad = upstream.commit({"pkg/worker.py": GONE})
    also_bad = upstream.commit({"docs/a": "c"})
    moved = stand.lock(update=[], walk_back=100)
    move = only(moved)
    assert (move.new, stand.commits) == (good, {good})
    (group,) = move.skipped
    assert (group.newest, group.oldest, group.commits, group.tried) == (also_bad, bad, 2, 1)
    assert group.why[0].startswith("toy/louder: drifted: ")
    assert "run" in group.why[0]
    assert any(line.startswith(f"skipped {also_bad[:12]}..{bad[:12]} (2 commits)") for line in move.lines())
    assert move.to_json()["new"] == good


def test_walk_back_takes_the_tip_when_it_applies(stand: Stand, upstream: Repository) -> None:
    upstream.commit({"docs/a": "b"})
    move = only(stand.lock(update=[], walk_back=100))
    assert (move.new, move.skipped) == (upstream.git("rev-parse", "HEAD"), ())


def test_walk_back_skips_commits_that_lack_a_path(stand: Stand, upstream: Repository) -> None:
    good = upstream.git("rev-parse", "HEAD")
    upstream.git("rm", "-r", "-q", "docs")
    upstream.commit({"other": "x"})
    move = only(stand.lock(update=[], walk_back=100))
    assert move.new == good
    assert move.skipped[0].why[0] == "git-path-missing: it has no docs"


def test_walk_back_says_when_there_is_none_and_keeps_to_its_limit(stand: Stand, upstream: Repository) -> None:
    stand.lock()
    before = stand.commits
    for number in range(5):
        upstream.commit({"pkg/worker.py": GONE + f"# {number}\n"})
    with pytest.raises(LockError, match="to none of the 3 newest commits") as caught:
        stand.lock(update=[], walk_back=3)
    assert caught.value.exit_code == 3
    assert stand.commits == before
    (finding,) = caught.value.findings
    assert finding.message.startswith("3 commits of main: toy/louder: drifted")
    assert only(stand.lock(update=[], walk_back=6)).new in before


def test_walk_back_asks_for_the_contracts_too(stand: Stand, upstream: Repository, bench: Bench) -> None:
    """The edits apply to the newest commit, but what they read is not there any more."""
    bench.topic("reads", edit("append-to-body", "read", "Worker.__init__"), read="self.twice = self.size + width\n")
    good = upstream.commit({"pkg/worker.py": f"width = 2\n{WORKER}"})
    upstream.commit({"pkg/worker.py": WORKER})
    move = only(stand.lock(update=[], walk_back=5))
    assert move.new == good
    assert "width" in move.skipped[0].why[0]


def test_walk_back_follows_first_parents_only(stand: Stand, upstream: Repository) -> None:
    good = upstream.git("rev-parse", "HEAD")
    upstream.git("checkout", "--quiet", "-b", "side")
    upstream.commit({"docs/a": "side"})
    upstream.git("checkout", "--quiet", "main")
    upstream.commit({"pkg/worker.py": GONE})
    upstream.git("merge", "--quiet", "--no-ff", "side", "--message", "merged")
    assert only(stand.lock(update=[], walk_back=10)).new == good


def test_the_tree_is_moved_and_only_the_series_is_tried(
    stand: Stand, upstream: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of commits with the same source one is tried, also when others lie between them."""
    for text in (GONE, GONE + "\n", GONE, GONE + "\n"):
        upstream.commit({"pkg/worker.py": text})
    tried = []
    real = apply.apply_series

    def counted(*args: Any, **more: Any) -> Any:
        tried.append(args)
        return real(*args, **more)

    monkeypatch.setattr(walking, "apply_series", counted)
    stand.lock(update=[], walk_back=10)
    assert len(tried) == 3


def test_a_submodule_is_there_when_a_series_is_tried(stand: Stand, upstream: Repository, tmp_path: Path) -> None:
    module = make_repository(tmp_path / "module")
    module.commit({"extra.py": "def extra():\n    return 1\n"})
    upstream.git("submodule", "--quiet", "add", "../module", "pkg/module")
    upstream.commit()
    file = "pkg/module/extra.py"
    stand.bench.topic("inner", edit("prepend-to-body", "two", "extra", file=file, leaves="x"), two="print(1)\n")
    topic = stand.bench.folder / "inner/patch.toml"
    topic.write_text(topic.read_text().replace('leaves = "x"\n', ""))
    move = only(stand.lock(update=[], walk_back=3))
    assert (move.new, move.skipped) == (upstream.git("rev-parse", "HEAD"), ())
