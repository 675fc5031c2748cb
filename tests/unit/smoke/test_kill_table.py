"""Every fault of the fake server is caught by exactly the probes that the kill table says, and each probe is needed."""

from __future__ import annotations

import pytest
from fake_sglang.faults import FAULTS
from kill_cases import PROBES_OF_LIFE, SOUND, TABLE, TREE, Case, profile_of, reference
from unit.smoke.conftest import ROOT, Bench

from sglforge.config.model import Target
from sglforge.smoke.probes.catalog import PROBES
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport

GPU = Target(name="sm120", description="A GPU.", kind="cuda")


def report_of(bench: Bench, fault: str, case: Case, target: Target | None = None) -> SmokeReport:
    return run(
        profile_of(fault, case, compiles_into=bench.record.folder / "jit"),
        environment=bench.environment,
        catalog_root=ROOT,
        target=target or bench.target,
        record=bench.record,
        tree=TREE,
        stop_grace_s=1.0 if fault == "ignores-sigterm" else 10.0,
    )


def failures(report: SmokeReport) -> dict[str, str]:
    return {probe.name: probe.finding.code for probe in report.probes if probe.verdict == "fail" and probe.finding}


def unsettled(report: SmokeReport) -> set[str]:
    return {probe.name for probe in report.probes if probe.verdict == "inconclusive"}


@pytest.mark.parametrize("fault", TABLE)
def test_a_fault_is_caught_by_its_probes_and_by_no_other(
    bench: Bench, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = TABLE[fault]
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", case.settle_s)
    report = report_of(bench, fault, case)
    assert failures(report) == case.caught
    assert unsettled(report) == case.unsettled
    assert report.verdict == "fail"
    assert bench.survivors() == []


@pytest.mark.parametrize("fault", SOUND)
def test_what_is_no_fault_fails_no_probe(bench: Bench, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = SOUND[fault]
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", case.settle_s)
    report = report_of(bench, fault, case)
    assert failures(report) == {}
    assert unsettled(report) == case.unsettled


def test_every_fault_has_its_row() -> None:
    assert not TABLE.keys() & SOUND.keys()
    assert all(case.caught for case in TABLE.values())
    # a model that stops early is no fault, but shows too little
    assert FAULTS.keys() - TABLE.keys() - SOUND.keys() == {"stops-early"}


def test_every_probe_is_the_only_one_to_catch_a_fault() -> None:
    needed = {case.sole for case in TABLE.values()}
    assert {probe.name for probe in PROBES} - needed == set()


def test_the_table_names_probes_that_are_there() -> None:
    names = {probe.name for probe in PROBES}
    assert names >= PROBES_OF_LIFE
    for case in (*TABLE.values(), *SOUND.values()):
        assert names >= case.caught.keys() | case.unsettled


def test_the_reference_says_what_catches_what() -> None:
    assert reference() in (ROOT / "docs" / "reference" / "probes.md").read_text()
