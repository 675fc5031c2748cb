"""Fetching and building side by side, with processes that really run, fail and are interrupted."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mini_catalog import FAILS, HOLDS, Mini
from screen import run_in_terminal


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    return Mini(root=tmp_path)


def until(happened: Callable[[], object], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


def test_two_packages_are_built_at_once_and_told_in_the_order_of_the_plan(mini: Mini) -> None:
    mini.source("slow", does=HOLDS)
    mini.source("quick", does=HOLDS)
    mini.write()
    with mini.start("build", "quick", "slow", "--json") as build:
        until(lambda: mini.pids("slow") and mini.pids("quick"))
        mini.gate("quick").touch()
        until(lambda: any((one["event"], one.get("step")) == ("step-finished", "build quick") for one in mini.events()))
        mini.gate("slow").touch()
        out, talk = build.communicate(timeout=60)
    assert build.returncode == 0, talk
    assert talk.index("build quick") < talk.index("build slow")
    assert [step["package"] for step in json.loads(out)["steps"]] == ["slow", "quick"]


def test_with_one_job_one_after_the_other(mini: Mini) -> None:
    mini.source("first", does=HOLDS)
    mini.source("second")
    mini.write()
    with mini.start("build", "first", "second", "--jobs", "1") as build:
        until(lambda: mini.pids("first"))
        time.sleep(0.5)
        assert mini.log("second") == ""
        mini.gate("first").touch()
        _, talk = build.communicate(timeout=60)
    assert build.returncode == 0, talk


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_number_of_jobs_that_is_none_is_refused(mini: Mini, jobs: str) -> None:
    done = mini.write().call("build", "--jobs", jobs)
    assert done.returncode == 2
    assert "is no number from 1 to 100000" in done.stderr


def test_a_package_waits_for_what_it_depends_on(mini: Mini) -> None:
    mini.source("base", does=HOLDS)
    mini.source("above", depends=["base"])
    mini.write()
    with mini.start("build", "above") as build:
        until(lambda: mini.pids("base"))
        time.sleep(0.5)
        assert mini.log("above") == ""
        mini.gate("base").touch()
        out, talk = build.communicate(timeout=60)
    assert build.returncode == 0, talk
    assert [Path(line).name.partition("-")[0] for line in out.splitlines()] == ["above"]


def test_a_failure_lets_what_runs_finish_and_be_stored_and_starts_nothing_new(mini: Mini) -> None:
    mini.source("long", does=HOLDS)
    mini.source("bad", does=FAILS)
    mini.source("after", depends=["long"])
    mini.write()
    with mini.start("build", "long", "bad", "after", "--json") as build:
        talk: list[str] = []
        reader = threading.Thread(target=lambda: talk.extend(build.stderr or ()))
        reader.start()
        until(lambda: any("nothing new starts; build long may end first" in line for line in talk))
        mini.gate("long").touch()
        assert build.wait(timeout=60) == 7
        reader.join()
        document = json.loads(build.stdout.read() if build.stdout else "")
    assert [finding["code"] for finding in document["findings"]] == ["build-backend-failed"]
    again = mini.call("plan", "--json")
    states = {step["package"]: step["state"] for step in json.loads(again.stdout)["steps"]}
    assert states == {"long": "hit", "bad": "miss", "after": "miss"}
    assert mini.log("after") == ""


def test_every_failure_is_told_and_the_first_decides(mini: Mini) -> None:
    mini.source("bad", does=HOLDS + FAILS)
    mini.released("gone").unlink()
    mini.write()
    with mini.start("build", "bad", "gone", "--json") as build:
        until(lambda: mini.pids("bad"))
        time.sleep(1)
        mini.gate("bad").touch()
        out, talk = build.communicate(timeout=60)
    assert build.returncode == 5, talk
    assert [finding["code"] for finding in json.loads(out)["findings"]] == ["not-on-index", "build-backend-failed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_process_of_any_thread(mini: Mini, number: signal.Signals) -> None:
    mini.source("one", does=HOLDS)
    mini.source("two", does=HOLDS)
    mini.write()
    with mini.start("build", "one", "two", "--json") as build:
        until(lambda: mini.pids("one") and mini.pids("two"))
        pids = [*mini.pids("one"), *mini.pids("two")]
        assert all(alive(pid) for pid in pids)
        start = time.monotonic()
        build.send_signal(number)
        out, talk = build.communicate(timeout=60)
    assert time.monotonic() - start < 10
    until(lambda: not any(alive(pid) for pid in pids), within_s=10)
    if number != signal.SIGKILL:
        assert build.returncode == 130
        assert "Traceback" not in talk
        assert [finding["code"] for finding in json.loads(out)["findings"]] == ["run-interrupted"]
        assert [path for path in (mini.workspace / "scratch").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_key_that_is_pressed_five_times_does_no_more_than_once(mini: Mini, second: signal.Signals) -> None:
    mini.source("one", does=HOLDS)
    mini.source("two", does=HOLDS)
    mini.write()
    with mini.start("build", "one", "two", "--json") as build:
        until(lambda: mini.pids("one") and mini.pids("two"))
        build.send_signal(signal.SIGINT)
        for _ in range(4):
            time.sleep(0.02)
            build.send_signal(second)
        out, talk = build.communicate(timeout=60)
    assert (build.returncode, "Traceback" in talk) == (130, False)
    assert [finding["code"] for finding in json.loads(out)["findings"]] == ["run-interrupted"]
    assert [*(mini.workspace / "scratch").iterdir()] == []
    assert [*(mini.workspace / "locks").glob("*.holder")] == []


def test_ctrl_c_on_a_terminal_ends_with_what_is_done_and_how_to_go_on(mini: Mini) -> None:
    mini.source("one")
    mini.source("two", does=HOLDS, depends=["one"])
    mini.source("three", does=HOLDS, depends=["one"])
    mini.write()
    env = mini.environment({"TERM": "xterm-256color"})
    shown = run_in_terminal(
        mini.argv("build", "two", "three"),
        columns=200,
        env=env,
        interrupt=lambda raw: bool(mini.pids("two") and mini.pids("three")) and "build three" in raw,
    )
    assert shown.code == 130
    assert mini.pids("two") == mini.pids("three") == []
    end = "\n  done: build one\n  left: build two, build three\n  go on with: nox -s build -- two three --catalog "
    assert end in shown.screen
    assert shown.screen.count("  stop  build ") == 2
    assert re.search(r"build two.*\n.*build three", shown.raw), "both were shown at once"


@contextmanager
def silent_server() -> Iterator[str]:
    """Accept connections and say nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


def test_ctrl_c_does_not_wait_for_a_server_that_says_nothing(mini: Mini) -> None:
    mini.released("far")
    mini.released("farther")
    mini.write()
    with silent_server() as url:
        pip = {"PIP_INDEX_URL": url, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": ""}
        with mini.start("fetch", env=pip) as fetch:
            until((mini.workspace / "runs" / "latest").exists)
            time.sleep(1)
            start = time.monotonic()
            fetch.send_signal(signal.SIGINT)
            _, talk = fetch.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert fetch.returncode == 130, talk
    assert "Traceback" not in talk
