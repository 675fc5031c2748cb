"""Smoke tests of a fake server: every fault is caught by its probe, a sound server passes, nothing is left over.

Run as a program (``test_smoke_run.py FOLDER``) it is one smoke test that somebody may interrupt.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_serving import SMOKE, FakeEnvironment, make_environment, marked

from sglforge.base import proc, runrecord
from sglforge.base.ids import Sha256
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import Profile, Speculation, Target
from sglforge.errors import ConfigError, RenderError, Severity, SmokeError
from sglforge.launch.threshold import ServedTree
from sglforge.smoke import activity, deadline, ports
from sglforge.smoke import server as servers
from sglforge.smoke.probes.catalog import PROBES
from sglforge.smoke.probes.model import Need
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport

ROOT = Path(__file__).parents[3]
CPU = Target(name="cpu", description="This machine's CPU.", kind="cpu")
GPU = Target(name="sm120", description="A GPU.", kind="cuda")
EVERYTHING = [probe.name for probe in PROBES]
SPECULATIVE = {"spec-gain", "spec-parity"}
SILENT = {"started", "identity", "jit-silence", "stops-clean"}
"""Probes that ask nothing."""
TREE = ServedTree(version="0.5.9", options={"--speculative-disable-batch-threshold"})


def make_profile(
    fault: str = "", *, speculative: bool = False, threshold: int | None = None, **changes: object
) -> Profile:
    profile = Profile(
        name="fake",
        description="The fake server.",
        target="cpu",
        model="nobody/nothing",
        flags={"tool-call-parser": "hermes", "max-running-requests": 8},
        environment={"FAKE_FAULT": fault, "SGLANG_ENABLE_SPEC_V2": "1"},
        speculation=Speculation(algorithm="EAGLE", draft_model="nobody/draft", disable_above_batch=threshold)
        if speculative
        else None,
        start_timeout_s=20.0,
        request_timeout_s=10.0,
        smoke=SMOKE,
    )
    return profile.model_copy(update=changes)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where smoke tests of the fake server run; every process of theirs carries the mark of the run record."""

    environment: FakeEnvironment
    record: RunRecord

    def run(
        self,
        profile: Profile,
        *,
        target: Target = CPU,
        probes: list[str] | None = None,
        progress: Callable[[str], None] = lambda _: None,
        stop_grace_s: float = 10.0,
    ) -> SmokeReport:
        return run(
            profile,
            environment=self.environment,
            catalog_root=ROOT,
            target=target,
            record=self.record,
            tree=TREE,
            probes=probes,
            progress=progress,
            stop_grace_s=stop_grace_s,
        )


def make_bench(folder: Path) -> Bench:
    environment = make_environment(folder / "it's an $environment")
    record = runrecord.start(folder / "runs")
    os.environ["SMOKE_BENCH"] = str(folder)
    return Bench(environment=environment, record=record)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("SMOKE_BENCH", "")  # restored afterwards
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.4)  # the fake server dies faster than SGLang
    return make_bench(tmp_path)


def verdicts(report: SmokeReport) -> dict[str, str]:
    return {probe.name: probe.verdict for probe in report.probes}


def failures(report: SmokeReport) -> dict[str, str]:
    """Return the code of every probe that failed."""
    return {p.name: p.finding.code for p in report.probes if p.verdict == "fail" and p.finding}


@pytest.mark.parametrize(("speculative", "threshold"), [(False, None), (True, None), (True, 2)])
def test_a_sound_server_passes_every_probe(
    bench: Bench, tmp_path: Path, speculative: bool, threshold: int | None
) -> None:
    notes: list[str] = []
    report = bench.run(make_profile(speculative=speculative, threshold=threshold), progress=notes.append)
    assert failures(report) == {}
    skipped = (set() if speculative else SPECULATIVE) | (set() if threshold else {"threshold-wave"})
    assert verdicts(report) == {name: "skipped" if name in skipped else "pass" for name in EVERYTHING}
    assert (report.verdict, report.findings, report.scope) == ("pass", (), "cpu-logic")
    assert "CUDA kernels" in report.not_proven
    assert report.seconds_to_ready is not None
    assert report.seconds_to_ready > 0
    assert report.versions["sglang"] == "0.5.23"
    assert any("profile server: parallel" in note for note in notes)
    assert any("control server" in note for note in notes) == speculative
    assert marked("SMOKE_BENCH", tmp_path) == []


