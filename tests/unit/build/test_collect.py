"""What gc removes from a store, and what it never does: also beside runs that publish and use wheels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stores import key_of, overwrite, put

from sglforge.base.workspace import Workspace
from sglforge.build.audit import audit
from sglforge.build.collect import DAY_S, Collected, Kept, collect
from sglforge.build.store import entry_keys, entry_path, keys, lookup, verify
from sglforge.build.uses import in_use, using


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def gc(workspace: Workspace, kept: Kept | None = None, *, days: float = 14, dry_run: bool = False) -> Collected:
    return collect(workspace, lambda: kept or Kept(), keep_s=days * DAY_S, now=time.time(), dry_run=dry_run)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_an_empty_workspace_has_nothing_to_remove(workspace: Workspace) -> None:
    assert gc(workspace) == Collected(removed=(), kept={})


def test_old_wheels_that_nothing_refers_to_go_with_their_objects(workspace: Workspace) -> None:
    put(workspace, 1, days_old=15)
    put(workspace, 2, days_old=13)
    result = gc(workspace)
    assert set(keys(workspace)) == {key_of(2)}
    assert [item.kind for item in result.removed] == ["entry", "object"]
    assert sum(item.size for item in result.removed) > 0
    assert dict(result.kept) == {key_of(2): "it was used lately"}
    assert audit(workspace).findings == ()


def test_what_is_referred_to_stays_however_old_it_is(workspace: Workspace) -> None:
    for number in range(4):
        put(workspace, number, days_old=1000, package=f"toy{number}")
    kept = Kept(keys={key_of(0): "environment e was made from it"}, packages={"toy1": "nobody knows"})
    with using(workspace, [key_of(2)]):
        os.utime(entry_path(workspace.store, key_of(2)), (0, 0))
        result = gc(workspace, kept, days=0)
    assert set(keys(workspace)) == {key_of(0), key_of(1), key_of(2)}
    assert dict(result.kept) == {
        key_of(0): "environment e was made from it",
        key_of(1): "nobody knows",
        key_of(2): "a running command works with it",
    }


def test_an_object_stays_as_long_as_one_entry_needs_it(workspace: Workspace) -> None:
    put(workspace, 1, content=b"same", days_old=99)
    stored = put(workspace, 2, content=b"same")
    gc(workspace)
    assert set(keys(workspace)) == {key_of(2)}
    assert verify(stored) == ()


def test_a_dry_run_says_the_same_and_removes_nothing(workspace: Workspace) -> None:
    for number in range(3):
        put(workspace, number, days_old=99 * (number % 2))
    before = files_below(workspace.store)
    said = gc(workspace, dry_run=True)
    assert files_below(workspace.store) == before
    assert gc(workspace) == said


def test_leftovers_go_and_what_others_put_there_stays(workspace: Workspace) -> None:
    stored = put(workspace, 1)
    damaged = put(workspace, 2)
    overwrite(entry_path(workspace.store, damaged.key), b"half")
    for name in ("c" * 64 + "/wheel.whl", f".{'d' * 64}.1-a.tmp/wheel.whl", f"objects/{'e' * 64}/x.whl", "README"):
        (workspace.store / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.store / name).write_text("x")
    (workspace.store / "entries/notes.txt").write_text("mine")
    (workspace.store / "entries" / f".{key_of(3)}.json.1.tmp").write_text("half")
    stored.path.with_name(".toy.whl.12.tmp").write_text("half")
    kinds = sorted(item.kind for item in gc(workspace).removed)
    assert kinds == ["entry", "entry", "object", "object", "object", "old-entry", "old-entry"]
    assert {path.name for path in workspace.store.iterdir()} == {"entries", "objects", "README"}
    assert {path.name for path in (workspace.store / "entries").iterdir()} == {f"{stored.key}.json", "notes.txt"}
    assert verify(stored) == ()
    assert {path.name for path in stored.path.parent.iterdir()} == {stored.path.name}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 30), st.booleans(), st.booleans()), max_size=8))
def test_nothing_that_is_referred_to_ever_goes(wheels: list[tuple[int, float, bool, bool]]) -> None:
    with TemporaryDirectory() as folder:
        workspace = Workspace(root=Path(folder))
        for number, (content, days, _, whole) in enumerate(wheels):
            put(workspace, number, content=b"%d" % content, days_old=days)
            if not whole:
                overwrite(entry_path(workspace.store, key_of(number)), b"{}")
                os.utime(entry_path(workspace.store, key_of(number)), (0, 0))
        kept = Kept(keys={key_of(number): "kept" for number, wheel in enumerate(wheels) if wheel[2]})
        gc(workspace, kept)
        wanted = {
            key_of(number)
            for number, (_, days, referred, whole) in enumerate(wheels)
            if whole and (referred or days < 14)
        }
        assert set(entry_keys(workspace)) == wanted
        assert set(keys(workspace)) == wanted
        assert audit(workspace).findings == ()


def test_what_runs_work_with_is_known_until_they_end(workspace: Workspace) -> None:
    put(workspace, 1, days_old=5)
    with using(workspace, [key_of(1), "a-run"]), using(workspace, [key_of(2)]):
        assert in_use(workspace) == {key_of(1), key_of(2), "a-run"}
        assert time.time() - entry_path(workspace.store, key_of(1)).stat().st_mtime < 60
    assert in_use(workspace) == frozenset()
    assert not list(workspace.locks.glob("uses-*"))


USES = """
import sys, time
from pathlib import Path
from sglforge.base.workspace import Workspace
from sglforge.build.uses import using
with using(Workspace(root=Path(sys.argv[1])), [sys.argv[2]]):
    print("uses", flush=True)
    time.sleep(60)
