"""Mirrors in every state that runs and their ends leave them in."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from git_locking import lock_of, mirror_here, source_of
from git_repositories import Repository, git, make_repository

from sglforge.base.cancel import Cancellation, Cancelled
from sglforge.base.workspace import Workspace
from sglforge.errors import FetchError
from sglforge.sources.git import pin
from sglforge.sources.git.bring import bring_files
from sglforge.sources.git.export import export
from sglforge.sources.git.fetch import fetch_proven

LOCK = """
import sys
from pathlib import Path
from sglforge.base.cancel import Cancellation, Cancelled
from sglforge.base.workspace import Workspace
from sglforge.errors import FetchError
from sglforge.config.model import GitSource
from sglforge.sources.git import pin
from sglforge.sources.git.fetch import fetch_proven
url, ref, root = sys.argv[1:]
workspace = Workspace(root=Path(root))
source = GitSource(kind="git", url=url, ref=ref)
commit = pin.newest(url, ref, workspace=workspace, waiting=lambda _: None)
locked = pin.pin_commit(source, commit, package="toy", workspace=workspace, waiting=lambda _: None)
fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=lambda _: None, command="c")
print(locked.commit)
"""


def proven(source_repository: Repository, workspace: Workspace) -> str:
    locked = lock_of(source_of(source_repository), workspace)
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    return locked.commit


def start(repository: Repository, workspace: Workspace) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", LOCK, repository.url, "main", str(workspace.root)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def leftovers(workspace: Workspace) -> list[str]:
    found = [path for path in (workspace.sources / "git").rglob("*") if path.name.endswith((".lock", ".tmp"))]
    found += (workspace.sources / "git").rglob("tmp_*")
    return [path.name for path in found]


def test_what_a_killed_writer_left_is_removed(upstream: Repository, workspace: Workspace) -> None:
    first = proven(upstream, workspace)
    path = mirror_here(upstream, workspace).path
    for name in ("config.lock", "packed-refs.lock", "HEAD.lock", "refs/locked/x.lock", "shallow.lock"):
        (path / name).touch()
    (path / "refs/tags").mkdir(exist_ok=True)
    (path / "refs/tags/v1.0.lock").touch()
    (path / "objects/pack/tmp_pack_x").write_bytes(b"PACK")
    (path / "objects/aa").mkdir(exist_ok=True)
    (path / "objects/aa/tmp_obj_x").touch()
    draft = path.with_name(f".{path.name}.1-ab.tmp")
    (draft / "objects").mkdir(parents=True)
    second = upstream.commit({"python/engine.py": "ONE = 2\n"})
    assert proven(upstream, workspace) == second != first
    assert leftovers(workspace) == []


@pytest.mark.parametrize("spoiled", ["config", "HEAD", "objects", "url"])
def test_a_mirror_that_git_does_not_know_is_put_aside(upstream: Repository, workspace: Workspace, spoiled: str) -> None:
    proven(upstream, workspace)
    path = mirror_here(upstream, workspace).path
    if spoiled == "objects":
        (path / "objects").rename(path / "gone")
    elif spoiled == "url":
        (path / "config").write_text((path / "config").read_text().replace("upstream", "elsewhere"))
    else:
        (path / spoiled).write_bytes(b"\0\1")
    assert proven(upstream, workspace) == upstream.git("rev-parse", "HEAD")
    assert path.with_name(f"{path.name}.damaged").is_dir()


def test_a_mirror_whose_objects_are_gone_is_filled_again(upstream: Repository, workspace: Workspace) -> None:
    proven(upstream, workspace)
    path = mirror_here(upstream, workspace).path
    for file in path.glob("objects/pack/*"):
        file.unlink()
    assert proven(upstream, workspace) == upstream.git("rev-parse", "HEAD")


@pytest.mark.timeout(240)
def test_kill_9_at_any_time_leaves_a_mirror_that_the_next_run_uses(upstream: Repository, workspace: Workspace) -> None:
    upstream.commit({f"many/{number}": os.urandom(2000) for number in range(300)})
    chance = random.Random(5)
    for _ in range(12):
        process = start(upstream, workspace)
        time.sleep(chance.uniform(0.1, 1.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert proven(upstream, workspace) == upstream.git("rev-parse", "HEAD")
    assert leftovers(workspace) == []


@pytest.mark.timeout(240)
def test_several_runs_at_once_share_one_mirror(upstream: Repository, workspace: Workspace, tmp_path: Path) -> None:
    head = upstream.commit({f"many/{number}": os.urandom(2000) for number in range(100)})
    processes = [start(upstream, workspace) for _ in range(4)]
    for process in processes:
        out, err = process.communicate()
        assert (out.strip(), process.returncode) == (head, 0), err
    locked = lock_of(source_of(upstream, "many"), workspace)
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda n: export(locked, tmp_path / f"out{n}", workspace=workspace), range(4)))
    assert {len(list((tree / "many").iterdir())) for tree in trees} == {100}


def test_nothing_in_the_environment_leads_to_another_repository(
    upstream: Repository, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks of git run with these variables, and sglforge may run in one."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    commit = pin.newest(upstream.url, "main", workspace=workspace, waiting=pytest.fail)
    assert commit == proven(upstream, workspace)
    assert not (tmp_path / "elsewhere").exists()


def test_an_origin_in_the_configuration_of_the_user_is_not_ours(
    upstream: Repository, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other")
    other.commit({"x": "somebody else's"}, "theirs")
    (tmp_path / "gitconfig").write_text(
        f'[remote "origin"]\n\turl = {other.url}\n\tfetch = +refs/heads/*:refs/heads/*\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    assert proven(upstream, workspace) == upstream.git("rev-parse", "main")


def test_what_asks_can_be_ended(workspace: Workspace) -> None:
    """A server that says nothing, and a run that is cancelled: git is ended at once."""
    cancellation = Cancellation()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        url = f"git://127.0.0.1:{server.getsockname()[1]}/x.git"
        work = pool.submit(
            bring_files, url, "a" * 40, (), workspace=workspace, waiting=pytest.fail, cancellation=cancellation
        )
        server.accept()
        start = time.monotonic()
        cancellation.cancel()
        with pytest.raises(Cancelled):
            work.result(timeout=30)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("wanted", ["main", "HEAD", "commit"])
def test_an_origin_whose_history_is_cut_off_is_refused(
    tmp_path: Path, upstream: Repository, workspace: Workspace, wanted: str
) -> None:
    for number in range(3):
        upstream.commit({"a": str(number)})
    git("clone", "-q", "--depth", "2", upstream.url, tmp_path / "clone", cwd=tmp_path)
    url = (tmp_path / "clone").as_uri()
    start = time.monotonic()
    ref = git("rev-parse", "HEAD", cwd=tmp_path / "clone") if wanted == "commit" else wanted
    with pytest.raises(FetchError) as caught:
        pin.newest(url, ref, workspace=workspace, waiting=pytest.fail)
    assert (caught.value.code, "--unshallow" in caught.value.hint) == ("git-incomplete", True)
    with pytest.raises(FetchError, match="git-incomplete"):  # what it left in the mirror is not taken for whole
        pin.newest(url, "main", workspace=workspace, waiting=pytest.fail)
    assert time.monotonic() - start < 60  # each question for a missing commit once started another git
    git("fetch", "-q", "--unshallow", "--tags", cwd=tmp_path / "clone")
    assert pin.newest(url, "main", workspace=workspace, waiting=pytest.fail) == upstream.git("rev-parse", "HEAD")


def test_an_origin_that_stops_leaving_out_files_sends_them_all(upstream: Repository, workspace: Workspace) -> None:
    lines = [f"{number * 7919}\n" for number in range(20000)]
    upstream.commit({"python/table": "".join(lines)})
    pin.newest(upstream.url, "main", workspace=workspace, waiting=pytest.fail)
    lines[100] = "another line\n"
    commit = upstream.commit({"python/table": "".join(lines)})
    upstream.git("gc", "--quiet")  # what is sent is then a difference to a file that the mirror does not hold
    upstream.git("config", "uploadpack.allowFilter", "false")
    assert pin.newest(upstream.url, "main", workspace=workspace, waiting=pytest.fail) == commit
    locked = lock_of(source_of(upstream, "python"), workspace)
    export(locked, workspace.root / "out", workspace=workspace)
    assert (workspace.root / "out/python/table").read_text() == "".join(lines)


def test_no_hook_of_the_user_runs_in_a_mirror(
    tmp_path: Path, own_git: Path, upstream: Repository, workspace: Workspace
) -> None:
    (tmp_path / "hooks").mkdir()
    for name in ("reference-transaction", "post-index-change", "watch"):
        (tmp_path / "hooks" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
        (tmp_path / "hooks" / name).chmod(0o755)
    own_git.write_text(f"[core]\nhooksPath = {tmp_path}/hooks\nfsmonitor = {tmp_path}/hooks/watch\n")
    locked = lock_of(source_of(upstream, "python"), workspace)
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    assert not (tmp_path / "hook-ran").exists()
