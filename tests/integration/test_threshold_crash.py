"""The crash that this project starts from: rejected before it is built, named by smoke if it is served all the same.

A threshold is set on the draft worker and read on the worker itself; or it is set after something whose exception is
caught. Both topics lie in `tests/broken_topics`. Served with contracts switched off, the first shows in three ways,
which differ in who asks the server to decode first.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from calling import ROOT, call

from sglforge.base import files, proc, runrecord
from sglforge.base.ids import Sha256
from sglforge.base.workspace import Workspace
from sglforge.config.load import load_catalog
from sglforge.config.lockfile import LockedArchive, lock_path, read_lock
from sglforge.config.model import Profile
from sglforge.host import package_index
from sglforge.launch.render import render_bash
from sglforge.launch.threshold import PATCHED_OPTION, ServedTree
from sglforge.patches.apply import apply_series
from sglforge.patches.checkout import open_checkout
from sglforge.patches.draft import Draft
from sglforge.patches.fate import edited
from sglforge.patches.load import load_topic
from sglforge.patches.series import Series, load_series
from sglforge.patches.topic import Topic
from sglforge.provision.receipt import Environment, find_environment
from sglforge.smoke import ports
from sglforge.smoke.client import Request, send
from sglforge.smoke.generation import greedy
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport
from sglforge.sources.fetch import fetch
from sglforge.sources.unpack import unpack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

STACK, VERSION = "release-0.5.9", "0.5.9"
MISPLACED, SWALLOWED = "threshold-on-the-draft-worker", "threshold-lost-in-an-exception"
CAUSE = "AttributeError: 'EAGLEWorkerV2' object has no attribute 'spec_disable_batch_threshold'"
CATALOG = load_catalog(ROOT)
PROFILE = CATALOG.profile("tiny-cpu-triton")
TREE = ServedTree(version=VERSION, options={PATCHED_OPTION})
NO_WARM_UP = {"skip-server-warmup": True}
servers = pytest.mark.servers
HEALTH_WITHOUT_DECODE = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}


@dataclass(frozen=True, kw_only=True)
class Overlaid:
    """A built environment that imports another SGLang: its interpreter is a script that sets PYTHONPATH."""

    path: Path
    python: Path
    receipt_sha256: Sha256
    name: str = "overlaid"
    sglang_version: str = VERSION


def broken(name: str) -> Topic:
    return load_topic(ROOT / "tests" / "broken_topics" / name)


@pytest.fixture(scope="module")
def unpatched(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SGLang 0.5.9 as it was released."""
    locked = read_lock(lock_path(ROOT, STACK, "cpu")).sources["sglang"]
    assert isinstance(locked, LockedArchive)
    archive = fetch(
        locked,
        package="sglang",
        python_minor=f"{sys.version_info.major}.{sys.version_info.minor}",
        locations=package_index.read(),
        workspace=Workspace(root=workspace),
    )
    return unpack(archive.path, tmp_path_factory.mktemp("released") / "sglang")


@pytest.fixture(scope="module")
def environment(workspace: Path) -> Environment:
    built = call("build", "--stack", STACK, "--target", "cpu", workspace=workspace, timeout_s=1800)
    assert built.code == 0, built.talk
    found = find_environment(Workspace(root=workspace), f"{STACK}.cpu")
    assert found
    return found


