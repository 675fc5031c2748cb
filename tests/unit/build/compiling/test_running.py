"""Compilers that run for real: how they end, what they say, what they take."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sglforge.build.compiling import running

SRC = Path(running.__file__).parents[3]
EATS = 'import sys; kept = b"x" * (int(sys.argv[1]) << 20); import time; time.sleep(float(sys.argv[2]))'


def eat(mib: int, seconds: float = 0.0) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", EATS, str(mib), str(seconds)]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)]
)
def test_how_it_ends_is_known(script: str, code: int) -> None:
    ran = running.run(["sh", "-c", script], -1, lambda _: None)
    assert os.waitstatus_to_exitcode(ran.status) == code
    assert running.was_killed(ran.status) == (code == -9)
    ran.forget()


def test_a_shell_that_says_its_child_was_killed_counts() -> None:
    ran = running.run(["sh", "-c", "sh -c 'kill -KILL $$'; exit $?"], -1, lambda _: None)
    assert running.was_killed(ran.status)


def test_a_descriptor_is_inherited_by_all_and_by_nobody_else(tmp_path: Path) -> None:
    with (tmp_path / "held").open("w") as file:
        ran = running.run(["sh", "-c", f"test -e /proc/self/fd/{file.fileno()}"], file.fileno(), lambda _: None)
        assert ran.status == 0
        assert not os.get_inheritable(file.fileno())


def launched(body: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that calls `running`, with its own output."""
    return subprocess.run(
        [sys.executable, "-c", f"import os, sys\nfrom sglforge.build.compiling import running\n{body}"],
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )


def measured(script: str) -> tuple[float, float, list[int]]:
    """Return the peak in MiB, the CPU seconds and what was told in KiB, as a launcher sees them.

    It is a small Python: the kernel counts what a process takes before it becomes another program as that one's.
    """
    body = (
        "seen = []\n"
        f"ran = running.run(['sh', '-c', {script!r}], -1, seen.append)\n"
        "ran.forget()\nprint(ran.peak_kib / 1024, ran.cpu_s, *seen)"
    )
    peak_mib, cpu_s, *seen = launched(body).stdout.split()
    return float(peak_mib), float(cpu_s), [int(word) for word in seen]


def test_the_largest_process_is_measured_however_short() -> None:
    peak_mib, cpu_s, _ = measured(f"{shlex.join(eat(120))}; true")
    assert 120 <= peak_mib < 180
    assert cpu_s > 0


def test_processes_beside_each_other_are_added_up() -> None:
    words = shlex.join(eat(80, 2.0))
    peak_mib, _, seen = measured(f"{words} & {words} & wait")
    assert 160 <= peak_mib < 240
    assert max(seen) == round(peak_mib * 1024)


def test_what_is_said_goes_where_it_belongs_in_its_order() -> None:
    body = "running.run(['sh', '-c', 'echo a; echo b >&2; echo c'], -1, lambda _: None).say()"
    done = launched(body)
    assert (done.stdout, done.stderr) == ("a\nc\n", "b\n")
    together = launched("os.dup2(1, 2)\n" + body)
    assert together.stdout == "a\nb\nc\n"


def test_what_was_said_in_vain_is_dropped() -> None:
    done = launched("running.run(['sh', '-c', 'echo a; echo b >&2'], -1, lambda _: None).forget()")
    assert (done.stdout, done.stderr) == ("", "")


def test_ctrl_c_waits_for_the_compiler() -> None:
    script = 'trap "echo ending; exit 5" INT; sleep 0.3; kill -INT $PPID $$; sleep 1'
    body = (
        f"ran = running.run(['sh', '-c', {script!r}], -1, lambda _: 0)\n"
        "ran.say()\nprint(os.waitstatus_to_exitcode(ran.status))"
    )
    done = launched(body)
    assert done.stdout == "ending\n5\n", done.stderr


def test_a_process_that_is_gone_takes_nothing() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert running.tree_kib(child.pid) == 0


def test_a_missing_compiler_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        running.run(["/no/such/compiler"], -1, lambda _: None)


def test_without_pidfd_it_looks_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(38, "not there")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    ran = running.run(["sh", "-c", "sleep 0.3; exit 4"], -1, lambda _: None)
    assert os.waitstatus_to_exitcode(ran.status) == 4


def test_sigkill_is_what_is_looked_for() -> None:
    assert signal.SIGKILL == running.SIGKILL