def test_the_report_and_the_transcript_are_contracts_documents(bench: Bench) -> None:
    report = bench.run(make_profile(speculative=True, threshold=2))
    document = json.loads(json.dumps(report.to_json()))
    assert document["schema"] == 1
    assert (document["verdict"], document["findings"]) == ("pass", [])
    assert document["scope"] == "cpu-logic"
    assert [probe["name"] for probe in document["probes"]] == EVERYTHING
    assert all(probe["scope"] == "cpu-logic" for probe in document["probes"])

    transcript = json.loads(report.transcript.read_text())
    assert transcript["schema"] == 1
    assert "Application startup complete" in transcript["log"]
    assert "sglang.launch_server" in transcript["argv"]
    assert {"probe", "request", "status", "seconds", "response"} <= set(transcript["steps"][0])
    assert {step["server"] for step in transcript["steps"]} == {"control", "profile"}
    assert {step["probe"] for step in transcript["steps"]} == set(EVERYTHING) - SILENT
    events = [json.loads(line) for line in (bench.record.folder / "events.jsonl").read_text().splitlines()]
    assert [event["name"] for event in events if event["event"] == "probe"] == EVERYTHING


def test_without_right_drafts_a_threshold_cannot_be_seen(bench: Bench) -> None:
    report = bench.run(make_profile("no-acceptance", speculative=True, threshold=2), probes=["threshold-wave"])
    assert report.verdict == "inconclusive"


def test_a_profile_that_cannot_be_rendered_starts_no_server(bench: Bench) -> None:
    notes: list[str] = []
    with pytest.raises(RenderError) as caught:
        bench.run(make_profile(speculative=True, threshold=8), progress=notes.append)
    assert caught.value.code == "threshold-never-reached"
    assert notes == []


def test_a_hang_names_the_time_and_the_health_that_lies(bench: Bench) -> None:
    report = bench.run(make_profile("hangs-after-200-tokens", speculative=True, request_timeout_s=1.0))
    hang = next(finding for finding in report.findings if finding.code == "decode-hang")
    assert "timeout" in hang.message
    assert "health is 200" in hang.message
    assert verdicts(report)["spec-parity"] == "skipped"


def test_why_a_server_died_at_the_start_is_said(bench: Bench) -> None:
    (finding,) = bench.run(make_profile("dies-at-start")).findings
    assert "exit status 3" in finding.message
    assert "AttributeError: no threshold" in finding.message
    assert any("Traceback" in line for line in finding.detail)


def test_a_server_that_is_never_ready_is_given_up(bench: Bench, tmp_path: Path) -> None:
    report = bench.run(make_profile("never-ready", start_timeout_s=2.0))
    assert failures(report) == {"started": "server-start-timeout"}
    assert "it was up" in report.findings[0].message
    assert set(verdicts(report).values()) == {"fail", "skipped"}
    assert marked("SMOKE_BENCH", tmp_path) == []


def test_health_without_a_decode_is_not_ready(bench: Bench) -> None:
    report = bench.run(make_profile("hangs-at-first-token", start_timeout_s=2.0))
    assert failures(report) == {"started": "healthy-but-no-decode"}
    assert "health is 200" in report.findings[0].message
    assert "completion" in report.findings[0].message


def test_a_dead_scheduler_is_not_waited_for_until_the_last_second(bench: Bench) -> None:
    profile = make_profile("hangs-at-first-token,traceback", start_timeout_s=60.0, request_timeout_s=1.0)
    start = time.monotonic()
    report = bench.run(profile)
    assert failures(report) == {"started": "healthy-but-no-decode"}
    assert "AttributeError" in report.findings[0].message
    assert time.monotonic() - start < 30.0


def test_a_server_that_ignores_sigterm_is_killed_and_told_on(bench: Bench, tmp_path: Path) -> None:
    report = bench.run(make_profile("ignores-sigterm"), stop_grace_s=0.5)
    assert failures(report) == {"stops-clean": "server-stop-unclean"}
    assert "killed" in report.findings[0].message
    assert marked("SMOKE_BENCH", tmp_path) == []


def test_a_child_left_behind_is_named(bench: Bench) -> None:
    report = bench.run(make_profile("leaves-a-child"), probes=["stops-clean"])
    assert "time.sleep(600)" in report.findings[0].message


def test_the_older_route_of_model_info_will_do(bench: Bench) -> None:
    assert bench.run(make_profile("old-route")).verdict == "pass"


