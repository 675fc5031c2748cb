"""Stored verdicts: cited only when nothing that they depend on changed, and only when they passed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sglforge.base.workspace import Workspace
from sglforge.config.model import Profile
from sglforge.errors import Finding, Severity
from sglforge.smoke import stored
from sglforge.smoke.verdict import ProbeResult, ProbeVerdict, SmokeReport

HOST = {"cores": "2"}


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    root = tmp_path / "catalog"
    (root / "models" / "m").mkdir(parents=True)
    (root / "models" / "m" / "weights").write_text("w")
    (root / "templates").mkdir()
    (root / "templates" / "launch.sh.j2").write_text("exec\n")
    return root


def profile(**changes: object) -> Profile:
    base = {"name": "p", "description": "d", "target": "cpu", "model": "catalog:models/m"}
    return Profile.model_validate({**base, **changes}, by_name=True)


def report(verdict: ProbeVerdict, tmp_path: Path, *remarks: Finding) -> SmokeReport:
    probe = ProbeResult(name="x", proves="y", verdict=verdict, message="", seconds=0.1, scope="cpu-logic")
    return SmokeReport(
        profile="p",
        scope="cpu-logic",
        probes=(probe,),
        remarks=remarks,
        seconds=1.0,
        seconds_to_ready=1.0,
        versions={},
        log=tmp_path / "log",
        transcript=tmp_path / "transcript",
    )


def test_a_key_covers_receipt_profile_rules_template_models_and_machine(catalog: Path) -> None:
    def key(receipt: str = "r", host: dict[str, str] = HOST, **changes: object) -> str:
        return stored.key(profile(**changes), receipt_sha256=receipt, catalog_root=catalog, host=host)

    before = key()
    assert key() == before
    assert key(receipt="other") != before
    assert key(host={"cores": "4"}) != before
    assert key(port=31000) != before
    (catalog / "models" / "m" / "weights").write_text("W")
    changed_weights = key()
    assert changed_weights != before
    (catalog / "templates" / "launch.sh.j2").write_text("exec x\n")
    changed_template = key()
    assert changed_template not in {before, changed_weights}
    (catalog / "recipes" / "rules").mkdir(parents=True)
    (catalog / "recipes" / "rules" / "sm120.toml").write_text("other target\n")
    assert key() == changed_template
    (catalog / "recipes" / "rules" / "cpu.toml").write_text("rules\n")
    assert key() not in {before, changed_weights, changed_template}


def test_a_pass_is_cited_with_its_age(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    assert stored.read(workspace, "k") is None
    stored.write(workspace, "k", report("pass", tmp_path), run="run-1")
    path = workspace.verdicts / "k.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "time": time.time() - 7300}))
    proof = stored.read(workspace, "k")
    assert proof is not None
    assert proof.report["run"] == "run-1"
    assert 7300 <= proof.age_s < 7400
    assert proof.describe() == "proven 2 hours ago, verdict pass, scope cpu-logic"


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_what_did_not_pass_proves_nothing_and_replaces_an_older_pass(verdict: ProbeVerdict, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    stored.write(workspace, "k", report("pass", tmp_path), run="1")
    stored.write(workspace, "k", report(verdict, tmp_path), run="2")
    assert stored.read(workspace, "k") is None


def test_a_pass_with_a_remark_is_cited_as_what_it_is(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    remark = Finding(code="x", severity=Severity.WARNING, message="m")
    stored.write(workspace, "k", report("pass", tmp_path, remark), run="1")
    proof = stored.read(workspace, "k")
    assert proof is not None
    assert proof.report["verdict"] == "warn"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"time": "x", "run": "1", "report": {"verdict": "pass"}}'])
def test_a_damaged_verdict_proves_nothing(text: str, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    workspace.verdicts.mkdir()
    (workspace.verdicts / "k.json").write_text(text)
    assert stored.read(workspace, "k") is None
