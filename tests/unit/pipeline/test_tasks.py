"""Tasks side by side: their order, their slots, what happens when one fails or all are interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.base.cancel import Cancellation, Cancelled
from sglforge.errors import BuildError, FetchError, SglforgeError
from sglforge.pipeline.tasks import Failure, Task, carry_out, fault_of

SLOTS = {"build": 2}


def do(
    tasks: Sequence[Task],
    *,
    slots: dict[str, int] = SLOTS,
    failing: Callable[[Failure, tuple[str, ...]], None] = lambda _failure, _running: None,
    cancellation: Cancellation | None = None,
) -> tuple[Failure, ...]:
    return carry_out(tasks, slots=slots, cancellation=cancellation or Cancellation(), failing=failing)


def task(name: str, work: Callable[[], object], *needs: str) -> Task:
    return Task(name=name, kind="build", work=work, needs=needs)


@given(
    needs=st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=7),
    slots=st.integers(1, 3),
    broken=st.none() | st.integers(0, 6),
)
def test_what_is_needed_comes_first_and_no_kind_has_more_than_its_slots(
    needs: list[set[int]], slots: int, broken: int | None
) -> None:
    """Any graph without a circle: a task needs only some of those before it."""
    lock, now, most, done, started = threading.Lock(), 0, 0, set[int](), set[int]()
    before = [{other for other in wanted if other < number} for number, wanted in enumerate(needs)]

    def work(number: int) -> None:
        nonlocal now, most
        with lock:
            assert before[number] <= done
            started.add(number)
            now += 1
            most = max(most, now)
        time.sleep(0.0005)
        with lock:
            now -= 1
            if number == broken:
                raise BuildError(code="x", message="x")
            done.add(number)

    tasks = [
        task(str(number), lambda number=number: work(number), *map(str, wanted))  # type: ignore[misc]
        for number, wanted in enumerate(before)
    ]
    failures = do(tasks, slots={"build": slots})
    assert most <= slots
    if broken in started:
        assert [failure.task for failure in failures] == [str(broken)]
        assert done == started - {broken}
    else:
        assert failures == ()
        assert done == set(range(len(needs)))


def test_two_that_need_nothing_of_each_other_run_at_once() -> None:
    both = threading.Barrier(2)
    assert do([task("a", lambda: both.wait(10)), task("b", lambda: both.wait(10))]) == ()


def test_a_fetch_runs_beside_a_build() -> None:
    both = threading.Barrier(2)
    tasks = [task("a", lambda: both.wait(10)), Task(name="b", kind="fetch", work=lambda: both.wait(10))]
    assert do(tasks, slots={"build": 1, "fetch": 1}) == ()


def test_after_a_failure_nothing_starts_and_what_runs_comes_to_its_end() -> None:
    failed, done = threading.Event(), []

    def fail() -> None:
        raise BuildError(code="first", message="m")

    def long() -> None:
        assert failed.wait(10)
        done.append("long")

    said = []

    def failing(failure: Failure, running: tuple[str, ...]) -> None:
        said.append((failure.task, running))
        failed.set()

    tasks = [task("long", long), task("bad", fail), task("after", lambda: done.append("after"))]
    failures = do(tasks, failing=failing)
    assert [failure.task for failure in failures] == ["bad"]
    assert done == ["long"]
    assert said == [("bad", ("long",))]


def test_ctrl_c_cancels_what_runs_and_waits_for_it() -> None:
    cancellation, ended = Cancellation(), []

    def wait() -> None:
        try:
            cancellation.sleep(30)
        except Cancelled:
            time.sleep(0.1)
            ended.append("cleaned up")
            raise

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do([task("waits", wait), task("stops", interrupt)], cancellation=cancellation)
    assert ended == ["cleaned up"]


def test_one_that_hangs_does_not_keep_an_interrupted_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.pipeline.tasks.ENDING_S", 0.2)
    release = threading.Event()

    def interrupt() -> None:
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        do([task("hangs", lambda: release.wait(30)), task("stops", interrupt)])
    assert time.monotonic() - start < 10
    release.set()


def failure(error: Exception) -> Failure:
    return Failure(task="x", error=error)


def test_the_first_failure_decides_and_all_are_told() -> None:
    first, second = FetchError(code="a", message="m"), BuildError(code="b", message="m")
    fault = fault_of([failure(first), failure(second)])
    assert isinstance(fault, FetchError)
    assert [finding.code for finding in fault.as_findings()] == ["a", "b"]
    assert fault_of([failure(second)]) is second


def test_a_bug_is_not_hidden_behind_a_fault() -> None:
    bug = ZeroDivisionError()
    fault = fault_of([failure(BuildError(code="b", message="told")), failure(bug)])
    assert fault is bug
    assert not isinstance(fault, SglforgeError)
    assert "told" in "".join(bug.__notes__)


def test_a_program_that_looks_at_no_cancellation_ends_with_an_interrupted_run(tmp_path: Path) -> None:
    """It is left behind with its thread, and ended by its guard when the process ends."""
    script = (
        "import sys; from sglforge.base import proc; from sglforge.base.cancel import Cancellation\n"
        "from sglforge.pipeline import tasks; tasks.ENDING_S = 0.3\n"
        "work = lambda: proc.run(['sh', '-c', 'echo $$ >\"$0\"; sleep 600; true', sys.argv[1]])\n"
        "one = tasks.Task(name='a', kind='fetch', work=work)\n"
        "tasks.carry_out([one], slots={'fetch': 1}, cancellation=Cancellation(), failing=print)\n"
    )
    pid = tmp_path / "pid"
    with subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", script, pid], stderr=subprocess.DEVNULL
    ) as process:
        until(lambda: pid.exists() and pid.read_text().strip())
        child = Path("/proc") / pid.read_text().strip()
        assert child.exists()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
    until(lambda: not child.exists())


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
