"""The ledger of units that run and wait: real locks, real kills, broken files, full and read-only disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglforge.build.compiling import admission, ledger
from sglforge.build.compiling.room import Room

SRC = Path(ledger.__file__).parents[3]
GIB = 2**20
ENOUGH = Room(free_kib=8 * GIB, capacity_kib=8 * GIB)
HOLDER = """
import subprocess, sys, time
from sglforge.build.compiling import ledger
own = ledger.enter(sys.argv[1], 1000)
own.write(running=True, live_kib=7)
import os
os.set_inheritable(own.descriptor, True)
child = subprocess.Popen(["sleep", sys.argv[2]], close_fds=False) if sys.argv[2] != "0" else None
os.set_inheritable(own.descriptor, False)
print(child.pid if child else 0, flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def hold(folder: str, child_s: int = 0) -> tuple[subprocess.Popen[str], int]:
    """Start a process that holds an entry; return it and its child's pid, which holds it as well."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder, str(child_s)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SRC)},
    )  # fmt: skip
    assert process.stdout
    return process, int(process.stdout.readline())


@pytest.fixture
def held(folder: str) -> Iterator[subprocess.Popen[str]]:
    process, _ = hold(folder)
    yield process
    process.kill()
    process.communicate()


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_others_see_what_a_unit_says(folder: str) -> None:
    own = ledger.enter(folder, 5 * GIB)
    (seen,) = ledger.others(folder, "")
    assert (seen.name, seen.need_kib, seen.running, seen.alone) == (own.entry.name, 5 * GIB, False, False)
    own.write(running=True, alone=True, live_kib=123)
    (seen,) = ledger.others(folder, "")
    assert (seen.running, seen.alone, seen.live_kib) == (True, True, 123)
    assert ledger.others(folder, own.entry.name) == []
    own.leave()
    assert names(folder) == []


def test_units_are_in_the_order_in_which_they_came(folder: str) -> None:
    came = [ledger.enter(folder, 1) for _ in range(20)]
    assert [entry.name for entry in ledger.others(folder, "")] == [own.entry.name for own in came]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_the_entry_of_a_killed_launcher_goes(folder: str, held: subprocess.Popen[str], number: int) -> None:
    assert [entry.live_kib for entry in ledger.others(folder, "")] == [7]
    held.send_signal(number)
    held.wait()
    assert ledger.others(folder, "") == []
    assert names(folder) == []


def test_it_stays_while_a_process_of_the_compiler_lives(folder: str) -> None:
    process, child = hold(folder, child_s=60)
    process.kill()
    process.wait()
    assert [entry.need_kib for entry in ledger.others(folder, "")] == [1000]
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while ledger.others(folder, "") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert names(folder) == []


def test_what_killed_launchers_left_is_swept_and_nothing_else(folder: str, held: subprocess.Popen[str]) -> None:
    for name in ("0000000000000.000001-5-aa.r", ".0000000000000.000002-5-bb.w", "what", "-", "1-2", "x-y-z"):
        (Path(folder) / name).write_text("running - 5 5 1.0")
    (Path(folder) / "inner").mkdir()
    (Path(folder) / "link").symlink_to("/etc/passwd")
    os.mkfifo(Path(folder) / "pipe")
    assert [entry.need_kib for entry in ledger.others(folder, "")] == [1000]
    assert set(names(folder)) >= {"inner", "link"}
    assert len(names(folder)) == 3


@pytest.mark.parametrize("content", [b"", b"\0" * 96, b"\xff" * 200, b"7", b"7 x", b"-1 2", b"1 2 3", "² 1".encode()])
def test_an_entry_with_nothing_in_it_counts_as_its_name_says(folder: str, content: bytes) -> None:
    own = ledger.enter(folder, 4242)
    own.write(running=True, alone=True, live_kib=9)
    os.ftruncate(own.descriptor, 0)
    os.pwrite(own.descriptor, content, 0)
    (seen,) = ledger.others(folder, "")
    assert (seen.running, seen.alone, seen.need_kib, seen.live_kib) == (True, True, 4242, 0)


@pytest.mark.parametrize("name", ["1-2-aa", "1-2-aa.x", "x-2-aa.r", "1-x-aa.r", "1--aa.r", ".r", "-.r", "²-2-a.r"])
def test_a_locked_file_that_is_no_units_counts_for_nothing(folder: str, name: str) -> None:
    own = ledger.enter(folder, 1)
    (Path(folder) / own.entry.name).rename(Path(folder) / name)
    assert ledger.others(folder, "") == []
    own.leave()


def test_a_draft_that_was_swept_is_made_again(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.rename
    swept: list[str] = []

    def rename(old: str, new: str) -> None:
        if not swept:
            swept.append(old)
            Path(old).unlink()
        real(old, new)

    monkeypatch.setattr(os, "rename", rename)
    own = ledger.enter(folder, 1)
    assert swept
    assert names(folder) == [own.entry.name]


def test_a_stopped_holder_of_the_turn_holds_nobody_up(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "TURN_S", 0.2)
    with ledger.Turn(folder) as first, ledger.Turn(folder) as second:
        assert (first.held, second.held) == (True, False)
    with ledger.Turn(folder) as third:
        assert third.held


def test_only_one_tight_unit_goes_at_a_time(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TIGHT_S", 0.1)
    little = Room(free_kib=100, capacity_kib=8 * GIB)
    first = admission.admit(folder, 5 * GIB, lambda: little, jobs=4)
    assert first.own
    assert (first.tight, first.why) == (True, "memory")
    looks = []

    def look() -> Room:
        looks.append(1)
        if len(looks) == 5 and first.own:
            first.own.leave()
        return little

    second = admission.admit(folder, 5 * GIB, look, jobs=4)
    assert second.tight
    assert len(looks) >= 5


def test_without_a_ledger_it_still_looks_at_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(admission, "TIGHT_S", 0.3)
    rooms = iter([0, 0, 9 * GIB, 9 * GIB])
    admitted = admission.admit(str(tmp_path / "none"), GIB, lambda: Room(free_kib=next(rooms), capacity_kib=1), jobs=1)
    assert (admitted.own, admitted.why) == (None, "no ledger")
    full = Room(free_kib=0, capacity_kib=1)
    begin = time.monotonic()
    admission.admit(str(tmp_path / "none"), GIB, lambda: full, jobs=1)
    assert time.monotonic() - begin < 5


def test_a_ledger_that_goes_away_meanwhile_holds_nobody_up(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "TIGHT_S", 0.3)
    busy = ledger.enter(folder, GIB)
    busy.write(running=True)

    def waiting(_why: str, _others: int) -> None:
        for name in names(folder):
            (Path(folder) / name).unlink()
        Path(folder).rmdir()

    admitted = admission.admit(folder, GIB, lambda: ENOUGH, jobs=1, waiting=waiting)
    assert admitted.why == "slots"


def test_the_clock_of_the_day_decides_nothing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elder = ledger.enter(folder, 1)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    os.utime(Path(folder) / elder.entry.name, (0, 0))
    younger = ledger.enter(folder, 1)
    assert [entry.name for entry in ledger.others(folder, "")] == [elder.entry.name, younger.entry.name]
    assert admission.admit(folder, GIB, lambda: ENOUGH, jobs=4).why == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk to fill")
def test_a_full_disk_loses_no_unit(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        with ledger.Turn(str(disk)), pytest.raises(OSError, match="space"):
            (disk / "filler").write_bytes(b"x" * 2**16)
        heavy = admission.admit(str(disk), 5 * GIB, lambda: ENOUGH, jobs=2)
        assert heavy.waited_s == 0.0
        # where a name alone finds room, the others see the unit all the same
        assert [entry.need_kib for entry in ledger.others(str(disk), "")] == ([5 * GIB] if heavy.own else [])
        waiting = threading.Thread(
            target=admission.admit, args=(str(disk), 5 * GIB, lambda: ENOUGH), kwargs={"jobs": 2}
        )
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive() == bool(heavy.own)
        if heavy.own:
            heavy.own.leave()
        waiting.join(10)
        assert not waiting.is_alive()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_folder_that_cannot_be_written_to_loses_no_unit(tmp_path: Path) -> None:
    locked = tmp_path / "file"
    locked.write_text("no folder")
    assert admission.admit(str(locked), GIB, lambda: ENOUGH, jobs=1).own is None


def test_a_token_is_lent_once_and_taken_back(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    token = admission.Token(str(fifo))
    token.take_back(0.0)
    token.lend()
    token.lend()
    assert os.read(end, 10) == b"+"
    begin = time.monotonic()
    token.take_back(0.05)
    assert time.monotonic() - begin < 2
    os.write(end, b"+")
    token.take_back(1.0)
    token.take_back(1.0)
    with pytest.raises(BlockingIOError):
        os.read(end, 1)
    nothing = admission.Token(str(tmp_path / "none"))
    nothing.lend()
    nothing.take_back(1.0)
    os.close(end)
