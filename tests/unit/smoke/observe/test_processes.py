"""Real processes with real ports and real shared memory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from multiprocessing import shared_memory as python_shared_memory
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.smoke import ports
from sglforge.smoke.observe.processes import ProcessGroup, SharedMemory, environment_of, left_behind, observe_group

MIB = 2**20
# A parent that listens and holds 40 MiB, a child in a session of its own, both with one shared file. The child ends
# when the parent's end of the pipe does, and so does the segment, which is attached and marked for removal.
PROGRAM = """
import ctypes, mmap, os, socket, sys, time
name = sys.argv[1]
shared = os.open(name, os.O_RDWR)
mapped = mmap.mmap(shared, 8192)
os.close(shared)
(left_read, left_write), (life_read, life_write) = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(life_write)
    os.setsid()
    os.write(left_write, b"x")
    os.read(life_read, 1)
    os._exit(0)
os.read(left_read, 1)
held = bytearray(b"x" * (40 * 2**20))
libc = ctypes.CDLL(None)
segment = libc.shmget(0, 12288, 0o1600)
libc.shmat.restype = ctypes.c_void_p
libc.shmat(segment, None, 0)
libc.shmctl(segment, 0, None)
server = socket.create_server(("127.0.0.1", 0))
print("ready", server.getsockname()[1], segment, flush=True)
time.sleep(60)
"""


class Running:
    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / "log"
        self.name = name
        self.service = proc.spawn([sys.executable, "-c", PROGRAM, name], log=self.log, env={"SECRET": "a=b"})
        deadline = time.monotonic() + 20
        while "ready" not in (text := self.log.read_text()):
            assert time.monotonic() < deadline, text
            time.sleep(0.02)
        self.port, self.segment = (int(word) for word in text.split()[1:])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    scratch = python_shared_memory.SharedMemory(create=True, size=8192)
    one = Running(tmp_path, f"/dev/shm/{scratch.name.lstrip('/')}")
    try:
        yield one
    finally:
        one.service.stop(grace_s=0.0)
        scratch.close()
        scratch.unlink()


def test_the_tree_has_the_child_that_left_the_session(running: Running) -> None:
    leader, child = observe_group(running.service.pid).processes
    assert leader.pid == running.service.pid
    assert child.parent == leader.pid
    assert leader.started <= child.started
    assert running.name in leader.command


def test_memory_is_what_the_process_holds_and_shared_pages_count_once(running: Running) -> None:
    group = observe_group(running.service.pid)
    leader, child = group.processes
    assert 40 * MIB < leader.rss < 80 * MIB
    assert leader.pss is not None
    assert child.pss is not None
    assert 40 * MIB < leader.pss < leader.rss
    assert child.pss < child.rss / 1.5  # most of a fork's pages are its parent's too
    assert group.rss == leader.rss + child.rss
    assert group.pss == leader.pss + child.pss


def test_rss_is_read_without_smaps_rollup(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    real = observe_group(running.service.pid)
    read_text = Path.read_text

    def refuse(self: Path, *args: str | None, **kwargs: str | None) -> str:
        if self.name == "smaps_rollup":
            raise PermissionError(13, "refused", str(self))
        return read_text(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)
    group = observe_group(running.service.pid)
    assert group.pss is None
    assert [process.pss for process in group.processes] == [None, None]
    assert group.rss == pytest.approx(real.rss, rel=0.1)


def test_ports_belong_to_the_process_that_listens(running: Running) -> None:
    leader, child = observe_group(running.service.pid).processes
    assert leader.ports == (running.port,)
    assert child.ports == ()
    assert ports.holder(running.port) == leader.pid


def test_shared_memory_files_and_segments(running: Running) -> None:
    group = observe_group(running.service.pid)
    leader, child = (process.pid for process in group.processes)
    assert SharedMemory(kind="file", name=running.name, size=8192, pids=(leader, child)) in group.shared_memory
    assert SharedMemory(kind="sysv", name=str(running.segment), size=12288, pids=(leader,)) in group.shared_memory


def test_what_is_left_when_the_processes_are_gone(running: Running) -> None:
    group = observe_group(running.service.pid)
    running.service.stop(grace_s=0.0)
    deadline = time.monotonic() + 10
    while len(left := left_behind(group)) > 1 and time.monotonic() < deadline:  # the segment goes with its process
        time.sleep(0.02)
    assert [(segment.name, segment.kind) for segment in left] == [(running.name, "file")]


def test_an_unlinked_file_is_told_apart(running: Running) -> None:
    Path(running.name).rename(f"{running.name}.moved")
    moved = Path(f"{running.name}.moved")
    try:
        copy = moved.read_bytes()
        moved.unlink()
        found = [segment for segment in observe_group(running.service.pid).shared_memory if segment.unlinked]
        assert [segment.name for segment in found] == [str(moved)]
        assert found[0].size == 8192
    finally:
        Path(running.name).write_bytes(copy)  # the fixture unlinks it


def test_a_group_survives_json(running: Running) -> None:
    group = observe_group(running.service.pid)
    assert ProcessGroup.from_json(json.loads(json.dumps(group.to_json()))) == group


def test_an_ended_process_is_not_there(running: Running) -> None:
    running.service.stop(grace_s=0.0)
    assert observe_group(running.service.pid).processes == ()


def test_the_environment_is_read_as_it_was_given(running: Running) -> None:
    assert environment_of(running.service.pid)["SECRET"] == "a=b"
    assert environment_of(2**22 + 1) == {}
