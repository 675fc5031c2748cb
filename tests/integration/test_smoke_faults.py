"""The judge against real SGLang servers that are wrong: each fault is seen by its probe.

The faults are edits of ours (`tests/broken_topics/faults-at-run-time`) in a copy of the installed tree. A file says
which one a server has now, so that one server shows several, and that it passes the same probes without them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from calling import ROOT, Called

from sglforge.base import runrecord
from sglforge.base.workspace import Workspace
from sglforge.config.load import load_catalog
from sglforge.config.model import Profile
from sglforge.launch.render import render_bash
from sglforge.launch.threshold import CONFIG_OPTION, ServedTree
from sglforge.patches.apply import apply_series
from sglforge.patches.load import load_topic
from sglforge.patches.series import Series
from sglforge.provision.receipt import Environment, find_environment
from sglforge.smoke.client import Request
from sglforge.smoke.deadline import patience
from sglforge.smoke.examine import Examination, examine
from sglforge.smoke.generation import generation, greedy
from sglforge.smoke.interview import Interview
from sglforge.smoke.probes.catalog import select
from sglforge.smoke.server import Server, serving
from sglforge.smoke.subject import of_profile
from sglforge.smoke.verdict import ProbeResult

pytestmark = [pytest.mark.integration, pytest.mark.servers, pytest.mark.timeout(900)]

VERSION = "0.5.23"
CATALOG = load_catalog(ROOT)
PROFILE = CATALOG.profile("tiny-cpu")
assert PROFILE.speculation
UP_TO_TWO = PROFILE.speculation.model_copy(update={"disable_above_batch": 2})
PROFILES = {
    "plain": PROFILE.model_copy(update={"speculation": None, "request_timeout_s": 15.0}),
    "drafting": PROFILE.model_copy(update={"speculation": UP_TO_TWO, "request_timeout_s": 180.0}),
}
plain, drafting = (pytest.mark.parametrize("faulty", [name], indirect=True) for name in PROFILES)
TARGET = CATALOG.target("cpu")
TOPIC = ROOT / "tests" / "broken_topics" / "faults-at-run-time"
VARIABLES = {
    # /health only looks whether HTTP is alive; /health_generate decodes a token whatever this says
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    # the fault of the prefix cache is in this one
    "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python",
}
LOOKS_FINE = ("200", "200", "right")


@dataclass(frozen=True, kw_only=True)
class Faulty:
    """A running server and the file that says what is wrong with it."""

    profile: Profile
    server: Server
    switch: Path
    folder: Path

    def turn(self, fault: str) -> None:
        self.switch.write_text(fault)

    def examine(self, *probes: str) -> dict[str, ProbeResult]:
        """Ask and judge as smoke does; none of these probes needs a control server."""
        into = Examination(record=runrecord.start(self.folder))
        interview = Interview(
            subject=of_profile(self.profile, "cpu-logic"),
            role="profile",
            server=self.server,
            timeout_s=self.profile.request_timeout_s,
        )
        examine(interview, select(probes), into)
        return {result.name: result for result in into.results}

    def shallow(self) -> tuple[str, str, str]:
        """Return what others look at: the health routes, and one short answer."""
        routes = ("/health", "/health_generate")
        health, generate = (self.server.ask(Request(name="route", path=path), timeout_s=30).status for path in routes)
        prompt = greedy("one", "The capital of France is", 16)
        answer = self.server.ask(prompt, timeout_s=self.profile.request_timeout_s)
        one = generation(answer.response)
        said = str(answer.status) if one is None else "right" if "Paris" in one.text else "wrong"
        return str(health), str(generate), said


@pytest.fixture(scope="module")
def environment(built: Called, workspace: Path) -> Environment:
    found = find_environment(Workspace(root=workspace), f"release-{VERSION}.cpu")
    assert found, "sglforge build left no environment"
    return found


@pytest.fixture(scope="module")
def overlay(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed SGLang with all the faults, none of them on."""
    folder = tmp_path_factory.mktemp("overlay")
    shutil.copytree(environment.site_packages / "sglang", folder / "sglang")
    series = Series(package="sglang", topics=(load_topic(TOPIC),))
    apply_series(series, folder, version=VERSION).require()
    return folder


