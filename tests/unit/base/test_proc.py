"""base.proc: real processes, their groups, their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.base.cancel import Cancellation, Cancelled
from sglforge.base.marks import MARK

PYTHON = sys.executable
ESCAPES = Path(__file__).parent / "escapes.py"


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


def test_returns_what_was_said_and_how_it_ended() -> None:
    done = proc.run([PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_bad_end_is_an_error_with_the_tail_of_the_output() -> None:
    with pytest.raises(proc.ProcessError) as caught:
        proc.run([PYTHON, "-c", "import sys; [print(i) for i in range(50)]; sys.exit(1)"])
    assert caught.value.code == "process-failed"
    assert caught.value.context["output"].splitlines()[-1] == "49"
    assert len(caught.value.context["output"].splitlines()) == proc.TAIL_LINES


def test_a_signal_is_named() -> None:
    with pytest.raises(proc.ProcessError, match="signal 9"):
        proc.run([PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"])


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/etc/passwd", "/etc/passwd/x"])
def test_a_program_that_cannot_run_is_named(program: str) -> None:
    with pytest.raises(proc.ProcessError) as caught:
        proc.run([program])
    assert caught.value.code == "program-missing"
    assert program in caught.value.message


def test_stdin_reaches_the_program() -> None:
    assert proc.run(["cat"], stdin="hello").stdout == "hello"


def test_without_stdin_a_reader_sees_the_end_at_once() -> None:
    assert proc.run(["cat"], timeout_s=10).stdout == ""


def test_a_log_gets_command_and_output_and_only_this_run_is_returned(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    first = proc.run(["echo", "one"], log=log)
    second = proc.run(["echo", "two words"], log=log)
    assert (first.stdout, second.stdout) == ("one\n", "two words\n")
    assert log.read_text() == "$ echo one\none\n$ echo 'two words'\ntwo words\n"


def test_a_timeout_ends_grandchildren_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; wait"
    with pytest.raises(proc.ProcessError) as caught:
        proc.run(["sh", "-c", script], timeout_s=1)
    assert caught.value.code == "process-timeout"
    assert not alive(int(pid_file.read_text()))


def test_the_environment_is_replaced_whole() -> None:
    own = {"PATH": os.environ["PATH"], "ONLY": "this"}
    assert proc.run(["env"], env=own, timeout_s=10).stdout.count("=") == 2
    marked = proc.run(["env"], env=own).stdout.splitlines()
    assert sorted(line.partition("=")[0] for line in marked if not line.startswith(MARK)) == ["ONLY", "PATH"]
    assert len(marked) == 3


def test_a_service_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    service = proc.spawn(["sh", "-c", "sleep 60 & sleep 60 & wait"], log=tmp_path / "log")
    deadline = time.monotonic() + 10
    while len(service.members()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    members = service.members()
    assert service.pid in members
    assert len(members) == 3
    assert service.stop(grace_s=5)
    assert not any(alive(pid) for pid in members)
    assert service.members() == []


def test_a_service_that_ignores_the_request_is_killed_and_that_is_said(tmp_path: Path) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    log = tmp_path / "log"
    service = proc.spawn([PYTHON, "-c", script], log=log)
    deadline = time.monotonic() + 10
    while "up" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not service.stop(grace_s=0.3)
    assert service.poll() == -9


def running(word: str) -> bool:
    for pid in proc._process_table():
        try:
            if word in Path(f"/proc/{pid}/cmdline").read_text():
                return True
        except OSError:
            continue
    return False


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_daemon_that_a_service_started_belongs_to_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    service = proc.spawn([PYTHON, ESCAPES, pid_file], log=tmp_path / "log")
    wait_until(pid_file.exists)
    daemon = int(pid_file.read_text())
    # its parent ends a moment after it has written its pid
    wait_until(lambda: daemon in service.members() and len(service.members()) == 2)
    assert daemon not in proc.session_members(service.pid)
    assert service.stop(grace_s=5)
    assert not alive(daemon)
    assert service.members() == []


def test_two_services_are_not_taken_for_each_other(tmp_path: Path) -> None:
    one, other = (proc.spawn(["sleep", "60"], log=tmp_path / name) for name in ("one", "other"))
    try:
        wait_until(lambda: one.members() == [one.pid])
        assert one.stop(grace_s=5)
        assert other.members() == [other.pid]
    finally:
        other.stop(grace_s=5)


def test_a_daemon_ends_when_who_started_the_service_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "import sys, time; from pathlib import Path; from sglforge.base import proc\n"
        "proc.spawn([sys.executable, *sys.argv[2:]], log=Path(sys.argv[1])); time.sleep(60)\n"
    )
    with subprocess.Popen([PYTHON, "-c", script, str(tmp_path / "log"), str(ESCAPES), str(pid_file)]) as parent:
        wait_until(pid_file.exists)
        daemon = int(pid_file.read_text())
        assert alive(daemon)
        parent.kill()
    wait_until(lambda: not alive(daemon))


def test_a_service_of_a_service_ends_with_the_outer_one(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "import sys, time; from pathlib import Path; from sglforge.base import proc\n"
        "proc.spawn([sys.executable, *sys.argv[2:]], log=Path(sys.argv[1])); time.sleep(60)\n"
    )
    outer = proc.spawn([PYTHON, "-c", script, tmp_path / "inner", ESCAPES, pid_file], log=tmp_path / "outer")
    wait_until(pid_file.exists)
    daemon = int(pid_file.read_text())
    assert daemon in outer.members()
    outer.stop(grace_s=5)
    assert not alive(daemon)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_service_ends_when_who_started_it_dies(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import sys, time; from pathlib import Path; from sglforge.base import proc\n"
        "service = proc.spawn(['sh', '-c', 'sleep 60 & sleep 60 & wait'], log=Path(sys.argv[1]))\n"
        "while len(service.members()) < 3: time.sleep(0.02)\n"
        "print(*service.members(), flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([PYTHON, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        members = [int(word) for word in parent.stdout.readline().split()]
        assert len(members) == 3
        parent.send_signal(number)
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in members) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in members)


def test_a_long_program_ends_when_who_ran_it_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys; from sglforge.base import proc\n"
        "proc.run(['sh', '-c', 'sleep 60 & echo $! $$ > \"$0\"; wait', sys.argv[1]], timeout_s=3600)\n"
    )
    pids = tmp_path / "pids"
    with subprocess.Popen([PYTHON, "-c", script, str(pids)]) as parent:
        deadline = time.monotonic() + 10
        while not (pids.exists() and pids.read_text().strip()) and time.monotonic() < deadline:
            time.sleep(0.02)
        members = [int(word) for word in pids.read_text().split()]
        assert len(members) == 2
        parent.kill()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in members) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in members)


@pytest.mark.parametrize("call", ["run(words, timeout_s=3600)", "spawn(words, log=log)"])
def test_a_program_whose_parent_is_killed_right_after_its_start_is_ended(call: str, tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from sglforge.base import proc\n"
        "start, log = proc._start, Path(sys.argv[2])\n"
        "def and_die(*words, **more):\n"
        "    start(*words, **more); os.kill(os.getpid(), 9)\n"
        "proc._start = and_die\n"
        f"words = ['sh', '-c', 'setsid sleep $0 & exec sleep $0', sys.argv[1]]; proc.{call}\n"
    )
    duration = f"60.{os.getpid()}{time.monotonic_ns()}"
    with subprocess.Popen([PYTHON, "-c", script, duration, str(tmp_path / "log")]) as parent:
        assert parent.wait() == -signal.SIGKILL
    time.sleep(1)
    wait_until(lambda: not running(duration))


@pytest.mark.parametrize("timeout_s", [1.0, 3600.0])
def test_what_cannot_be_run_is_named_whether_it_is_guarded_or_not(timeout_s: float, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for program in ("no-such-program", str(tmp_path / "gone"), str(tmp_path / "text"), str(tmp_path), "./text"):
        with pytest.raises(proc.ProcessError, match="program-missing") as caught:
            proc.run([program], timeout_s=timeout_s, cwd=tmp_path)
        assert program in str(caught.value)


def test_a_cancellation_ends_a_program_in_another_thread_with_its_children(tmp_path: Path) -> None:
    cancellation, pids, seen = Cancellation(), tmp_path / "pids", []

    def work() -> None:
        try:
            proc.run(["sh", "-c", 'sleep 60 & echo $! $$ > "$0"; wait', pids], cancellation=cancellation)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is looked at
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    cancellation.cancel()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert [type(error) for error in seen] == [Cancelled]
    assert not any(alive(int(word)) for word in pids.read_text().split())


def test_what_is_cancelled_does_not_start(tmp_path: Path) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        proc.run(["touch", tmp_path / "started"], cancellation=cancellation)
    assert not (tmp_path / "started").exists()


def test_a_program_that_may_be_cancelled_has_its_time_and_its_input() -> None:
    cancellation = Cancellation()
    slow = ["sh", "-c", "sleep 0.5; cat"]
    assert proc.run(slow, stdin="hello" * 50_000, cancellation=cancellation).stdout == "hello" * 50_000
    with pytest.raises(proc.ProcessError, match="process-timeout"):
        proc.run(["sleep", "60"], timeout_s=0.3, cancellation=cancellation)