def test_a_broken_control_server_leaves_parity_open(bench: Bench) -> None:
    report = bench.run(make_profile("control-dies", speculative=True))
    assert verdicts(report)["spec-parity"] == "inconclusive"
    assert verdicts(report)["parallel"] == "inconclusive"
    assert report.verdict == "inconclusive"
    remark = next(finding for finding in report.findings if finding.subject == "control server")
    assert (remark.code, remark.severity) == ("server-died", Severity.WARNING)


def test_where_speculation_returns_no_logprobs_those_of_the_control_server_are_judged(bench: Bench) -> None:
    report = bench.run(make_profile("speculation-without-logprobs", speculative=True))
    assert report.verdict == "pass"
    (probe,) = [probe for probe in report.probes if probe.name == "logprobs-finite"]
    assert "on the control server" in probe.message


def test_a_server_without_logprobs_leaves_the_logits_open(bench: Bench) -> None:
    report = bench.run(make_profile("no-logprobs"))
    assert {name for name, verdict in verdicts(report).items() if verdict == "inconclusive"} == {"logprobs-finite"}
    assert "0 of 192 tokens" in report.findings[0].message


def test_a_gpu_gets_more_requests_at_once(bench: Bench) -> None:
    report = bench.run(make_profile("nan-in-a-batch"), target=GPU, probes=["logprobs-finite"])
    assert failures(report) == {"logprobs-finite": "nan-logits"}
    assert "of 65 requests are hit; the request that ran alone is not hit" in report.findings[0].message


def test_a_model_that_stops_early_leaves_the_draft_unjudged(bench: Bench) -> None:
    report = bench.run(make_profile("stops-early", speculative=True))
    assert verdicts(report)["spec-gain"] == "inconclusive"
    assert report.verdict == "inconclusive"
    assert "200" in report.findings[0].message


def test_without_expectations_the_rest_is_still_probed(bench: Bench) -> None:
    report = bench.run(make_profile(speculative=True, smoke=None))
    asking = {Need.EXPECTATIONS, Need.FACTS, Need.TOOL, Need.THRESHOLD}
    expected = {probe.name for probe in PROBES if not asking & set(probe.needs)}
    assert {name for name, verdict in verdicts(report).items() if verdict == "pass"} == expected
    assert all(
        "[smoke]" in one.message for one in report.probes if one.verdict == "skipped" if one.name != "threshold-wave"
    )


def test_on_a_gpu_a_token_that_was_far_less_likely_is_a_fault(bench: Bench) -> None:
    report = bench.run(make_profile("garbage-together"), target=GPU)
    assert failures(report)["parallel"] == "garbage-under-concurrency"
    assert (report.verdict, report.scope) == ("fail", "gpu")
    assert "CUDA kernels" not in report.not_proven


def test_chosen_probes_only(bench: Bench) -> None:
    assert verdicts(bench.run(make_profile(), probes=["facts"])) == {"facts": "pass"}


def test_an_unknown_probe_is_told_before_anything_starts(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="did you mean 'facts'") as caught:
        bench.run(make_profile(), probes=["fatcs"])
    assert caught.value.code == "unknown-probe"


def test_a_taken_port_names_its_holder(bench: Bench) -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SmokeError) as caught:
            bench.run(make_profile(port=port))
    assert caught.value.code == "port-taken"
    assert f"port {port}" in caught.value.message
    assert f"pid {os.getpid()}" in caught.value.message


def test_a_port_of_the_profile_is_used(bench: Bench) -> None:
    port = ports.free_port()
    report = bench.run(make_profile(port=port), probes=["facts"])
    assert report.verdict == "pass"
    assert str(port) in json.loads(report.transcript.read_text())["argv"]


def test_a_lost_race_for_a_free_port_is_run_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [ports.free_port(), ports.free_port()]
    monkeypatch.setattr(ports, "free_port", lambda: offered.pop(0))
    lost = offered[0]
    report = bench.run(make_profile("loses-port", environment={"FAKE_FAULT": f"loses-port-{lost}"}), probes=["facts"])
    assert report.verdict == "pass"
    assert offered == []


def test_a_changed_environment_is_refused(bench: Bench) -> None:
    class Stale(FakeEnvironment):
        @property
        def receipt_sha256(self) -> Sha256:
            return Sha256("0" * 64)

    stale = Bench(environment=Stale(path=bench.environment.path), record=bench.record)
    report = stale.run(make_profile())
    assert failures(report) == {"started": "launch-refused"}
    assert "has changed" in report.findings[0].message


