"""Sweeps of concurrency on the fake server: where its drafts cost more than they bring, and where it fails."""

from __future__ import annotations

import json

import pytest
from fake_serving import FakeEnvironment, marked
from unit.smoke.conftest import ROOT, make_profile
from unit.smoke.conftest import Bench as Place

from sglforge.config.model import Target
from sglforge.smoke.bench import Bench
from sglforge.smoke.subject import of_profile
from sglforge.smoke.sweep import Plan, Sweep, sweep, unspeculated

CPU = Target(name="cpu", description="This machine's CPU.", kind="cpu")
STEP_MS = "10"


@pytest.fixture(autouse=True)
def short_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.sweep._WAVE_S", 0.12)
    monkeypatch.setattr("sglforge.smoke.sweep._FIRST_TOKENS", 16)
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.4)


def swept(
    place: Place, *concurrency: int, fault: str = "", flags: dict[str, object] | None = None, **variables: str
) -> Sweep:
    profile = make_profile(fault, speculative=True, request_timeout_s=3.0)
    profile = profile.model_copy(
        update={
            "environment": {**profile.environment, "FAKE_TOKEN_MS": STEP_MS, **variables},
            "flags": {**profile.flags, **(flags or {})},
        }
    )
    environment = place.environment
    assert isinstance(environment, FakeEnvironment)
    return sweep(
        Bench(
            profile=profile,
            subject=of_profile(profile, "cpu-logic"),
            target=CPU,
            environment=environment,
            catalog_root=ROOT,
            tree=None,
            record=place.record,
            noise=None,
            progress=lambda _note: None,
            stop_grace_s=5.0,
            step="tune",
        ),
        Plan(concurrency=concurrency, repeats=3),
    )


def test_drafts_that_cost_more_with_each_request_pay_less(bench: Place) -> None:
    found = swept(bench, 1, 24, FAKE_DRAFT_MS="3")
    assert (found.failed, found.findings, found.sglang) == (False, [], "0.5.23")
    assert list(unspeculated(found)) == []
    one, many = found.levels()
    assert (one.concurrency, many.concurrency) == (1, 24)
    assert many.gain < one.gain  # six times, as the fake server sleeps
    assert (found.accept_length(1) or 0) > 1.5


def test_repeats_of_a_level_lie_between_those_of_the_others(bench: Place) -> None:
    found = swept(bench, 1, 4)
    order = [(point.role, point.turn, point.concurrency) for point in found.points]
    turns = [(0, 1), (0, 4), (1, 4), (1, 1), (2, 1), (2, 4)]
    assert order == [(role, *turn) for role in ("profile", "control") for turn in turns]
    asked = {(point.role, point.concurrency): point.asked for point in found.points}
    for count in (1, 4):
        assert asked["profile", count] == asked["control", count]
    for point in found.points:
        assert point.wave.tokens == point.asked * point.concurrency
    events = [json.loads(line) for line in (bench.record.folder / "events.jsonl").read_text().splitlines()]
    assert [event["concurrency"] for event in events if event["event"] == "wave"] == [count for _, _, count in order]


def test_a_level_that_the_server_does_not_run_at_once_is_left_out(bench: Place) -> None:
    found = swept(bench, 1, 4, 16, flags={"max-running-requests": 4})
    assert [level.concurrency for level in found.levels()] == [1, 4]
    assert [(finding.code, finding.subject) for finding in found.findings] == [("concurrency-too-high", "16")]
    assert not found.failed


def test_a_level_without_room_for_its_tokens_is_left_out(bench: Place) -> None:
    found = swept(bench, 1, 16, flags={"max-total-tokens": 512})
    assert [level.concurrency for level in found.levels()] == [1]
    assert "the KV cache has room" in found.findings[0].message


def test_a_server_that_drafts_nothing_is_said_to_be_the_same(bench: Place) -> None:
    found = swept(bench, 1, fault="no-speculation", FAKE_SPARE_CONTROL="0")
    assert [finding.code for finding in unspeculated(found)] == ["spec-no-gain"]


@pytest.mark.parametrize(
    ("fault", "spare", "code", "points"),
    [
        ("dies-at-start", "1", "server-died", 0),
        ("control-dies", "0", "server-died", 6),
        ("dies-in-decode", "1", "server-died", 0),
        ("scheduler-dead-health-200", "1", "measure-unanswered", 0),
        ("refuses", "1", "measure-unanswered", 0),
    ],
)
def test_a_server_that_fails_ends_the_sweep_with_what_was_measured(
    bench: Place, fault: str, spare: str, code: str, points: int
) -> None:
    found = swept(bench, 1, 2, fault=fault, FAKE_SPARE_CONTROL=spare)
    assert found.failed
    assert [finding.code for finding in found.findings] == [code]
    assert len(found.points) == points
    assert found.levels() == ()
    assert marked("BENCH", bench.record.folder) == []