"""


def test_a_killed_run_works_with_nothing(workspace: Workspace) -> None:
    put(workspace, 1, days_old=99)
    argv = [sys.executable, "-c", USES, str(workspace.root), key_of(1)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "uses\n"
        os.utime(entry_path(workspace.store, key_of(1)), (0, 0))
        gc(workspace, days=0)
        assert lookup(workspace, key_of(1))
        child.send_signal(signal.SIGKILL)
        child.wait()
        gc(workspace, days=0)
    assert lookup(workspace, key_of(1)) is None
    assert not list(workspace.locks.glob("uses-*"))


WORKS = """
import random, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from toy_stores import key_of, put
from sglforge.base.workspace import Workspace
from sglforge.build.store import drop_damaged, lookup, making, verify
from sglforge.build.uses import using

workspace, seed = Workspace(root=Path(sys.argv[1])), int(sys.argv[2])
choose, end, done = random.Random(seed), time.monotonic() + 6, 0
while time.monotonic() < end:
    number = choose.randrange(6)
    with using(workspace, [key_of(number)]):
        with making(workspace, key_of(number), waiting=lambda _: None):
            if lookup(workspace, key_of(number)) is None:
                put(workspace, number, content=b"shared" if number % 2 else b"%d" % number)
        for _ in range(3):
            stored = lookup(workspace, key_of(number))
            assert stored, "a wheel went while a run worked with it"
            assert verify(stored) == ()
            time.sleep(0.005)
    done += 1
print(done)
"""

COLLECTS = """
import sys, time
from pathlib import Path
from sglforge.base.workspace import Workspace
from sglforge.build.collect import Kept, collect

workspace, end, removed = Workspace(root=Path(sys.argv[1])), time.monotonic() + 6, 0
while time.monotonic() < end:
    found = collect(workspace, Kept, keep_s=0.0, now=time.time() + 5, dry_run=False)
    removed += sum(item.kind == "entry" for item in found.removed)
    time.sleep(0.002)
print(removed)
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_collecting_beside_running_builds_takes_nothing_from_them(
    workspace: Workspace, processes: list[subprocess.Popen[str]]
) -> None:
    tests = str(Path(__file__).parents[2])
    for seed in range(3):
        argv = [sys.executable, "-c", WORKS, str(workspace.root), str(seed), tests]
        processes.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
    for _ in range(2):
        argv = [sys.executable, "-c", COLLECTS, str(workspace.root)]
        processes.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
    counts = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        counts.append(int(output))
    assert min(counts[:3]) > 0
    assert sum(counts[3:]) > 0, "something was removed beside them"
    assert [finding.code for finding in audit(workspace).findings if finding.code != "store-object-unused"] == []


def test_a_kill_while_collecting_leaves_a_store_that_is_whole(workspace: Workspace) -> None:
    for number in range(120):
        put(workspace, number, days_old=99)
    argv = [sys.executable, "-c", COLLECTS, str(workspace.root)]
    for killed_at in (110, 60, 5):  # entries that are left
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as child:
            deadline = time.monotonic() + 30
            while len(entry_keys(workspace)) > killed_at and time.monotonic() < deadline:
                pass
            child.kill()
        assert {finding.severity.value for finding in audit(workspace).findings} <= {"info"}
        put(workspace, 1000 + killed_at)
    gc(workspace, days=0)
    assert audit(workspace).findings == ()
    assert entry_keys(workspace) == ()
