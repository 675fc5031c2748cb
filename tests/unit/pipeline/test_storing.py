"""The verb store on this catalog: what it says of entries that plans and environments refer to."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from toy_stores import key_of, overwrite, put

from sglforge.base.console import Console
from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.build.modules.keep import keep
from sglforge.build.store import entry_path, keys, lookup, publish
from sglforge.errors import ConfigError, InstallError
from sglforge.pipeline.request import Outcome, Request
from sglforge.pipeline.select import plan, select
from sglforge.pipeline.storing import store
from sglforge.plan import Step
from sglforge.provision.toolkit_receipt import read_receipt, write_receipt

ROOT = Path(__file__).parents[3]
OLD_S = 99 * 24 * 3600.0


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def request(workspace: Workspace, **options: object) -> Request:
    return Request(argv=(), catalog_root=ROOT, workspace=workspace, options=options)


def call(workspace: Workspace, action: str, **options: object) -> Outcome:
    outcome = store(request(workspace, action=action, **options), Console(stream=io.StringIO()))
    json.dumps(outcome.document)
    assert {"schema", "verdict", "findings"} <= outcome.document.keys()
    return outcome


def rows(outcome: Outcome, name: str) -> list[Any]:
    found = outcome.document[name]
    assert isinstance(found, list)
    return found


def age(workspace: Workspace, key: BuildKey) -> None:
    when = time.time() - OLD_S
    os.utime(entry_path(workspace.store, key), (when, when))


def environment(workspace: Workspace, key: BuildKey, *names: str) -> None:
    folder = workspace.environments / ("e" * 64)
    folder.mkdir(parents=True)
    (folder / "receipt.json").write_text(json.dumps({"built": [{"build_key": key}]}))
    for name in names:
        (workspace.environments / name).symlink_to(folder.name)


def planned_step(workspace: Workspace) -> Step:
    """Return a step of the CPU stack's plan."""
    asked = Request(argv=(), catalog_root=ROOT, workspace=workspace, target="cpu")
    console = Console(stream=io.StringIO())
    return plan(asked, select(asked, console)).plan.steps[0]


def build(workspace: Workspace, folder: Path, step: Step, parts: Mapping[str, object]) -> BuildKey:
    """Publish a wheel of a step as if it had been built of these parts."""
    wheel = folder / "toy-1.0+cpu.t1-py3-none-any.whl"
    wheel.write_bytes(json.dumps(parts, default=str).encode())
    described = {"name": wheel.name, "size": wheel.stat().st_size, "sha256": sha256_file(wheel)}
    key = BuildKey(digest(parts))
    document = {"package": step.package, "wheel": described, "key-parts": parts, "started": "2026-11-30T12:00:00"}
    publish(workspace, key, wheel, document)
    return key


def test_a_list_says_what_is_there_and_who_uses_it(workspace: Workspace) -> None:
    assert call(workspace, "list").text == "0 entries, 0 B"
    put(workspace, 1, days_old=3)
    put(workspace, 2)
    environment(workspace, key_of(1), "main.cpu")
    overwrite(entry_path(workspace.store, key_of(2)), b"half")
    outcome = call(workspace, "list")
    damaged, whole = rows(outcome, "entries")
    assert whole["key"] == key_of(1)
    assert (whole["state"], whole["package"], whole["version"], whole["bytes"]) == ("whole", "toy", "1", 7)
    assert (whole["made"], whole["environments"]) == ("2026-11-30T12:00:00+00:00", ["main.cpu"])
    assert (damaged["key"], damaged["state"], damaged["package"]) == (key_of(2), "damaged", None)
    assert f"{key_of(1)[:12]}  toy  " in outcome.text
    assert "main.cpu" in outcome.text
    assert outcome.text.endswith("2 entries, 7 B")


def test_verify_fails_for_damage_and_repair_drops_it(workspace: Workspace) -> None:
    put(workspace, 1)
    assert call(workspace, "verify").exit_code == 0
    stored = put(workspace, 2)
    overwrite(stored.path, b"WHEEL 2")
    outcome = call(workspace, "verify")
    assert (outcome.exit_code, outcome.document["verdict"]) == (9, "fail")
    (finding,) = rows(outcome, "findings")
    assert (finding["code"], finding["where"]) == ("store-damaged", str(stored.path))
    assert "store -- verify --repair" in finding["hint"]
    repaired = call(workspace, "verify", repair=True)
    assert (repaired.exit_code, repaired.document["verdict"]) == (0, "warn")
    assert str(stored.path) in rows(repaired, "repaired")
    assert call(workspace, "verify").document["verdict"] == "pass"
    assert set(keys(workspace)) == {key_of(1)}


