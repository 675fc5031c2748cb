"""Which environments nobody needs: a name, a lock, a running verb or a process keeps one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglforge.base.exclusive import exclusive
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.provision.install import environment_lock
from sglforge.provision.retire import environments, retire

DAY_S = 24 * 3600.0
ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def make(workspace: Workspace, key: str, *names: str, days_old: float = 99, built: str = "a" * 64) -> Path:
    folder = workspace.environments / key
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "receipt.json").write_text(f'{{"built": [{{"name": "toy", "build_key": "{built}"}}]}}')
    (folder / "venv/bin/python").symlink_to(sys.executable)
    for name in names:
        (workspace.environments / name).symlink_to(key)
    when = time.time() - days_old * DAY_S
    for path in (folder / "receipt.json", folder / "venv", folder):
        os.utime(path, (when, when))
    return folder


def gone(workspace: Workspace, *, live: frozenset[str] = frozenset(), dry_run: bool = False) -> list[str]:
    found = retire(workspace, keep_s=14 * DAY_S, now=time.time(), live=live, dry_run=dry_run)
    assert {item.kind for item in found} <= {"environment"}
    return [item.path.name for item in found]


def test_what_is_there_is_known_with_names_and_build_keys(workspace: Workspace) -> None:
    assert environments(workspace) == ()
    folder = make(workspace, ONE, "main.cpu", "candidate")
    make(workspace, OTHER, built="b" * 64)
    (workspace.environments / "notes").mkdir()
    (workspace.environments / "broken").symlink_to("nowhere")
    first, second = environments(workspace)
    assert (first.folder, set(first.names)) == (folder, {"main.cpu", "candidate"})
    assert set(map(str, first.keys)) == {"a" * 64}
    assert (second.names, second.label) == ((), "222222222222 (no name points at it)")


def test_a_damaged_receipt_still_names_its_wheels(workspace: Workspace) -> None:
    folder = make(workspace, ONE)
    receipt = folder / "receipt.json"
    receipt.write_text(receipt.read_text()[:-3])
    assert environments(workspace)[0].keys == {"a" * 64}
    receipt.unlink()
    assert environments(workspace)[0].keys == frozenset()


def test_old_environments_without_a_name_go(workspace: Workspace) -> None:
    make(workspace, ONE, "main.cpu")
    make(workspace, OTHER)
    make(workspace, "3" * 64, days_old=2)
    assert gone(workspace, dry_run=True) == [OTHER]
    assert (workspace.environments / OTHER).is_dir()
    (workspace.environments / f".{'4' * 64}.123.tmp/venv").mkdir(parents=True)
    assert sorted(gone(workspace)) == [f".{'4' * 64}.123.tmp", OTHER]
    assert sorted(path.name for path in workspace.environments.iterdir()) == [ONE, "3" * 64, "main.cpu"]


def test_one_that_is_made_or_proven_now_stays(workspace: Workspace) -> None:
    make(workspace, ONE)
    with exclusive(environment_lock(workspace, BuildKey(ONE)), waiting=pytest.fail):
        assert gone(workspace) == []
    assert gone(workspace, live=frozenset({ONE})) == []
    assert gone(workspace) == [ONE]


def test_one_that_a_process_runs_from_stays(workspace: Workspace) -> None:
    folder = make(workspace, ONE)
    argv = [str(folder / "venv/bin/python"), "-c", "print('runs', flush=True); input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "runs\n"
        assert gone(workspace) == []
        child.communicate("\n")
    assert gone(workspace) == [ONE]