@pytest.fixture(scope="module")
def faulty(
    request: pytest.FixtureRequest, environment: Environment, overlay: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulty]:
    """A server of the profile that the test names; it ends before the next one starts."""
    folder = tmp_path_factory.mktemp(request.param)
    switch = folder / "fault"
    switch.write_text("")
    profile = PROFILES[request.param]
    variables = {**profile.environment, **VARIABLES, "PYTHONPATH": str(overlay), "SGLFORGE_FAULT": str(switch)}
    profile = profile.model_copy(update={"environment": variables})
    tree = ServedTree(version=VERSION, options={CONFIG_OPTION})
    with serving(
        lambda port: render_bash(
            profile, environment=environment, catalog_root=ROOT, port=port, tree=tree, folder=folder
        ),
        folder=folder,
        log=folder / "server.log",
        pinned_port=None,
        patience=patience(profile, TARGET, catalog_root=ROOT, stop_s=20.0),
        progress=lambda _note: None,
    ) as server:
        # it may decode before SGLang's own warm-up has ended
        deadline = time.monotonic() + 120
        while server.health() != "200":
            assert time.monotonic() < deadline, server.logged()[-2000:]
            time.sleep(0.5)
        yield Faulty(profile=profile, server=server, switch=switch, folder=folder)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, who catches it with which code, and what the health routes and one short answer say meanwhile."""

    name: str
    caught: Mapping[str, str]
    passed: tuple[str, ...] = ()
    shallow: tuple[str, str, str] = LOOKS_FINE
    often: bool = False

    def proven_on(self, faulty: Faulty) -> None:
        """The probes pass without the fault and fail with it, on one server."""
        asked = (*self.passed, *self.caught)
        faulty.turn("")
        assert {name: one.verdict for name, one in faulty.examine(*asked).items()} == dict.fromkeys(asked, "pass")
        faulty.turn(self.name)
        try:
            assert faulty.shallow() == self.shallow
            results = faulty.examine(*asked)
        finally:
            faulty.turn("")
        said = [one.message for one in results.values()]
        assert {name for name, one in results.items() if one.verdict == "pass"} == set(self.passed), said
        assert {name: one.finding.code for name, one in results.items() if one.finding} == self.caught, said


def faults(*those: Fault) -> pytest.MarkDecorator:
    marked = [pytest.param(one, id=one.name, marks=() if one.often else pytest.mark.nightly) for one in those]
    return pytest.mark.parametrize("fault", marked)


@plain
@faults(
    Fault(name="prefix-of-another", caught={"prefix-hit": "prefix-cache-wrong"}, often=True),
    Fault(name="hang-after-100", caught={"decode-long": "decode-hang"}, often=True),
    Fault(name="garbage-in-parallel", caught={"parallel": "garbage-under-concurrency"}),
    Fault(name="nan-late", caught={"logprobs-finite": "nan-logits"}),
    Fault(name="decode-unlike-prefill", caught={"prefill-vs-decode": "decode-differs-from-prefill"}),
    Fault(name="scheduler-dead", caught={"decode-single": "decode-hang"}, shallow=("200", "503", "timeout")),
)
def test_faults_of_any_server(faulty: Faulty, fault: Fault) -> None:
    fault.proven_on(faulty)


@plain
@pytest.mark.nightly
def test_a_server_that_dies_of_a_schema(faulty: Faulty) -> None:
    """The answer is right, the server dead after it: nothing can be asked of this one afterwards."""
    probes = ("json-schema", "alive-after")
    assert {one.verdict for one in faulty.examine(*probes).values()} == {"pass"}
    faulty.turn("dies-of-json-schema")
    assert faulty.shallow() == LOOKS_FINE
    results = faulty.examine(*probes)
    assert results["json-schema"].verdict == "pass"
    assert results["alive-after"].finding
    assert results["alive-after"].finding.code == "server-died-after-success"


@drafting
@faults(
    Fault(name="lost-at-the-stride", caught={"stream": "tokens-lost"}, passed=("decode-single",), often=True),
    Fault(name="nothing-accepted", caught={"spec-gain": "spec-no-gain"}),
    Fault(name="stale-draft-rows", caught={"threshold-wave": "threshold-sticks"}, passed=("spec-gain",)),
    Fault(
        name="cliff-above-the-threshold",
        caught={"threshold-wave": "spec-threshold-regression"},
        passed=("spec-gain",),
    ),
)
def test_faults_of_a_server_that_drafts(faulty: Faulty, fault: Fault) -> None:
    fault.proven_on(faulty)
