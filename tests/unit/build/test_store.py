"""The store: published once, looked up cheaply, never half."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.build.entry import Entry, dump, parse
from sglforge.build.store import (
    StoredWheel,
    damaged_keys,
    drop_damaged,
    entry_keys,
    entry_path,
    keys,
    lookup,
    making,
    publish,
    used,
    verify,
)
from sglforge.errors import BuildError

PARTS = {"package": "toy", "source": {"tree": "a1"}}
KEY = BuildKey(digest(PARTS))
OTHER = BuildKey("b2" * 32)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def put(
    workspace: Workspace, folder: Path, content: bytes = b"wheel", key: BuildKey = KEY, **more: object
) -> StoredWheel:
    folder.mkdir(exist_ok=True)
    wheel = folder / "toy-1-py3-none-any.whl"
    wheel.write_bytes(content)
    described = {"name": wheel.name, "size": len(content), "sha256": sha256_file(wheel)}
    document = {"kind": "re-packed wheel", "package": "toy", "wheel": described, "key-parts": PARTS, **more}
    return publish(workspace, key, wheel, document)


def overwrite(path: Path, content: bytes) -> None:
    """Change a file in place, as a disk or a careless hand does."""
    path.chmod(0o644)
    path.write_bytes(content)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_published_then_found(workspace: Workspace, tmp_path: Path) -> None:
    assert lookup(workspace, KEY) is None
    stored = put(workspace, tmp_path / "new")
    assert lookup(workspace, KEY) == stored
    assert stored.path.read_bytes() == b"wheel"
    wheel = {"name": "toy-1-py3-none-any.whl", "size": 5, "sha256": stored.sha256}
    document = {"kind": "re-packed wheel", "package": "toy", "wheel": wheel, "key-parts": PARTS}
    assert stored.provenance == document
    assert files_below(workspace.store) == {
        f"entries/{KEY}.json",
        f"objects/{stored.sha256}/toy-1-py3-none-any.whl",
    }
    assert verify(stored) == ()


def test_what_is_published_cannot_be_written_to_by_accident(workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    for path in (stored.path, entry_path(workspace.store, KEY)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_the_first_one_stays(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, tmp_path / "new", b"first")
    assert put(workspace, tmp_path / "new", b"second").path.read_bytes() == b"first"


def test_two_keys_with_the_same_wheel_share_it(workspace: Workspace, tmp_path: Path) -> None:
    one, other = put(workspace, tmp_path / "new"), put(workspace, tmp_path / "new", key=OTHER)
    assert one.path == other.path
    assert set(keys(workspace)) == {KEY, OTHER}
    assert len(list((workspace.store / "objects").iterdir())) == 1


def test_runs_that_race_agree(workspace: Workspace, tmp_path: Path) -> None:
    found: list[StoredWheel] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(put(workspace, tmp_path / str(n), b"%d" % n)))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({stored.sha256 for stored in found}) == 1
    assert verify(found[0]) == ()


def cut(stored: StoredWheel, entry: Path) -> None:
    overwrite(stored.path, b"half")


def gone(stored: StoredWheel, entry: Path) -> None:
    stored.path.unlink()


def a_link(stored: StoredWheel, entry: Path) -> None:
    stored.path.rename(stored.path.with_name("elsewhere"))
    stored.path.symlink_to("elsewhere")


def a_folder(stored: StoredWheel, entry: Path) -> None:
    stored.path.unlink()
    (stored.path / "in-it").mkdir(parents=True)


def entry_cut(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, entry.read_bytes()[:100])


def entry_empty(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, b"")


def entry_of_zeros(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, b"\0" * entry.stat().st_size)


def entry_no_object(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, b"[]")


def entry_a_folder(stored: StoredWheel, entry: Path) -> None:
    entry.unlink()
    (entry / "in-it").mkdir(parents=True)


def entry_deep(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, b"[" * 200_000)


def entry_of_another_key(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, dump(Entry(key=OTHER, name="x.whl", size=5, sha256=stored.sha256, key_parts={}, provenance={})))


HARMS = [
    cut, gone, a_link, a_folder, entry_cut, entry_empty, entry_of_zeros, entry_no_object, entry_a_folder, entry_deep,
    entry_of_another_key,
]  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_damaged_counts_as_absent_and_is_replaced(
    harm: Callable[[StoredWheel, Path], None], workspace: Workspace, tmp_path: Path
) -> None:
    harm(put(workspace, tmp_path / "new"), entry_path(workspace.store, KEY))
    assert lookup(workspace, KEY) is None
    assert KEY not in keys(workspace)
    assert KEY in damaged_keys(workspace)
    assert set(keys(workspace)) == set()
    assert set(damaged_keys(workspace)) == {KEY}
    assert put(workspace, tmp_path / "new").path.read_bytes() == b"wheel"
    assert lookup(workspace, KEY) is not None
    assert set(keys(workspace)) == {KEY}
    assert set(damaged_keys(workspace)) == set()


@given(st.data())
def test_a_changed_byte_of_an_entry_is_noticed(data: st.DataObject) -> None:
    found = Entry(
        key=KEY,
        name="toy-1-py3-none-any.whl",
        size=5,
        sha256=Sha256("c3" * 32),
        key_parts=PARTS,
        provenance={"package": "toy", "seconds": 1.5},
    )
    content = dump(found)
    assert parse(content, KEY) == found
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = parse(bytes(changed), KEY)
    except ValueError:
        return
    assert read == found, "only blanks may differ"


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
def test_an_entry_of_anything_is_no_crash(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(data, KEY)


@pytest.mark.parametrize(
    "wheel",
    [
        None,
        {"name": "../x.whl", "size": 1, "sha256": "0" * 64},
        {"name": "x.whl/y", "size": 1, "sha256": "0" * 64},
        {"name": "x.whl", "size": -1, "sha256": "0" * 64},
        {"name": "x.whl", "size": True, "sha256": "0" * 64},
        {"name": "x.whl", "size": 1, "sha256": "../" + "0" * 61},
    ],
)
def test_an_entry_cannot_lead_out_of_the_store(wheel: object) -> None:
    body = {"schema": 1, "key": KEY, "wheel": wheel, "key-parts": {}, "provenance": {}}
    with pytest.raises(ValueError, match=r"wheel"):
        parse(json.dumps({**body, "sha256": digest(body)}).encode(), KEY)


def test_only_a_damaged_wheel_is_dropped(workspace: Workspace, tmp_path: Path) -> None:
    assert not drop_damaged(workspace, KEY)
    stored = put(workspace, tmp_path / "new")
    assert not drop_damaged(workspace, KEY)
    overwrite(stored.path, b"WHEEL")
    assert drop_damaged(workspace, KEY)
    assert files_below(workspace.store) == set()
    assert not drop_damaged(workspace, KEY)


def test_a_damaged_wheel_that_two_keys_share_is_healed_by_either(workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    put(workspace, tmp_path / "new", key=OTHER)
    overwrite(stored.path, b"WHEEL")
    assert drop_damaged(workspace, KEY)
    assert set(damaged_keys(workspace)) == {OTHER}
    put(workspace, tmp_path / "new")
    assert set(keys(workspace)) == {KEY, OTHER}
    assert verify(stored) == ()


def test_a_damaged_wheel_without_an_entry_is_replaced(workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    overwrite(stored.path, b"WHEEL")
    entry_path(workspace.store, KEY).unlink()
    assert put(workspace, tmp_path / "new").path.read_bytes() == b"wheel"


def test_a_changed_wheel_is_found_by_verify(workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    overwrite(stored.path, b"WHEEL")
    assert lookup(workspace, KEY) is not None  # a lookup reads no contents
    (finding,) = verify(stored)
    assert finding.code == "store-damaged"
    stored.path.unlink()
    assert [finding.code for finding in verify(stored)] == ["store-damaged"]


@pytest.mark.parametrize("wheel", [None, {"name": "toy.whl", "size": 2, "sha256": "0" * 64}, {"name": "toy.whl"}])
def test_a_wrong_provenance_is_our_bug(wheel: object, workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "toy.whl"
    path.write_bytes(b"x")
    with pytest.raises(AssertionError):
        publish(workspace, KEY, path, {"wheel": wheel})
    assert not workspace.store.exists()


def test_entries_come_in_the_order_in_which_they_were_used_last(workspace: Workspace, tmp_path: Path) -> None:
    assert entry_keys(workspace) == ()
    for number in range(3):
        key, parts = BuildKey(f"{number}" * 64), {"source": str(number)}
        put(workspace, tmp_path / "new", b"%d" % number, key, **{"key-parts": parts})
        os.utime(entry_path(workspace.store, key), ns=(number, number * 1_000_000_000))
    assert entry_keys(workspace) == ("2" * 64, "1" * 64, "0" * 64)
    used(workspace, BuildKey("0" * 64))
    assert entry_keys(workspace) == ("0" * 64, "2" * 64, "1" * 64)
    used(workspace, OTHER)  # is not there


def test_a_plan_does_not_read_what_it_does_not_ask_for(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        put(workspace, tmp_path / "new", b"%d" % number, BuildKey(f"{number}" * 64))
    read: list[str] = []

    def noted(data: bytes, key: BuildKey) -> Entry:
        read.append(key)
        return parse(data, key)

    monkeypatch.setattr("sglforge.build.store.parse", noted)
    assert BuildKey("1" * 64) in keys(workspace)
    assert OTHER not in keys(workspace)
    assert read == ["1" * 64]


def test_a_full_disk_leaves_nothing(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sglforge.build.store.write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        put(workspace, tmp_path / "new")
    monkeypatch.undo()
    assert lookup(workspace, KEY) is None
    assert put(workspace, tmp_path / "new").path.read_bytes() == b"wheel"


PUBLISHED = """
import os, sys, time
from pathlib import Path
from sglforge.base.files import sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build import store
from sglforge.build import store as publishing