@pytest.fixture(scope="module")
def misplaced(unpatched: Path, environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Overlaid:
    """The environment with the CPU topics and the misplaced threshold, its contracts switched off."""
    return overlay(MISPLACED, unpatched, environment, tmp_path_factory.mktemp(MISPLACED))


def overlay(name: str, unpatched: Path, environment: Environment, folder: Path) -> Overlaid:
    proc.run(["cp", "-r", unpatched / "sglang", folder / "sglang"])
    series = load_series(ROOT, "sglang")
    assert series
    cpu = tuple(topic for topic in series.topics if topic.name.startswith("cpu-"))
    apply_series(Series(package="sglang", topics=cpu), folder, version=VERSION).require()
    draft = edited(broken(name), Draft(checkout=open_checkout(folder)), VERSION)
    draft.checkout.write(draft.changed)
    python = folder / "python"
    files.write_text(python, f"#!/bin/sh\nexec env PYTHONPATH='{folder}' '{environment.python}' \"$@\"\n", mode=0o755)
    return Overlaid(path=environment.path, python=python, receipt_sha256=environment.receipt_sha256)


def variant(flags: Mapping[str, bool], variables: Mapping[str, str]) -> Profile:
    return PROFILE.model_copy(
        update={"flags": {**PROFILE.flags, **flags}, "environment": {**PROFILE.environment, **variables}}
    )


def smoke(profile: Profile, environment: Overlaid | Environment, folder: Path, *probes: str) -> SmokeReport:
    return run(
        profile,
        environment=environment,
        catalog_root=ROOT,
        target=CATALOG.target("cpu"),
        record=runrecord.start(folder / "runs"),
        tree=TREE,
        probes=("started", "decode-single", "alive-after", *probes),
    )


@dataclass(frozen=True, kw_only=True)
class Started:
    """A server that nobody has asked anything yet."""

    service: proc.Service
    url: str
    path: Path

    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def get(self, path: str) -> int | str:
        return send(self.url, Request(name="get", path=path), timeout_s=30).status

    def ask(self, request: Request) -> int | str:
        return send(self.url, request, timeout_s=60).status

    def is_dead(self) -> bool:
        return self.service.poll() is not None

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + 300
        while words not in self.log():
            assert not self.is_dead(), self.log()[-2000:]
            assert time.monotonic() < deadline, self.log()[-2000:]
            time.sleep(0.2)

    def until_dead(self) -> Iterator[None]:
        deadline = time.monotonic() + 300
        while not self.is_dead():
            assert time.monotonic() < deadline, self.log()[-2000:]
            yield
            time.sleep(0.2)


@contextmanager
def started(profile: Profile, environment: Overlaid, folder: Path) -> Iterator[Started]:
    port = ports.free_port()
    script = render_bash(profile, environment=environment, catalog_root=ROOT, port=port, tree=TREE).write(folder)
    service = proc.spawn(["bash", script], log=folder / "server.log")
    try:
        yield Started(service=service, url=f"http://127.0.0.1:{port}", path=folder / "server.log")
    finally:
        service.stop(grace_s=20)


@pytest.mark.parametrize("name", [MISPLACED, SWALLOWED])
def test_the_contract_rejects_it_and_names_every_class(unpatched: Path, name: str) -> None:
    series = Series(package="sglang", topics=(broken(name),))
    result = apply_series(series, unpatched, version=VERSION, write=False)
    (finding,) = result.findings
    assert (result.tree_id, finding.code) == (None, "patch-attribute-unset")
    assert "`self.spec_disable_batch_threshold` is read in `EAGLEWorkerV2.forward_batch_generation`" in finding.message
    assert "`EAGLEWorkerV2` and `StandaloneWorkerV2` may lack it" in finding.message
    assert ("set in `EagleDraftWorker.__init__`" in finding.message) is (name == MISPLACED)
    assert finding.hint.startswith("give `EAGLEWorkerV2` a class attribute `spec_disable_batch_threshold`")


MODES = [
    pytest.param({}, {}, id="warm-up", marks=pytest.mark.nightly),
    pytest.param(NO_WARM_UP, {}, id="health", marks=pytest.mark.nightly),
    pytest.param(NO_WARM_UP, HEALTH_WITHOUT_DECODE, id="request"),
]


@servers
@pytest.mark.parametrize(("flags", "variables"), MODES)
def test_smoke_names_class_and_attribute(
    misplaced: Overlaid, tmp_path: Path, flags: Mapping[str, bool], variables: Mapping[str, str]
) -> None:
    """Smoke does not believe a health route, so the three ways are one to it: no token was ever decoded."""
    report = smoke(variant(flags, variables), misplaced, tmp_path)
    assert (report.verdict, report.findings[0].subject) == ("fail", "started")
    assert report.findings[0].code == "server-died"
    assert CAUSE in report.findings[0].message


@servers
@pytest.mark.nightly
def test_dead_in_the_warm_up(misplaced: Overlaid, tmp_path: Path) -> None:
    """HTTP is up and the health route says 503 until the warm-up kills the scheduler; it is never ready."""
    with started(variant({}, {}), misplaced, tmp_path) as server:
        seen = {server.get("/health") for _ in server.until_dead()}
        assert "fired up and ready to roll" not in server.log()
        assert 200 not in seen
        assert CAUSE in server.log()


@servers
@pytest.mark.nightly
def test_dead_on_the_first_health_probe(misplaced: Overlaid, tmp_path: Path) -> None:
    """It says that it is ready; the health route decodes a token, and that kills it."""
    with started(variant(NO_WARM_UP, {}), misplaced, tmp_path) as server:
        server.wait_for("fired up and ready to roll")
        assert CAUSE not in server.log()
        assert server.get("/health") == "disconnected"
        assert list(server.until_dead()) or server.is_dead()
        assert CAUSE in server.log()


@servers
def test_healthy_as_long_as_nobody_decodes(misplaced: Overlaid, tmp_path: Path) -> None:
    """Health says 200 again and again; the first request is dropped without an HTTP status, and the server is gone."""
    with started(variant(NO_WARM_UP, HEALTH_WITHOUT_DECODE), misplaced, tmp_path) as server:
        server.wait_for("fired up and ready to roll")
        for _ in range(5):
            assert server.get("/health") == 200
            time.sleep(0.5)
        assert CAUSE not in server.log()
        assert server.ask(greedy("first", "Hello", 8)) == "disconnected"
        assert list(server.until_dead()) or server.is_dead()
        assert CAUSE in server.log()


@servers
@pytest.mark.nightly
def test_an_exception_that_is_caught_leads_to_the_same_death(
    unpatched: Path, environment: Environment, tmp_path: Path
) -> None:
    """The server comes up healthy, with a warning in its log that nobody reads."""
    swallowed = overlay(SWALLOWED, unpatched, environment, tmp_path)
    report = smoke(variant(NO_WARM_UP, HEALTH_WITHOUT_DECODE), swallowed, tmp_path)
    assert (report.findings[0].code, report.findings[0].subject) == ("server-died", "started")
    assert CAUSE in report.findings[0].message
    assert report.log
    assert "Plain decode above the threshold is not available." in report.log.read_text()


@servers
@pytest.mark.nightly
def test_the_shipped_topic_lives_through_all_of_it(environment: Environment, tmp_path: Path) -> None:
    report = smoke(variant(NO_WARM_UP, HEALTH_WITHOUT_DECODE), environment, tmp_path, "threshold-wave")
    assert report.verdict == "pass", report.findings
    assert report.log
    assert "sglforge: speculation threshold 2 (EAGLEWorkerV2, eager)" in report.log.read_text()
