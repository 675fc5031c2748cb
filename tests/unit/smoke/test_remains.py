"""What a server leaves: real shared memory, real ports, and nothing of anybody else is touched."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.smoke import ports, remains
from sglforge.smoke.remains import Watch
from sglforge.smoke.server import Stopped, stop

FOLDER = remains.SHM

pytestmark = pytest.mark.skipif(not os.access(FOLDER, os.W_OK), reason="there is no /dev/shm to write to")

# Maps a file of shared memory, and listens; then ends as the test says.
SERVER = """
import mmap, os, signal, socket, sys, time
name, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open("/dev/shm/" + name, "w+b") as stream:
    stream.truncate(4096)
    view = mmap.mmap(stream.fileno(), 4096)
server = socket.create_server(("127.0.0.1", port))
def end(*_):
    if how == "tidy":
        os.unlink("/dev/shm/" + name)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
if how == "port" and os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    time.sleep(600)
if how == "daemon" and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        server.close()
        time.sleep(600)
    os._exit(0)
print("up", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture
def name() -> Iterator[str]:
    name = f"sglforge-test-{secrets.token_hex(6)}"
    yield name
    for path in FOLDER.glob(f"*{name}*"):
        path.unlink()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def end_one(tmp_path: Path, name: str, how: str, *, meanwhile: Callable[[], object] = lambda: None) -> Stopped:
    """Run a server and stop it."""
    log, port, watch = tmp_path / "log", ports.free_port(), Watch()
    service = proc.spawn([sys.executable, "-c", SERVER, name, str(port), how], log=log)
    try:
        wait_until(lambda: "up" in log.read_text())
        meanwhile()
        return stop(service, port, grace_s=10.0, watch=watch)
    finally:
        service.stop(grace_s=0.0)


def names(segments: tuple[str, ...]) -> list[str]:
    return [segment.split()[0] for segment in segments]


def test_a_tidy_server_leaves_nothing(tmp_path: Path, name: str) -> None:
    stopped = end_one(tmp_path, name, "tidy")
    assert stopped.clean
    assert (stopped.shared_memory, stopped.ports, stopped.orphans) == ((), (), ())


def test_shared_memory_that_is_left_is_named_and_removed(tmp_path: Path, name: str) -> None:
    stopped = end_one(tmp_path, name, "leave")
    assert not stopped.clean
    assert names(stopped.shared_memory) == [name]
    assert stopped.shared_memory == (f"{name} (4096 bytes)",)
    assert not (FOLDER / name).exists()


@pytest.mark.parametrize("form", ["sglang_loads_{}.shm", "sem.mp-{}"])
def test_a_leak_that_is_known_is_removed_and_not_held_against_a_server(tmp_path: Path, name: str, form: str) -> None:
    leak = form.format(name.replace("-", "_"))
    stopped = end_one(tmp_path, leak, "leave")
    assert stopped.clean
    assert (stopped.shared_memory, names(stopped.known_leaks)) == ((), [leak])
    assert not (FOLDER / leak).exists()


def test_what_was_there_before_and_what_others_make_stays(tmp_path: Path, name: str) -> None:
    before, other = FOLDER / f"{name}-before", FOLDER / f"{name}-other"
    before.write_text("mine")
    stopped = end_one(tmp_path, name, "tidy", meanwhile=lambda: other.write_text("somebody's"))
    assert stopped.clean
    assert other.name in names(stopped.perhaps)
    assert before.name not in names(stopped.perhaps)
    assert (before.read_text(), other.read_text()) == ("mine", "somebody's")


def test_what_somebody_else_still_uses_stays(tmp_path: Path, name: str) -> None:
    held = []
    stopped = end_one(tmp_path, name, "leave", meanwhile=lambda: held.append((FOLDER / name).open("rb")))
    assert stopped.clean
    assert name in names(stopped.perhaps)
    assert (FOLDER / name).exists()
    held[0].close()


def test_a_file_that_took_the_name_meanwhile_stays(tmp_path: Path, name: str) -> None:
    path = FOLDER / name

    def replace() -> None:
        path.unlink()
        path.write_text("another")

    stopped = end_one(tmp_path, name, "leave", meanwhile=replace)
    assert name in names(stopped.perhaps)
    assert path.read_text() == "another"


def test_a_port_that_a_process_in_another_session_keeps_open(tmp_path: Path, name: str) -> None:
    stopped = end_one(tmp_path, name, "port")
    assert not stopped.clean
    assert len(stopped.ports) == 1
    assert len(stopped.orphans) == 1
    assert not stopped.port_open


def test_a_daemon_of_the_server_is_found_and_ended(tmp_path: Path, name: str) -> None:
    stopped = end_one(tmp_path, name, "daemon")
    assert not stopped.clean
    assert len(stopped.orphans) == 1
    assert "\n" not in stopped.orphans[0]
    pid = int(stopped.orphans[0].split()[1])
    assert not Path(f"/proc/{pid}/maps").exists() or not Path(f"/proc/{pid}/maps").read_text()


SYSV = "import ctypes, time; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600), flush=True); time.sleep(600)"


def sysv_there(number: int) -> bool:
    return any(int(row[1]) == number for row in remains._sysv())


@pytest.mark.skipif(not remains._SYSV.exists(), reason="this kernel has no System V shared memory")
def test_system_v_segments_belong_to_who_made_them(tmp_path: Path) -> None:
    watch, log = Watch(), tmp_path / "log"
    service = proc.spawn([sys.executable, "-c", SYSV], log=log)
    other = int(subprocess.run([sys.executable, "-c", SYSV.partition("; time")[0]], stdout=-1, check=True).stdout)
    try:
        wait_until(lambda: log.read_text().endswith("\n"))
        number = int(log.read_text())
        watch.look(service.members())
        service.stop(grace_s=5.0)
        left = watch.clear()
        assert [segment.number for segment in left.removed] == [number]
        assert other in [segment.number for segment in left.perhaps]
        assert (sysv_there(number), sysv_there(other)) == (False, True)
    finally:
        ctypes.CDLL(None).shmctl(other, 0, None)
        service.stop(grace_s=0.0)


def test_semaphores_are_known_by_what_they_are_not_by_their_first_name(tmp_path: Path, name: str) -> None:
    code = (
        "import multiprocessing, os, sys, time\n"
        "from _multiprocessing import SemLock\n"
        "lock = SemLock(1, 1, 1, '/' + sys.argv[1], False)\n"
        "print('up', flush=True); time.sleep(600)\n"
    )
    watch, log = Watch(), tmp_path / "log"
    service = proc.spawn([sys.executable, "-c", code, name], log=log)
    wait_until(lambda: "up" in log.read_text())
    stopped = stop(service, ports.free_port(), grace_s=5.0, watch=watch)
    assert names(stopped.shared_memory) == [f"sem.{name}"]
    assert not (FOLDER / f"sem.{name}").exists()


def test_without_shared_memory_there_is_nothing_to_find(tmp_path: Path) -> None:
    watch = Watch(shm=tmp_path / "none")
    watch.look([os.getpid(), 2**22 + 1])
    assert watch.clear().removed == ()


def test_what_a_crash_leaves_is_removed_and_not_called_untidy(tmp_path: Path, name: str) -> None:
    log, port, watch = tmp_path / "log", ports.free_port(), Watch()
    service = proc.spawn([sys.executable, "-c", SERVER, name, str(port), "leave"], log=log)
    wait_until(lambda: "up" in log.read_text())
    watch.look(service.members())
    os.kill(service.pid, signal.SIGKILL)
    wait_until(lambda: service.poll() is not None)
    stopped = stop(service, port, grace_s=5.0, watch=watch)
    assert (stopped.ended_before, stopped.clean) == (True, True)
    assert names(stopped.shared_memory) == [name]
    assert not (FOLDER / name).exists()