root, wheel, stop_at, mark = sys.argv[1:]
wheel, count = Path(wheel), 0

def stopping(name, function):
    def call(*arguments, **more):
        global count
        if count == int(stop_at):
            Path(mark).write_text(name)
            time.sleep(60)
        count += 1
        return function(*arguments, **more)
    return call

for name in ("sync", "write_bytes", "remove"):
    setattr(store, name, stopping(name, getattr(store, name)))
store.shutil.move = stopping("move", store.shutil.move)
Path.replace = stopping("replace", Path.replace)
described = {"name": wheel.name, "size": wheel.stat().st_size, "sha256": sha256_file(wheel)}
store.publish(Workspace(root=Path(root)), BuildKey(sys.argv[2].split("/")[-2]), wheel, {"wheel": described})
Path(mark).write_text("end")
"""


def test_a_kill_at_any_step_of_publishing_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    """The publisher is ended before its first effect, its second, and so on, until it comes to its end."""
    steps = []
    for number in range(20):
        workspace, folder = Workspace(root=tmp_path / f"ws{number}"), tmp_path / f"new{number}" / KEY
        folder.mkdir(parents=True)
        wheel, mark = folder / "toy-1-py3-none-any.whl", tmp_path / f"mark{number}"
        wheel.write_bytes(b"wheel")
        argv = [sys.executable, "-c", PUBLISHED, str(workspace.root), str(wheel), str(number), str(mark)]
        with subprocess.Popen(argv) as child:
            deadline = time.monotonic() + 60
            while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL)
        steps.append(mark.read_text())
        stored = lookup(workspace, KEY)
        assert stored is None or verify(stored) == ()
        started = time.monotonic()
        assert put(workspace, folder).path.read_bytes() == b"wheel"
        assert time.monotonic() - started < 30, "its lock was freed"
        if steps[-1] == "end":
            break
    assert steps[-1] == "end"
    assert {"sync", "move", "replace", "write_bytes"} <= set(steps)


def test_one_makes_a_key_and_others_wait_for_it_by_name(workspace: Workspace) -> None:
    notes: list[str] = []
    with making(workspace, KEY, waiting=notes.append), making(workspace, OTHER, waiting=notes.append):
        assert notes == [], "different keys do not wait for each other"
        with pytest.raises(BuildError) as caught, making(workspace, KEY, waiting=notes.append, timeout_s=0.1):
            raise AssertionError("two make the same")
    assert caught.value.code == "workspace-busy"
    assert f"waiting for process {os.getpid()}, which makes this wheel" in notes[0]
