"""Which stores are asked for a step's wheel, and what a plan says of them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from sglforge.base import runrecord
from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console
from sglforge.base.files import sha256_file
from sglforge.base.workspace import Workspace
from sglforge.build.store import publish
from sglforge.config.lockfile import LockedArchive
from sglforge.pipeline import machine
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned, plan, select
from sglforge.pipeline.sharing import borrowed, elsewhere, places
from sglforge.plan import Step

ROOT = Path(__file__).parents[3]


def ask(workspace: Workspace, *stores: str, offline: bool = False) -> Request:
    return Request(
        argv=(),
        catalog_root=ROOT,
        workspace=workspace,
        target="cpu",
        offline=offline,
        options={"store": list(stores)},
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def others(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "others")


@pytest.fixture
def planned(workspace: Workspace) -> Planned:
    request = ask(workspace)
    return plan(request, select(request, Console(stream=io.StringIO())))


@pytest.fixture
def step(planned: Planned) -> Step:
    return next(step for step in planned.plan.steps if isinstance(step.locked, LockedArchive))


def wheel_of(step: Step, folder: Path, version: str | None = None) -> Path:
    """Write a wheel that is what a step makes, but for its content."""
    assert isinstance(step.locked, LockedArchive)
    name, module = step.locked.project.replace("-", "_"), step.recipe.import_name
    version = f"{version or step.locked.version}+{step.local_version}"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {step.locked.project}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{info}/RECORD,,\n"
    for path, text in files.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={hashed},{len(text)}\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def share(others: Workspace, step: Step, wheel: Path) -> str:
    """Put a wheel into another store, and return its folder."""
    described = {"name": wheel.name, "size": wheel.stat().st_size, "sha256": sha256_file(wheel)}
    publish(others, step.key, wheel, {"package": step.package, "wheel": described, "key-parts": dict(step.key_parts)})
    return str(others.store)


def test_places_come_from_the_command_line_then_the_variable(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLFORGE_STORES", " /mnt/b  https://host/store/ /mnt/a ")
    found = places(ask(workspace, "/mnt/a"))
    assert [one.name for one in found] == ["/mnt/a", "/mnt/b", "https://host/store"]
    monkeypatch.setenv("SGLFORGE_STORES", "")
    assert places(ask(workspace)) == []


def test_a_steps_wheel_is_taken_from_another_store_and_said(
    workspace: Workspace, others: Workspace, planned: Planned, step: Step, tmp_path: Path
) -> None:
    request = ask(workspace, str(tmp_path / "none"), share(others, step, wheel_of(step, tmp_path)))
    record, out = runrecord.start(workspace.runs), io.StringIO()
    console, found = Console(stream=out), places(request)
    taken = borrowed(step, planned, request, record, console, found, cancellation=Cancellation())
    assert taken
    assert taken.path.is_relative_to(workspace.store)
    events = [json.loads(line) for line in (record.folder / "events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["place"]) for event in events] == [
        ("store-not-used", str(tmp_path / "none")),
        ("wheel-copied", str(others.store)),
    ]
    assert "[store-not-used]" in out.getvalue()
    assert f"{taken.path.name} from {others.store}" in out.getvalue()
    assert borrowed(step, planned, request, record, console, found, cancellation=Cancellation()) == taken, (
        "and then it is our own"
    )


def test_a_wheel_of_another_version_is_not_taken(
    workspace: Workspace, others: Workspace, planned: Planned, step: Step, tmp_path: Path
) -> None:
    request = ask(workspace, share(others, step, wheel_of(step, tmp_path, version="0.0.1")))
    record, out = runrecord.start(workspace.runs), io.StringIO()
    assert (
        borrowed(step, planned, request, record, Console(stream=out), places(request), cancellation=Cancellation())
        is None
    )
    assert "wanted is" in out.getvalue()
    assert not workspace.store.exists()


def test_a_plan_says_where_a_wheel_is_and_where_it_may_be_without_asking(
    workspace: Workspace, others: Workspace, step: Step, tmp_path: Path
) -> None:
    folder, address = share(others, step, wheel_of(step, tmp_path)), "http://127.0.0.1:9/store"
    request = ask(workspace, folder, address)
    assert elsewhere(step, places(request), offline=False) == {"in": [folder], "perhaps_in": [address]}
    assert elsewhere(step, places(request), offline=True) == {"in": [folder], "perhaps_in": []}
    outcome = machine.plan(request, Console(stream=io.StringIO()))
    said = outcome.document["elsewhere"]
    assert isinstance(said, dict)
    assert said[step.package]["in"] == [folder]
    assert f"is in {folder}: build copies it" in outcome.text
    assert f"may be in {address}: a plan does not ask" in outcome.text
