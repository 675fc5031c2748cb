"""A sound server passes every probe, whatever it runs with; where something cannot be told, nobody says it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_serving import SMOKE, fake_process
from kill_cases import TREE, Case, profile_of
from unit.smoke.conftest import ROOT, Bench

from sglforge.base import runrecord
from sglforge.config.model import Profile, SmokeExpectations, Target
from sglforge.smoke import attached
from sglforge.smoke.probes.catalog import PROBES
from sglforge.smoke.probes.model import Need
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport

CPU = Target(name="cpu", description="This machine's CPU.", kind="cpu")
GPU = Target(name="sm120", description="A GPU.", kind="cuda")
FAKE = Path(__file__).parents[2] / "fake_sglang"
SPECULATIVE = {"spec-gain", "spec-parity"}
WITHOUT_A_THRESHOLD = {"threshold-wave"}
ALWAYS_SKIPPED = SPECULATIVE | WITHOUT_A_THRESHOLD


@pytest.fixture(autouse=True)
def short_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.4)


def verdicts(bench: Bench, profile: Profile, target: Target = CPU) -> dict[str, str]:
    report = run(
        profile,
        environment=bench.environment,
        catalog_root=ROOT,
        target=target,
        record=bench.record,
        tree=TREE,
    )
    return unlike_pass(report)


def unlike_pass(report: SmokeReport) -> dict[str, str]:
    """Return what is not a pass; of skipped probes only that they are."""
    return {
        one.name: "skipped" if one.verdict == "skipped" else f"{one.verdict}: {one.message}"
        for one in report.probes
        if one.verdict != "pass"
    }


def all_skipped(names: set[str]) -> dict[str, str]:
    return dict.fromkeys(names, "skipped")


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    ("case", "skipped"),
    [
        (Case(timeout_s=20.0), ALWAYS_SKIPPED),
        (Case(timeout_s=20.0, drafts=True), WITHOUT_A_THRESHOLD),
        (Case(timeout_s=20.0, drafts=True, threshold=2), set()),
        (Case(timeout_s=20.0, flags={"disable-radix-cache": True}), {*ALWAYS_SKIPPED, "prefix-hit"}),
        (Case(timeout_s=20.0, flags={"max-running-requests": 2}), ALWAYS_SKIPPED),
        (Case(timeout_s=20.0, flags={"context-length": 320}), ALWAYS_SKIPPED),
        (Case(timeout_s=20.0, flags={"context-length": 256}), ALWAYS_SKIPPED),
    ],
    ids=["plain", "drafts", "threshold", "no-cache", "two-at-once", "small-context", "smaller-context"],
)
def test_a_sound_server_passes(bench: Bench, case: Case, skipped: set[str], target: Target) -> None:
    assert verdicts(bench, profile_of("", case), target) == all_skipped(skipped)


def without_a_tool() -> Profile:
    profile = profile_of("", Case())
    smoke = SMOKE.model_copy(update={"tool": None})
    return profile.model_copy(update={"smoke": smoke, "flags": {"max-running-requests": 8}})


def test_a_server_without_a_parser_of_calls_passes_where_no_tool_is_named(bench: Bench) -> None:
    assert verdicts(bench, without_a_tool()) == all_skipped({*ALWAYS_SKIPPED, "tool-call"})


def test_a_model_without_a_chat_template_is_asked_no_chat(bench: Bench) -> None:
    profile = profile_of("no-chat-template", Case())
    assert verdicts(bench, profile) == all_skipped({*ALWAYS_SKIPPED, "chat", "tool-call"})


def test_a_rounding_that_company_decides_is_a_tie_on_a_gpu(bench: Bench) -> None:
    report = run(
        profile_of("rounding-tie", Case(drafts=True, threshold=2, timeout_s=20.0)),
        environment=bench.environment,
        catalog_root=ROOT,
        target=GPU,
        record=bench.record,
        tree=TREE,
    )
    assert unlike_pass(report) == {}
    (parallel,) = [one for one in report.probes if one.name == "parallel"]
    assert "part where two tokens are equally likely" in parallel.message


@contextmanager
def serving(*argv: str, fault: str = "") -> Iterator[str]:
    """Yield the address of a fake server that nobody of us started."""
    with fake_process(*argv, fault=fault) as (_, port):
        yield f"http://127.0.0.1:{port}"


def asked(url: str, folder: Path, smoke: SmokeExpectations | None = SMOKE) -> SmokeReport:
    return attached.run(url, record=runrecord.start(folder), expectations=smoke, request_timeout_s=20.0)


OWN: Mapping[str, set[str]] = {
    "sglang": {probe.name for probe in PROBES if {Need.OWN, Need.SPECULATION, Need.THRESHOLD} & set(probe.needs)},
    "openai": {probe.name for probe in PROBES if {Need.NATIVE, Need.OWN, Need.SPECULATION} & set(probe.needs)},
}


@pytest.mark.parametrize("api", OWN)
def test_a_server_of_somebody_else_passes(tmp_path: Path, api: str) -> None:
    argv = ["--openai-only"] if api == "openai" else ["--tool-call-parser", "hermes"]
    with serving(*argv) as url:
        assert unlike_pass(asked(url, tmp_path / "known")) == all_skipped(OWN[api])
        unknown = unlike_pass(asked(url, tmp_path / "unknown", None))
        assert set(unknown.values()) == {"skipped"}


def test_what_differs_on_a_server_that_tells_no_scores_stays_open(tmp_path: Path) -> None:
    with serving("--openai-only", fault="garbage-together") as url:
        report = asked(url, tmp_path)
    (parallel,) = [one for one in report.probes if one.name == "parallel"]
    assert parallel.verdict == "inconclusive"
    assert "whether both were equally likely cannot be told" in parallel.message
    assert report.verdict == "inconclusive"
