"""The events of runs: every one is in the schema, in order, and tells how the run ended."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mini_catalog import FAILS, HOLDS, ROOT, Mini

from sglforge.base import console, runrecord
from sglforge.base.console import Console
from sglforge.pipeline.events import EVENTS, adapter, name_of


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    return Mini(root=tmp_path)


def events(path: Path) -> list[dict[str, object]]:
    """Return the events of a file, each held to the schema."""
    lines = path.read_text().splitlines()
    for line in lines:
        adapter().validate_json(line)
    return [json.loads(line) for line in lines]


def names(found: list[dict[str, object]]) -> list[object]:
    return [event["event"] for event in found]


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_build_tells_what_happens_from_the_first_word_to_the_exit_code(mini: Mini, tmp_path: Path) -> None:
    mini.released("toy")
    mini.source("other")
    mini.write()
    file = tmp_path / "events"
    assert mini.call("build", "toy", "other", "--events", file).returncode == 0
    found = events(file)
    assert file.read_text() == (mini.last_run / "events.jsonl").read_text()
    assert [event["seq"] for event in found] == list(range(len(found)))
    assert found[0] | {"time": 0} == {
        "seq": 0,
        "time": 0,
        "event": "run-started",
        "run": mini.last_run.name,
        "verb": "build",
        "argv": found[0]["argv"],
        "versions": found[0]["versions"],
    }
    assert found[0]["argv"][:3] == ["build", "toy", "other"]  # type: ignore[index]
    assert {event["step"] for event in found if event["event"] == "step-finished"} == {
        "doctor", "fetch toy", "build toy", "build other",
    }  # fmt: skip
    assert names(found)[-2:] == ["verdict", "run-finished"]
    assert found[-1]["exit_code"] == 0
    assert mini.call("build", "toy", "other", "--events", file).returncode == 0
    again = events(file)[len(found) :]
    assert names(again)[0] == "run-started"
    assert [event["state"] for event in again if event["event"] == "step-finished"] == ["ok", "hit", "hit"]


def test_a_failed_build_tells_its_findings_and_its_exit_code(mini: Mini) -> None:
    mini.source("bad", does=FAILS)
    mini.write()
    assert mini.call("build", "bad").returncode == 7
    found = events(mini.last_run / "events.jsonl")
    assert [event["code"] for event in found if event["event"] == "finding"] == ["build-backend-failed"]
    assert [event["state"] for event in found if event["event"] == "step-finished"] == ["ok", "failed"]
    assert (found[-2]["verdict"], found[-1]["exit_code"]) == ("fail", 7)
    assert json.loads((mini.last_run / "run.json").read_text())["result"]["verdict"] == "fail"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_last_event_tells_a_run_that_ended_from_one_that_was_killed(mini: Mini, number: signal.Signals) -> None:
    mini.source("slow", does=HOLDS)
    mini.write()
    with mini.start("build", "slow") as build:
        until(lambda: mini.pids("slow"))
        build.send_signal(number)
        build.communicate(timeout=60)
    found = events(mini.last_run / "events.jsonl")
    if number == signal.SIGKILL:
        assert "run-finished" not in names(found)
    else:
        assert found[-1]["exit_code"] == 130
        assert [event["code"] for event in found if event["event"] == "finding"] == ["run-interrupted"]
        assert found[[event.get("step") for event in found].index("build slow") + 1]["event"] != "run-started"
        assert json.loads((mini.last_run / "run.json").read_text())["result"]["verdict"] == "unknown"


def test_a_reader_that_leaves_does_not_harm_the_build(mini: Mini, tmp_path: Path) -> None:
    mini.source("toy")
    mini.write()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with mini.start("build", "toy", "--events", fifo) as build:
        with fifo.open() as reader:
            assert json.loads(reader.readline())["event"] == "run-started"
        _, talk = build.communicate(timeout=60)
    assert build.returncode == 0, talk
    assert names(events(mini.last_run / "events.jsonl"))[-1] == "run-finished"


def test_a_fifo_that_nobody_reads_is_refused_before_anything_is_done(mini: Mini, tmp_path: Path) -> None:
    mini.source("toy")
    mini.write()
    os.mkfifo(tmp_path / "fifo")
    done = mini.call("build", "toy", "--json", "--events", tmp_path / "fifo", timeout_s=30)
    assert done.returncode == 2
    assert [finding["code"] for finding in json.loads(done.stdout)["findings"]] == ["events-without-reader"]
    assert not (mini.workspace / "runs").exists()


def test_events_do_not_go_where_the_result_goes(mini: Mini) -> None:
    mini.source("toy")
    mini.write()
    done = mini.call("build", "toy", "--json", "--events", "/dev/stdout")
    assert done.returncode == 2
    assert [finding["code"] for finding in json.loads(done.stdout)["findings"]] == ["usage"]


def test_progress_is_told_at_most_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = runrecord.start(tmp_path)
    shared = Console(recorder=record)
    with shared.step("x") as step:
        for turn in range(1000):
            step.progress(turn, 1000, note=f"{turn} MB")
    found = events(record.folder / "events.jsonl")
    assert names(found) == ["step-started", "step-progress", "step-finished"]
    monkeypatch.setattr(console, "PROGRESS_EVENT_EVERY_S", 0.0)
    with shared.step("x") as step:
        for turn in range(10):
            step.progress(turn, 1000)
    assert names(events(record.folder / "events.jsonl")).count("step-progress") == 11


def test_odd_values_are_still_a_line_of_json(tmp_path: Path) -> None:
    record = runrecord.start(tmp_path)
    record.event("step-progress", step="a\nb\ud800", done=float("nan"), total=float("inf"), note="::x")
    (line,) = (record.folder / "events.jsonl").read_text().splitlines()
    told = json.loads(line, parse_constant=pytest.fail)
    assert (told["done"], told["total"], told["step"]) == (None, None, "a\nb?")


def test_after_the_end_nothing_is_told(tmp_path: Path) -> None:
    record = runrecord.start(tmp_path)
    record.event("run-finished", exit_code=0, seconds=1.0)
    record.close()
    record.event("build-phase", package="x", phase="pack", outcome="done", seconds=1.0)
    assert names(events(record.folder / "events.jsonl")) == ["run-finished"]


def test_every_event_in_the_source_is_in_the_schema() -> None:
    told = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'\.(?:event|record)\(\s*"([a-z-]+)"', path.read_text())
    }
    assert told == {name_of(model) for model in EVENTS}