def test_an_early_exit_is_explained(bench: Bench) -> None:
    finding = bench.run(make_profile("out-of-memory")).findings[0]
    assert finding.code == "server-died"
    assert "exit status 1: the GPU ran out of memory" in finding.message
    assert "nvidia-smi" in finding.hint
    found = re.search(r"\(smoke\.profile\.log, line (\d+): (.*)\)$", finding.message)
    assert found
    log = (bench.record.folder / "logs" / "smoke.profile.log").read_text()
    assert log.splitlines()[int(found[1]) - 1] == found[2] == "torch.OutOfMemoryError: CUDA out of memory."


def test_an_early_exit_of_unknown_cause_is_said_to_be_one(bench: Bench) -> None:
    finding = bench.run(make_profile("dies-at-start")).findings[0]
    assert "exit status 3: no known cause, but this is its last exception" in finding.message
    assert "AttributeError: no threshold" in finding.message


def test_a_leak_of_every_server_is_told_and_not_held_against_it(bench: Bench) -> None:
    report = bench.run(make_profile("known-leak"), probes=["stops-clean"])
    assert report.verdict == "pass"
    assert "removed what SGLang is known to leave: sglang_loads_fake_" in report.probes[0].message
    evidence = json.loads(json.dumps(report.probes[0].evidence))
    (leak,) = evidence["profile"]["known_leaks"]
    assert leak.startswith("sglang_loads_fake_")
    assert not Path("/dev/shm", leak.split()[0]).exists()


def test_shared_memory_that_is_left_is_named(bench: Bench) -> None:
    report = bench.run(make_profile("leaves-shared-memory"), probes=["stops-clean"])
    assert "shared memory behind: fake-server-" in report.findings[0].message


def test_a_server_that_does_nothing_is_stuck_before_the_deadline(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "STUCK_S", 2.0)
    monkeypatch.setattr(activity, "SAMPLE_S", 0.5)
    start = time.monotonic()
    report = bench.run(make_profile("stuck", start_timeout_s=None))
    assert failures(report) == {"started": "server-start-stuck"}
    assert "starting its processes" in report.findings[0].message
    assert time.monotonic() - start < 60
    assert marked("SMOKE_BENCH", tmp_path) == []


def test_without_a_timeout_a_sound_server_has_the_time_that_its_weights_allow(bench: Bench) -> None:
    assert bench.run(make_profile(start_timeout_s=None), probes=["facts"]).verdict == "pass"


@pytest.mark.parametrize("when", ["control server: starting", "profile server: facts", "stopping"])
def test_nothing_survives_an_interruption(bench: Bench, tmp_path: Path, when: str) -> None:
    def interrupt(note: str) -> None:
        if note.startswith(when):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(make_profile(speculative=True), progress=interrupt)
    assert marked("SMOKE_BENCH", tmp_path) == []


def test_a_server_that_is_deaf_before_it_is_ready_is_not_waited_for(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "UNREADY_STOP_S", 0.5)

    start = time.monotonic()
    report = bench.run(make_profile("ignores-sigterm,never-ready", start_timeout_s=3.0), stop_grace_s=60.0)
    assert failures(report) == {"started": "server-start-timeout"}
    assert time.monotonic() - start < 30
    assert marked("SMOKE_BENCH", tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("fault", ["leaves-a-child", "leaves-a-daemon", "ignores-sigterm"])
def test_nothing_survives_our_own_death(tmp_path: Path, number: signal.Signals, fault: str) -> None:
    log = tmp_path / "driver.log"
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    driver = proc.spawn([sys.executable, __file__, str(tmp_path), fault], log=log, env={**os.environ, **paths})
    try:
        wait_until(lambda: "facts" in log.read_text())
        assert len(marked("SMOKE_BENCH", tmp_path)) >= 1
        os.kill(driver.pid, number)
        wait_until(lambda: driver.poll() is not None)
        wait_until(lambda: not marked("SMOKE_BENCH", tmp_path))
    finally:
        driver.stop(grace_s=1.0)


def wait_until(happened: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


if __name__ == "__main__":
    make_bench(Path(sys.argv[1])).run(
        make_profile(sys.argv[2]), progress=lambda note: print(note, flush=True), stop_grace_s=1.0
    )