def test_verify_looks_at_toolkits_and_modules_byte_by_byte(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.toolkits / ("a" * 64)
    (folder / "cuda/bin").mkdir(parents=True)
    nvcc = folder / "cuda/bin/nvcc"
    nvcc.write_bytes(b"compiler")
    (folder / "cuda/lib64").symlink_to("lib")
    write_receipt(folder, fingerprint=folder.name, requirements=(), stub_functions=0)
    library = tmp_path / "page.so"
    library.write_bytes(b"module")
    kept = keep(workspace, Sha256("b" * 64), library, name="page", read={"@tree/page.cu": "c" * 64})
    assert kept
    assert call(workspace, "verify").exit_code == 0

    status = nvcc.stat()
    nvcc.write_bytes(b"Compiler")  # as a disk does it: size and time say nothing
    os.utime(nvcc, ns=(status.st_atime_ns, status.st_mtime_ns))
    overwrite(kept.path, b"Module")
    damaged = call(workspace, "verify")
    assert damaged.exit_code == InstallError.exit_code
    found = rows(damaged, "findings")
    assert [one["code"] for one in found] == ["store-damaged", "store-damaged"]
    assert {one["where"] for one in found} == {str(kept.path.parent), str(folder)}

    repaired = call(workspace, "verify", repair=True)
    assert (repaired.exit_code, len(rows(repaired, "repaired"))) == (0, 2)
    assert read_receipt(folder) is None
    assert not kept.path.exists()
    assert call(workspace, "verify").document["findings"] == []


def test_why_names_what_it_was_built_from_and_who_wants_it(workspace: Workspace, tmp_path: Path) -> None:
    step = planned_step(workspace)
    assert call(workspace, "why", key=step.key[:10]).document["state"] == "not built"
    current = build(workspace, tmp_path, step, step.key_parts)
    assert current == step.key
    older = build(workspace, tmp_path, step, {**step.key_parts, "source": "another"})
    environment(workspace, older, "before.cpu")

    outcome = call(workspace, "why", key=current[:20])
    assert (outcome.document["state"], outcome.document["package"]) == ("in the store", step.package)
    references = rows(outcome, "references")
    assert any(line.startswith("plan of ") for line in references)
    assert "wanted by" in outcome.text

    outcome = call(workspace, "why", key=older)
    assert rows(outcome, "references") == ["environment before.cpu"]
    wanted = [other for other in rows(outcome, "others") if other["key"] == current]
    assert wanted
    assert all(other["differs"][0].startswith("source") for other in wanted)
    assert "instead" in outcome.text


def test_why_of_an_unknown_or_ambiguous_key_is_said(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InstallError, match="store-key-unknown"):
        call(workspace, "why", key="0123456789abcdef" * 2)
    with pytest.raises(ConfigError, match="usage"):
        call(workspace, "why", key="ab")
    monkeypatch.setattr("sglforge.pipeline.storing.entry_keys", lambda _: [BuildKey("abcd" + d * 60) for d in "12"])
    with pytest.raises(InstallError, match="store-key-ambiguous"):
        call(workspace, "why", key="ABCD")


def test_gc_keeps_what_plans_and_environments_refer_to(workspace: Workspace, tmp_path: Path) -> None:
    step = planned_step(workspace)
    current = build(workspace, tmp_path, step, step.key_parts)
    older = build(workspace, tmp_path, step, {**step.key_parts, "source": "another"})
    free = put(workspace, 1).key
    environment(workspace, older, "before.cpu")
    for key in (current, older, free):
        age(workspace, key)

    said = call(workspace, "gc", dry_run=True)
    assert set(keys(workspace)) == {current, older, free}
    assert said.document["dry_run"] is True
    outcome = call(workspace, "gc")
    assert set(keys(workspace)) == {current, older}
    assert rows(said, "removed") == rows(outcome, "removed")
    assert [item["kind"] for item in rows(outcome, "removed")] == ["entry", "object"]
    kept = outcome.document["kept"]
    assert isinstance(kept, dict)
    assert kept[older] == "environment before.cpu was made from it"
    assert kept[current].endswith("wants it")
    assert outcome.document["bytes"] == sum(item["bytes"] for item in rows(outcome, "removed"))
    assert "removed" in outcome.text
    assert call(workspace, "verify").document["verdict"] == "pass"


def test_an_environment_that_goes_takes_its_wheels_along(workspace: Workspace) -> None:
    key = put(workspace, 1).key
    age(workspace, key)
    environment(workspace, key)
    folder = workspace.environments / ("e" * 64)
    for path in (folder / "receipt.json", folder):
        os.utime(path, (0, 0))
    assert [item["kind"] for item in rows(call(workspace, "gc"), "removed")] == ["environment", "entry", "object"]
    assert not folder.exists()
    assert lookup(workspace, key) is None


def test_a_plan_that_cannot_be_made_keeps_its_packages(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = planned_step(workspace)
    key = build(workspace, tmp_path, step, {"source": "from long ago"})
    age(workspace, key)

    def broken(*_: object) -> None:
        raise ConfigError(code="config-invalid", message="a patch is broken")

    monkeypatch.setattr("sglforge.pipeline.references.plan", broken)
    outcome = call(workspace, "gc")
    assert set(keys(workspace)) == {key}
    unplanned = outcome.document["unplanned"]
    assert isinstance(unplanned, dict)
    assert "config-invalid" in unplanned[step.package]
