"""What may go outside the store: archives, trees, runs, working folders and lock files."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from sglforge.base import runrecord
from sglforge.base.exclusive import take
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.pipeline.tidying import locked_hashes, tidy

DAY_S = 24 * 3600.0
LOCKED, FREE, USED = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def old(path: Path, days: float = 99) -> Path:
    """Make a file that was last changed so many days ago, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    when = time.time() - days * DAY_S
    for one in (path, path.parent):
        os.utime(one, (when, when))
    return path


def gone(workspace: Workspace, *, days: float = 14, dry_run: bool = False) -> list[tuple[str, str]]:
    found = tidy(
        workspace,
        locked=frozenset({LOCKED}),
        live=frozenset({USED}),
        keep_s=days * DAY_S,
        now=time.time(),
        dry_run=dry_run,
    )
    return [(item.kind, item.path.name) for item in found]


def test_every_hash_of_every_lock_counts(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/a.cpu.lock.toml").write_text(f'files = [{{ name = "x", sha256 = "{LOCKED}" }}]\n')
    (tmp_path / "locks/releases.toy.toml").write_text(f'broken = [ "{USED}"')
    assert locked_hashes(tmp_path) == {LOCKED, USED}
    assert locked_hashes(tmp_path / "nowhere") == frozenset()


@pytest.mark.parametrize(("parent", "kind"), [("sources", "archive"), ("trees", "tree")])
def test_old_archives_and_trees_that_no_lock_names_go(parent: str, kind: str, workspace: Workspace) -> None:
    for name in (LOCKED, USED, FREE, "git", "notes"):
        old(workspace.root / parent / name / "file")
    old(workspace.root / parent / ("4" * 64) / "file", days=1)
    assert gone(workspace, dry_run=True) == [(kind, FREE)]
    assert gone(workspace) == [(kind, FREE)]
    left = {path.name for path in (workspace.root / parent).iterdir()}
    assert left == {LOCKED, USED, "git", "notes", "4" * 64}


def test_mirrors_stay_but_for_what_was_not_finished_or_put_aside(workspace: Workspace) -> None:
    git, (draft, new) = workspace.sources / "git", (f".{FREE}.git.{number}-d5305255.tmp" for number in (7, 8))
    for name in (f"{LOCKED}.git", f"{FREE}.git", f"{FREE}.git.damaged", draft):
        old(git / name / "HEAD")
    old(git / new / "HEAD", days=1)
    assert gone(workspace) == [("mirror", draft), ("mirror", f"{FREE}.git.damaged")]
    assert {path.name for path in git.iterdir()} == {f"{LOCKED}.git", f"{FREE}.git", new}


def test_an_archive_that_is_being_fetched_stays(workspace: Workspace) -> None:
    part = old(workspace.sources / FREE / ".toy.whl.part")
    with part.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert gone(workspace) == []
    assert gone(workspace) == [("archive", FREE)]


def test_what_was_touched_within_the_hour_stays_whatever_is_asked(workspace: Workspace) -> None:
    old(workspace.sources / FREE / "file", days=0.02)
    assert gone(workspace, days=0) == []
    old(workspace.sources / FREE / "file", days=0.1)
    assert gone(workspace, days=0) == [("archive", FREE)]


def test_old_runs_go_and_the_latest_stays(workspace: Workspace) -> None:
    records = [runrecord.start(workspace.runs) for _ in range(3)]
    for record in records:
        record.event("started")
        old(record.folder / "logs" / "toy.build.log")
        old(record.folder / "run.json")
        for path in (record.folder / "events.jsonl", record.folder):
            os.utime(path, (0, 0))
    os.utime(records[1].folder / "events.jsonl")
    assert gone(workspace) == [("run", records[0].folder.name)]
    assert (workspace.runs / "latest").resolve() == records[2].folder


def test_abandoned_working_folders_go(workspace: Workspace) -> None:
    old(workspace.scratch / "kept-1-abcd" / "file")
    (workspace.scratch / "killed-2-abcd.work").mkdir()
    with working_folder(workspace, "live") as live:
        (workspace.scratch / "killed-3-abcd.work").mkdir()
        old(workspace.scratch / "kept-3-abcd" / "file", days=1)
        assert {name for _, name in gone(workspace, dry_run=True)} == {"killed-3-abcd.work"}
        assert gone(workspace) == [("scratch", "killed-3-abcd.work")]
        assert live.is_dir()


def test_lock_files_that_nobody_holds_go(workspace: Workspace) -> None:
    held, free = old(workspace.locks / "key-a.lock"), old(workspace.locks / "key-b.lock")
    lock = take(held)
    assert lock
    old(workspace.locks / "store.lock")
    old(workspace.locks / "key-b.holder")
    assert gone(workspace) == []
    assert held.exists()
    assert {path.name for path in workspace.locks.iterdir()} == {"key-a.lock", "store.lock"}
    assert not free.exists()
    os.close(lock)
