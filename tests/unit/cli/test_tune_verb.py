"""The verb `tune` on the fake server, in a catalog of our own."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_serving import make_environment

from sglforge.cli import run as cli
from sglforge.config.load import load_catalog
from sglforge.launch.threshold import ServedTree
from sglforge.pipeline import serving
from sglforge.smoke.measure import Wave
from sglforge.smoke.sweep import Point, Sweep
from sglforge.smoke.transcript import Role

ROOT = Path(__file__).parents[3]
PROFILE = """\
#:schema ../../docs/reference/schema/profile.schema.json
name = "fake"
description = "The fake server."  # a comment that stays
target = "cpu"
model = "nobody/nothing"
start-timeout-s = 60.0

[flags]
max-running-requests = 32

[environment]
FAKE_TOKEN_MS = "10"

[speculation]
algorithm = "EAGLE"
draft-model = "nobody/draft"
disable-above-batch = 6
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A catalog with the profile `fake`, and a workspace."""

    root: Path
    workspace: Path
    capsys: pytest.CaptureFixture[str]

    def call(self, *words: str | Path) -> tuple[int, dict[str, object]]:
        common = ["--catalog", self.root, "--workspace", self.workspace, "--target", "cpu", "--json"]
        code = cli(["tune", *map(str, words), *map(str, common)])
        document: dict[str, object] = json.loads(self.capsys.readouterr().out)
        return code, document

    def codes(self, *words: str | Path) -> tuple[int, list[str]]:
        code, document = self.call(*words)
        return code, codes(document)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    root = tmp_path / "catalog"
    shutil.copytree(ROOT / "recipes", root / "recipes")
    for name in ("templates", "kernels", "models"):
        (root / name).symlink_to(ROOT / name)
    (root / "recipes" / "profiles" / "fake.toml").write_text(PROFILE)
    environment = make_environment(tmp_path / "env", sglang_version="0.5.23")
    monkeypatch.setattr(serving, "installed", lambda *_: environment)
    monkeypatch.setattr(serving, "reserved", lambda *_: nullcontext())
    monkeypatch.setattr("sglforge.smoke.sweep._WAVE_S", 0.12)
    monkeypatch.setattr("sglforge.smoke.sweep._FIRST_TOKENS", 16)
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.3)
    serve(monkeypatch, "0.5.23")
    return Place(root=root, workspace=tmp_path / "workspace", capsys=capsys)


def swept(*_: object) -> Sweep:
    """Return what a sweep finds where 24 requests at once are slower with speculation: no test depends on a clock."""
    rates: dict[tuple[Role, int], float] = {
        ("profile", 1): 200.0,
        ("control", 1): 100.0,
        ("profile", 24): 300.0,
        ("control", 24): 600.0,
    }
    points = [
        Point(
            role=role,
            turn=turn,
            concurrency=count,
            asked=100,
            wave=Wave(
                tokens=100 * count,
                prompt_tokens=5,
                seconds=100 * count / rate,
                each=(100 * count / rate,) * count,
                steps=40 * count if role == "profile" else None,
            ),
        )
        for (role, count), rate in rates.items()
        for turn in range(3)
    ]
    return Sweep(points=points, sglang="0.5.23")


def codes(document: dict[str, object]) -> list[str]:
    """Return the codes of findings, but for what the machine that runs the tests is to blame for."""
    findings = document["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings if finding["code"] != "too-noisy"]


def serve(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    tree = ServedTree(version=version, options={"--speculative-adaptive-config"})
    monkeypatch.setattr(serving, "served_tree", lambda *_: tree)


def test_a_profile_with_the_threshold_is_written_and_can_be_served(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglforge.pipeline.tuning.sweep", swept)
    output, picture = place.root / "recipes" / "profiles" / "fake-quick.toml", tmp_path / "curves.svg"
    costly = ("--set", "environment.FAKE_DRAFT_MS='3'", "--repeats", "3")
    code, document = place.call("fake", "--concurrency", "24,1", *costly, "-o", output, "--svg", picture)
    assert (code, codes(document)) == (0, [])
    advice = document["recommendation"]
    assert isinstance(advice, dict)
    assert (advice["kind"], advice["threshold"]) == ("threshold", 1)
    levels = document["levels"]
    assert isinstance(levels, list)
    assert [(level["concurrency"], level["outcome"]) for level in levels] == [(1, "faster"), (24, "slower")]
    assert "threshold 1" in picture.read_text()

    profile = load_catalog(place.root).profile("fake-quick")
    assert profile.speculation is not None
    assert profile.speculation.disable_above_batch == 1
    assert profile.environment == {"FAKE_TOKEN_MS": "10", "FAKE_DRAFT_MS": "3"}
    text = output.read_text()
    assert text.startswith("# Written by sglforge tune from profile fake: disable-above-batch = 1.\n")
    assert "SGLang 0.5.23" in text
    assert "a threshold for a GPU must be measured on it" in text
    assert "# a comment that stays" in text
    assert "#:schema" not in text

    record = place.workspace / "runs" / str(document["run"])
    waves = json.loads((record / "tune.json").read_text())["waves"]
    assert len(waves) == 12
    assert json.loads((record / "run.json").read_text())["result"] == document
    assert (record / "tune.svg").read_text() == picture.read_text()


def test_without_a_threshold_no_profile_is_written(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "fake-quick.toml"
    code, document = place.call("fake", "--concurrency", "2", "--repeats", "2", "-o", output)
    advice = document["recommendation"]
    assert isinstance(advice, dict)
    assert (code, advice["threshold"], document["profile_file"]) == (0, None, None)
    assert advice["kind"] in {"always", "never", "unclear"}  # by what the machine that runs the tests does besides
    assert not output.exists()


def test_a_release_without_a_threshold_gets_curves_and_a_reason(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, "0.5.13")
    monkeypatch.setattr("sglforge.pipeline.tuning.sweep", swept)
    costly = ("--set", "environment.FAKE_DRAFT_MS='3'", "--repeats", "3")
    code, document = place.call("fake", "--concurrency", "1,24", *costly)
    advice = document["recommendation"]
    assert isinstance(advice, dict)
    assert (code, document["verdict"], advice["kind"], advice["threshold"]) == (0, "warn", "refused", None)
    assert codes(document) == ["threshold-unsupported"]
    assert advice["sentence"].startswith("measured: speculate up to 1")
    assert document["profile_file"] is None


def test_a_server_that_fails_is_a_failure_that_loses_nothing(place: Place) -> None:
    words = ("--set", "environment.FAKE_FAULT=control-dies", "--repeats", "2")
    code, document = place.call("fake", "--concurrency", "1", *words)
    advice = document["recommendation"]
    assert isinstance(advice, dict)
    assert (code, document["verdict"], advice["kind"]) == (11, "fail", "none")
    assert codes(document) == ["server-died"]
    assert len(json.loads(Path(str(document["figures"])).read_text())["waves"]) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nobody",), "unknown-profile"),
        (("fake", "--concurrency", "1,two"), "usage"),
        (("fake", "--concurrency", "0"), "usage"),
        (("fake", "--concurrency", "1,,2"), "usage"),
        (("fake", "--concurrency", "²"), "usage"),
        (("fake", "--repeats", "1"), "usage"),
        (("fake", "--concurrency", "1,64"), "concurrency-too-high"),
        (("fake", "--set", "flags.max-running-requests=", "--concurrency", "64"), "concurrency-too-high"),
        (("fake", "--set", "speculation="), "nothing-to-tune"),
        (("fake", "--prompts", "/nowhere/prompts"), "prompts-unreadable"),
        (("fake", "--prompts", "/dev/null"), "prompts-unreadable"),
        (("fake", "-o", "Not A Name.toml"), "usage"),
        (("fake", "-o", "fake.json"), "usage"),
        (("fake", "-o", f"{ROOT}/noxfile.py/fake.toml"), "output-not-written"),
        (("fake", "--svg", "/"), "output-not-written"),
    ],
)
def test_what_cannot_be_done_is_said_before_a_server_starts(place: Place, words: tuple[str, ...], code: str) -> None:
    assert place.codes(*words) == (2, [code])
    assert not (place.workspace / "runs").exists()
