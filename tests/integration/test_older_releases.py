"""Older releases for real: build, install, serve, prove, as the main line does.

Those after 0.5.9 take the same path, so they are left to the nightly run.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from calling import ROOT, Called, call, servers

from sglforge.config.lockfile import LockedArchive, lock_path, read_lock
from sglforge.patches.series import load_series

pytestmark = [pytest.mark.integration, pytest.mark.servers, pytest.mark.timeout(1800)]

NIGHTLY = ("release-0.5.10.post1", "release-0.5.11", "release-0.5.12.post1")
STACKS = ["release-0.5.9", *(pytest.param(stack, marks=pytest.mark.nightly) for stack in NIGHTLY)]
KINDS = {"sdist": "source build (sdist)", "wheel": "re-packed wheel"}
COMPARE = ROOT / "tests" / "unit" / "kernels" / "compare_with_triton.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A stack that was built, and proven in this very run."""

    stack: str
    built: Called
    workspace: Path

    @property
    def version(self) -> str:
        return self.stack.removeprefix("release-")

    @property
    def python(self) -> str:
        environment = self.built.document["environment"]
        assert isinstance(environment, dict)
        return str(environment["python"])

    def log(self, server: str) -> str:
        folder = self.workspace / "runs" / str(self.built.document["run"]) / "logs"
        return (folder / f"smoke.{server}.log").read_text()


@pytest.fixture(scope="module", params=STACKS)
def release(request: pytest.FixtureRequest, workspace: Path) -> Release:
    stack = str(request.param)
    built = call("build", "--stack", stack, "--target", "cpu", "--prove", workspace=workspace, timeout_s=1800)
    assert built.code == 0, built.talk
    return Release(stack=stack, built=built, workspace=workspace)


def test_a_build_ends_with_a_proven_server(release: Release) -> None:
    assert release.built.document["verdict"] == "pass", release.built.talk
    assert release.built.smoke["scope"] == "cpu-logic"
    assert len(release.built.probes) >= 12
    # with overlapped speculation these releases return no log-probabilities
    others = {name: verdict for name, verdict in release.built.probes.items() if verdict != "pass"}
    assert others in ({}, {"prefill-vs-decode": "skipped"})
    assert servers(release.workspace) == []


def test_drafts_are_really_accepted(release: Release) -> None:
    probes = release.built.smoke["probes"]
    assert isinstance(probes, list)
    (gain,) = [probe["evidence"] for probe in probes if probe["name"] == "spec-gain"]
    assert gain["correct_drafts"] > gain["verify_steps"] > 0


def test_every_topic_for_the_release_shows_in_the_servers_log(release: Release) -> None:
    series = load_series(ROOT, "sglang")
    assert series
    evidence = [
        topic.file.evidence
        for topic in series.topics
        if topic.name.startswith(("cpu-", "speculation-"))
        and topic.standing(release.version) is None
        and topic.file.evidence
    ]
    assert len(evidence) >= 3
    log = release.log("profile")
    assert [text for text in evidence if text not in log] == []
    assert "disable_overlap_schedule=False" in log
    # the control server does not speculate
    assert "overlapped speculation" not in release.log("control")


def test_the_installed_sglang_says_what_it_was_made_from(release: Release) -> None:
    locked = read_lock(lock_path(ROOT, release.stack, "cpu")).sources["sglang"]
    assert isinstance(locked, LockedArchive)
    script = (
        "import importlib.metadata as m; d = m.distribution('sglang'); print(d.version); "
        "print(next(f for f in d.files if f.name == 'sglforge.json').read_text())"
    )
    done = subprocess.run([release.python, "-P", "-c", script], capture_output=True, text=True, check=True)
    version, _, text = done.stdout.partition("\n")
    provenance = json.loads(text)
    assert version.startswith(f"{release.version}+cpu.t")
    assert provenance["kind"] == KINDS[locked.kind]
    assert provenance["source"]["file"] in {file.name for file in locked.files}
    states = {topic["name"]: topic["state"] for topic in provenance["patches"]["topics"]}
    assert states["cpu-speculation-without-cuda"] == states["cpu-triton-attention-in-torch"] == "applied"
    assert "cpu-overlap-with-speculation" not in states  # it is not for this version


def test_the_attention_in_torch_is_what_the_triton_kernels_compute(release: Release) -> None:
    """The kernels that the server no longer runs, interpreted, on the same lists and masks."""
    variables = {"SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run(
        [release.python, "-P", "-W", "ignore", COMPARE],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same  ") == 7


def test_a_draft_that_never_matches_fails_the_probe_that_is_for_it(release: Release) -> None:
    words = ("--stack", release.stack, "--target", "cpu", "--probe", "started,spec-gain")
    mismatched = "speculation.draft-model=catalog:models/tiny-eagle-mismatched"
    result = call("smoke", *words, "--set", mismatched, workspace=release.workspace)
    assert result.code == 11
    assert result.probes == {"started": "pass", "spec-gain": "fail"}
    assert "spec-no-gain" in result.codes
