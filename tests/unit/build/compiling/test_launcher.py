"""Launchers that run for real, with a compiler that takes memory as it is told: one by one, killed, side by side."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sglforge.base.sandbox.step import Sandbox
from sglforge.build.compiling import ledger, peaks
from sglforge.config.model import CompileMemory
from sglforge.errors import BuildError

from .conftest import NINJA, Project

Make = Callable[[], Project]


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=60)
    return process.returncode


def wait_for(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_unit_is_compiled_measured_and_known_the_next_time(project: Make) -> None:
    toy = project()
    toy.add("page", mib=96, seconds=0.3)
    with toy.compiling() as scope:
        done = toy.run(scope, "page")
        assert (done.returncode, done.stderr) == (0, "compiling page.cu\n")
        (unit,) = scope.report().units
    assert (toy.folder / "page.o").exists()
    assert (unit.name, unit.outcome, unit.attempts) == ("page.o", "done", 1)
    assert 96 <= unit.peak_mib < 160
    assert unit.seconds >= 0.3
    assert peaks.load(toy.workspace.compiling / "peaks/gpu/toy.json")["page.o"][0] == unit.peak_mib
    with toy.compiling() as scope:
        assert scope.expected_mib("page.o") == unit.peak_mib
        assert scope.expected_mib("other.o") == round(0.1 * 1024)


@pytest.mark.parametrize(("ending", "code"), [("3", 3), ("1", 1), ("255", 255)])
def test_a_compiler_that_fails_fails(project: Make, ending: str, code: int) -> None:
    toy = project()
    toy.add("x", ending=ending)
    with toy.compiling() as scope:
        done = toy.run(scope, "x")
        assert (done.returncode, done.stderr) == (code, "compiling x.cu\n")
        assert [unit.outcome for unit in scope.report().units] == ["failed"]
    assert toy.runs("x") == 1
    assert not (toy.folder / "x.o").exists()


def test_what_is_no_compilation_is_passed_on_as_it_is(project: Make) -> None:
    toy = project()
    with toy.compiling() as scope:
        done = subprocess.run(
            [scope.launcher, "sh", "-c", "echo $0 $1; exit 7", "a b", "c"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (7, "a b c\n")
        missing = subprocess.run(
            [scope.launcher, "/no/such/nvcc", "-c", "x.cu"], capture_output=True, text=True, check=False
        )
        assert (missing.returncode, missing.stderr) == (
            127,
            "sglforge: cannot run /no/such/nvcc: No such file or directory\n",
        )
        assert "Traceback" not in missing.stderr


def test_one_that_was_killed_runs_again_alone_and_its_first_words_are_dropped(project: Make) -> None:
    toy = project()
    toy.add("x", ending="die-once")
    with toy.compiling() as scope:
        done = toy.run(scope, "x")
        assert (done.returncode, done.stderr) == (0, "compiling x.cu\n")
        (unit,) = scope.report().units
        assert (unit.outcome, unit.attempts) == ("done", 2)
        assert "ran again alone" in scope.report().describe()[0]
    assert toy.runs("x") == 2


def test_one_that_is_killed_alone_too_fails_and_is_refused_the_next_time(project: Make, tmp_path: Path) -> None:
    toy = project()
    toy.add("x", mib=64, ending="die")
    root = machine(tmp_path / "machine", limit_mib=320)
    toy.memory = CompileMemory(default=0.01)
    with toy.compiling(root=root) as scope:
        done = toy.run(scope, "x")
        assert done.returncode == -signal.SIGKILL
        assert "x.o was killed for want of memory, alone too" in done.stderr
        assert [(unit.outcome, unit.attempts) for unit in scope.report().units] == [("killed", 2)]
    with toy.compiling(root=root) as scope, pytest.raises(BuildError):
        scope.require(["x.o"])
    assert toy.runs("x") == 2


def test_while_one_runs_again_alone_nobody_starts(project: Make) -> None:
    toy = project()
    toy.add("busy", seconds=1.0)
    toy.add("killed", seconds=0.5, ending="die-once")
    toy.add("late")
    with toy.compiling(jobs=4) as scope:
        busy, killed = toy.start(scope, "busy"), toy.start(scope, "killed")
        wait_for(lambda: toy.runs("killed") == 1 and toy.runs("busy") == 1)
        time.sleep(0.6)
        late = toy.start(scope, "late")
        assert [ended(process) for process in (busy, killed, late)] == [0, 0, 0]
        order = [unit.name for unit in scope.report().units]
    assert order == ["busy.o", "killed.o", "late.o"]


def test_what_does_not_fit_beside_waits(project: Make, tmp_path: Path) -> None:
    toy = project()
    root = machine(tmp_path / "machine", limit_mib=1256)
    toy.memory = CompileMemory(default=0.1, units={"heavy*": 600 / 1024})
    toy.add("heavy1", seconds=0.6)
    toy.add("heavy2", seconds=0.1)
    toy.add("light", seconds=0.1)
    with toy.compiling(jobs=4, root=root) as scope:
        first = toy.start(scope, "heavy1")
        wait_for(lambda: toy.runs("heavy1") == 1)
        second, light = toy.start(scope, "heavy2"), toy.start(scope, "light")
        assert [ended(process) for process in (first, second, light)] == [0, 0, 0]
        found = {unit.name: unit for unit in scope.report().units}
    assert list(found) == ["light.o", "heavy1.o", "heavy2.o"]
    assert (found["heavy2.o"].waited_for, found["light.o"].waited_for) == ("memory", "")
    assert found["heavy2.o"].waited_s > 0.2


def machine(root: Path, *, limit_mib: int) -> Path:
    """Write a machine with a control group of version 2 and a limit, in which nothing is used."""
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
        "proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 33554432 kB\n",
        "sys/fs/cgroup/memory.max": f"{limit_mib << 20}\n",
        "sys/fs/cgroup/memory.current": "0\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_what_cannot_fit_is_refused_before_anything_starts(project: Make, tmp_path: Path) -> None:
    toy = project()
    toy.memory = CompileMemory(default=0.1, units={"*huge*": 19.3, "*large*": 9})
    toy.add("huge")
    with toy.compiling(root=machine(tmp_path / "machine", limit_mib=8192)) as scope:
        scope.require(["page/page.o", "light.o"])
        with pytest.raises(BuildError, match=r"a/huge_1.o takes 19.3 GiB to compile, and 7.8 GiB") as caught:
            scope.require(["page/page.o", "a/huge_1.o", "b/large.o"])
        assert caught.value.code == "unit-exceeds-memory"
        assert dict(caught.value.context) == {"a/huge_1.o": "19.3 GiB", "b/large.o": "9.0 GiB"}
        done = toy.run(scope, "huge")
        assert done.returncode == 1
        assert "is not started" in done.stderr
        assert [unit.name for unit in scope.report().refused] == ["huge.o"]
    assert toy.runs("huge") == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_launcher_leaves_room_once_its_compiler_has_ended(project: Make, number: int) -> None:
    toy = project()
    toy.add("long", seconds=1.0)
    toy.add("next")
    with toy.compiling(jobs=1) as scope:
        long = toy.start(scope, "long")
        wait_for(lambda: toy.runs("long") == 1)
        long.send_signal(number)
        long.wait()
        begin = time.monotonic()
        assert toy.run(scope, "next").returncode == 0
        assert time.monotonic() - begin > 0.3  # the compiler went on, and its memory counted
        (unit,) = scope.report().units
        assert unit.waited_for == "slots"
        assert list((toy.workspace.compiling / "ledger").glob("*.r")) == []


def test_ctrl_c_ends_the_launcher_as_it_ends_the_compiler(project: Make) -> None:
    toy = project()
    toy.add("long", seconds=30)
    toy.add("waits")
    with toy.compiling(jobs=1) as scope:
        long = toy.start(scope, "long", group=0)
        wait_for(lambda: toy.runs("long") == 1)
        waits = toy.start(scope, "waits", group=0)
        time.sleep(0.4)
        for process in (waits, long):
            os.killpg(process.pid, signal.SIGINT)
        said = [process.communicate(timeout=20)[1] for process in (waits, long)]
        assert [process.returncode for process in (waits, long)] == [-signal.SIGINT, -signal.SIGINT]
        assert said[0] == ""
    assert (toy.runs("long"), toy.runs("waits")) == (1, 0)


def test_two_builds_at_once_share_the_memory(project: Make, tmp_path: Path) -> None:
    toy = project()
    root = machine(tmp_path / "machine", limit_mib=1256)
    toy.memory = CompileMemory(default=600 / 1024)
    toy.add("a", seconds=0.5)
    toy.add("b", seconds=0.1)
    with toy.compiling(root=root) as one, toy.compiling(root=root) as two:
        first = toy.start(one, "a")
        wait_for(lambda: toy.runs("a") == 1)
        assert toy.run(two, "b").returncode == 0
        assert ended(first) == 0
        assert [unit.waited_for for unit in two.report().units] == ["memory"]


def test_it_works_inside_the_sandbox_with_nothing_but_its_folders(project: Make) -> None:
    toy = project()
    toy.add("page", mib=48, ending="die-once")
    with toy.compiling() as scope:
        sandbox = Sandbox(folders=(toy.folder, *scope.folders))
        sandbox(toy.call(scope, "page"), cwd=toy.folder, env={**toy.environment, **scope.variables}, timeout_s=60)
        (unit,) = scope.report().units
        assert (unit.outcome, unit.attempts) == ("done", 2)


def test_a_unit_in_a_sandbox_is_seen_from_outside_of_its_pid_namespace(project: Make) -> None:
    toy = project()
    toy.add("inside", seconds=1.0)
    toy.add("outside")
    with toy.compiling(jobs=1) as scope:
        sandbox = Sandbox(folders=(toy.folder, *scope.folders))
        words, own = toy.call(scope, "inside"), {**toy.environment, **scope.variables}
        step = threading.Thread(target=sandbox, args=(words,), kwargs={"cwd": toy.folder, "env": own, "timeout_s": 60})
        step.start()
        wait_for(lambda: toy.runs("inside") == 1)
        assert toy.run(scope, "outside").returncode == 0
        step.join()
        assert [unit.name for unit in scope.report().units] == ["inside.o", "outside.o"]


def test_a_step_that_may_not_write_to_ledger_and_cache_compiles_all_the_same(project: Make) -> None:
    toy = project()
    toy.add("x")
    toy.cached = True
    with toy.compiling() as scope:
        sandbox = Sandbox(folders=(toy.folder,))
        words = [scope.launcher, "nvcc", "-MD", "-MF", "x.d", "-c", "x.cu", "-o", "x.o"]
        sandbox(words, cwd=toy.folder, env={**toy.environment, **scope.variables}, timeout_s=60)
        assert scope.report().units == ()
    assert toy.runs("x") == 1
    assert (toy.folder / "x.o").exists()


@pytest.mark.parametrize("damage", ["ledger-gone", "settings-odd-peaks", "journal-a-folder"])
def test_damage_loses_no_unit(project: Make, damage: str) -> None:
    toy = project()
    toy.add("x")
    with toy.compiling() as scope:
        own, ledger, *_ = scope.folders
        if damage == "ledger-gone":
            ledger.rmdir()
        elif damage == "settings-odd-peaks":
            (own / "peaks").write_bytes(b"\xff\0x.o\tmany\nx.o\t\n")
        else:
            (own / "journal").mkdir()
        assert toy.run(scope, "x").returncode == 0
        scope.report()
    assert (toy.folder / "x.o").exists()


def test_a_unit_whose_known_peak_is_over_gives_back_what_it_will_not_need(project: Make) -> None:
    toy = project()
    toy.memory = CompileMemory(default=0.6)
    toy.add("falls", mib=384, seconds=1.6, ending="falls")
    folder = str(toy.workspace.compiling / "ledger")
    set_aside_mib = []
    peak = tail = 0
    for _ in range(2):
        with toy.compiling() as scope:
            falls = toy.start(scope, "falls")
            seen = set()
            while falls.poll() is None:
                seen |= {entry.need_kib // 1024 for entry in ledger.others(folder, "")}
                time.sleep(0.05)
            assert ended(falls) == 0
            set_aside_mib.append(seen)
        peak, tail = peaks.load(toy.workspace.compiling / "peaks/gpu/toy.json")["falls.o"]
        assert 384 <= peak < 480
        assert tail < 100
    assert set_aside_mib[0] == {614}
    assert min(set_aside_mib[1]) <= tail * 1.1 + 1
    assert max(set_aside_mib[1]) >= peak


def test_waiting_units_lend_their_slots_so_that_light_ones_go_on(project: Make, tmp_path: Path) -> None:
    toy = project()
    root = machine(tmp_path / "machine", limit_mib=1256)
    toy.memory = CompileMemory(default=0.05, units={"h*": 700 / 1024})
    for number in range(3):
        toy.add(f"h{number}", seconds=1.2)
    for number in range(4):
        toy.add(f"z{number}", seconds=0.1)
    with toy.compiling(jobs=2, root=root) as scope:
        done = toy.ninja(scope.launcher, dict(scope.variables))
        assert done.returncode == 0, done.stdout
        order = [unit.name for unit in scope.report().units]
    assert sorted(order) == sorted(toy.units.values())
    heavy = [order.index(f"h{number}.o") for number in range(3)]
    light = [order.index(f"z{number}.o") for number in range(4)]
    assert min(light) < sorted(heavy)[1]  # while one heavy unit ran and another waited for it in the second slot


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_killed_the_next_build_finishes_and_nothing_is_held(
    seed: int, project: Make, tmp_path: Path
) -> None:
    """Ninja, launchers and compilers are killed at random instants, several builds long."""
    choose = random.Random(seed)
    toy = project()
    toy.memory = CompileMemory(default=0.3)
    root = machine(tmp_path / "machine", limit_mib=1256)
    for number in range(8):
        toy.add(f"u{number}", mib=16, seconds=choose.uniform(0.05, 0.3))
    with toy.compiling(jobs=4, root=root) as scope:
        variables = {**toy.environment, **scope.variables}
        for _ in range(4):
            toy.write_ninja(scope.launcher)
            with subprocess.Popen([NINJA], cwd=toy.folder, env=variables, stdout=subprocess.DEVNULL) as ninja:
                time.sleep(choose.uniform(0.05, 0.5))
                below = processes_below(ninja.pid)
                for pid in choose.sample(below, min(len(below), choose.randint(0, 3))):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if choose.random() < 0.5:
                    ninja.kill()
        done = toy.ninja(scope.launcher, dict(scope.variables))
        assert done.returncode == 0, done.stdout
        scope.report()
    assert all((toy.folder / name).read_text().startswith("object of") for name in toy.units.values())
    assert ledger.others(str(toy.workspace.compiling / "ledger"), "") == []


def processes_below(pid: int) -> list[int]:
    found: list[int] = []
    left = [pid]
    while left:
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{left[-1]}/task/{left[-1]}/children").read_text().split()
            left = [*left[:-1], *map(int, children)]
            found += map(int, children)
            continue
        left.pop()
    return found
