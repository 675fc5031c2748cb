"""Locks: held by one, named, and freed however their holder ends."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglforge.base import exclusive as locks
from sglforge.base.exclusive import WHEEL, exclusive, holder, take
from sglforge.errors import BuildError, InstallError

HOLD = """
import sys, time
from pathlib import Path
from sglforge.base.exclusive import exclusive
sys.argv[1:] = ["build", "--stack", "toys", "--store", "https://me:secret@example.org/store"]
with exclusive(Path(HERE), waiting=print):
    print("held", flush=True)
    END
"""

Hold = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "thing"


@pytest.fixture
def hold(lock: Path) -> Iterator[Hold]:
    """Start processes that take the lock and then do something."""
    started: list[subprocess.Popen[str]] = []

    def start(then: str = "time.sleep(60)", *, wait: bool = True) -> subprocess.Popen[str]:
        code = HOLD.replace("HERE", repr(str(lock))).replace("END", then)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        if wait:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def waits(lock: Path, seconds: float = 0.1) -> list[str]:
    """Return what is said to somebody who waits in vain."""
    notes: list[str] = []
    with pytest.raises(InstallError), exclusive(lock, waiting=notes.append, timeout_s=seconds):
        raise AssertionError("two hold the lock")
    return notes


def test_the_holder_is_named_with_its_verb_and_since_when(hold: Hold, lock: Path) -> None:
    process = hold()
    found = holder(lock)
    assert found
    assert (found.pid, found.host) == (process.pid, socket.gethostname())
    assert abs(found.since - time.time()) < 60
    (note,) = waits(lock)
    assert note.startswith(f"waiting for process {process.pid}, which makes or proves this environment since ")
    assert re.search(r"since \d\d:\d\d:\d\d \(sglforge build --stack toys --store ", note)
    assert "https://example.org/store" in note
    assert "secret" not in note + lock.with_name("thing.holder").read_text()


def test_waiting_in_vain_is_the_error_of_the_stage_that_waits(hold: Hold, lock: Path) -> None:
    process = hold()
    with pytest.raises(BuildError) as caught, exclusive(lock, waiting=lambda _: None, timeout_s=0.05, use=WHEEL):
        raise AssertionError("two hold the lock")
    assert (caught.value.code, caught.value.exit_code) == ("workspace-busy", 7)
    assert f"process {process.pid}, which makes this wheel" in caught.value.message


@pytest.mark.parametrize(
    "end",
    ["pass", "sys.exit(3)", "raise KeyError", "import os; os._exit(1)", "import os; os.abort()", "SIGKILL", "SIGTERM"],
)
def test_it_is_freed_however_its_holder_ends(end: str, hold: Hold, lock: Path) -> None:
    if end.startswith("SIG"):
        process = hold()
        process.send_signal(getattr(signal, end))
    else:
        process = hold(end)
    process.wait(timeout=30)
    notes: list[str] = []
    with exclusive(lock, waiting=notes.append, timeout_s=5):
        assert notes == []
        found = holder(lock)
        assert found
        assert found.pid == os.getpid()
    assert holder(lock) is None


def test_a_waiting_run_goes_on_when_the_holder_is_killed(hold: Hold, lock: Path) -> None:
    process = hold()
    notes: list[str] = []

    def waiting(note: str) -> None:
        notes.append(note)
        process.kill()

    with exclusive(lock, waiting=waiting, timeout_s=30):
        assert f"process {process.pid}," in notes[0]


def test_a_stopped_holder_is_said_to_be_stopped(hold: Hold, lock: Path) -> None:
    process = hold()
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    (note,) = waits(lock)
    assert f"it is stopped (kill -CONT {process.pid} lets it go on)" in note
    process.send_signal(signal.SIGCONT)
    assert "stopped" not in waits(lock)[0]


def test_a_holder_that_is_stopped_meanwhile_is_said_again(hold: Hold, lock: Path) -> None:
    process = hold()
    notes: list[str] = []

    def waiting(note: str) -> None:
        notes.append(note)
        process.send_signal(signal.SIGSTOP if len(notes) == 1 else signal.SIGKILL)

    with exclusive(lock, waiting=waiting, timeout_s=30):
        assert ["stopped" in note for note in notes] == [False, True]


def rewrite(lock: Path, **changes: object) -> None:
    note = lock.with_name("thing.holder")
    note.write_text(json.dumps(json.loads(note.read_text()) | changes))


def test_a_reused_pid_is_not_taken_for_the_holder(hold: Hold, lock: Path) -> None:
    process = hold()
    rewrite(lock, pid=os.getpid())
    assert holder(lock) is None
    assert waits(lock) == ["waiting for process unknown, which makes or proves this environment"]
    rewrite(lock, pid=process.pid, boot="another boot")
    assert holder(lock) is None


def test_a_holder_on_another_machine_is_named(hold: Hold, lock: Path) -> None:
    hold()
    rewrite(lock, host="other-\x1b[31mhost", pid=1)
    assert waits(lock)[0].startswith("waiting for process 1 on other-?[31mhost, which ")


@pytest.mark.parametrize("text", ["", "4711\n", "[]", "{}", '{"pid": "x"}', "[" * 100_000, "\x00"])
def test_a_holder_file_that_says_nothing_is_no_crash(text: str, hold: Hold, lock: Path) -> None:
    hold()
    lock.with_name("thing.holder").write_text(text)
    assert "process unknown" in waits(lock)[0]


def test_a_lock_file_that_is_removed_keeps_nobody_apart_from_those_who_come_later(lock: Path) -> None:
    lock.parent.mkdir()
    path = lock.with_name("thing.lock")
    before = take(path)
    assert before
    path.unlink()
    after = take(path)
    assert after
    assert take(path) is None
    os.close(before)
    os.close(after)


def test_threads_of_one_process_keep_each_other_out(lock: Path) -> None:
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        for _ in range(5):
            with exclusive(lock, waiting=lambda _: None, timeout_s=60):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_file_system_without_locks_is_said(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(InstallError, match="no file locks") as caught, exclusive(lock, waiting=pytest.fail):
        raise AssertionError("held without a lock")
    assert caught.value.code == "workspace-unusable"


def test_a_full_disk_takes_the_name_and_not_the_lock(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with exclusive(lock, waiting=pytest.fail):
        assert "process unknown" in waits(lock)[0]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["build", "--jobs=2"], ["build", "--jobs=2"]),
        (["--set", "key=a=b", "key=c"], ["--set", "key=...", "key=c"]),
        (["--set=key=a=b"], ["--set=key=..."]),
        (["--store", "https://me:secret@host/x?token=y"], ["--store", "https://host/x"]),
        (["--store=https://me:secret@host/x"], ["--store=https://host/x"]),
    ],
)
def test_secrets_are_left_out(words: list[str], shown: list[str]) -> None:
    assert list(locks._words(words)) == shown


def test_a_full_disk_takes_the_name_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "replace", full)
    with locks.exclusive(tmp_path / "x", waiting=pytest.fail):
        assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]
        assert locks.take(tmp_path / "x.lock") is None
