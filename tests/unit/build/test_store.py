"""The store: published once, looked up cheaply, never half."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from sglforge.base.files import sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build.store import (
    StoredWheel,
    damaged_keys,
    drop_damaged,
    keys,
    latest_key_parts,
    lookup,
    publish,
    verify,
)

KEY = BuildKey("a1" * 32)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def put(workspace: Workspace, folder: Path, content: bytes = b"wheel") -> StoredWheel:
    folder.mkdir(exist_ok=True)
    wheel = folder / "toy-1-py3-none-any.whl"
    wheel.write_bytes(content)
    described = {"name": wheel.name, "size": len(content), "sha256": sha256_file(wheel)}
    return publish(workspace, KEY, wheel, {"kind": "re-packed wheel", "wheel": described})


def test_published_then_found(workspace: Workspace, tmp_path: Path) -> None:
    assert lookup(workspace, KEY) is None
    stored = put(workspace, tmp_path / "new")
    assert lookup(workspace, KEY) == stored
    assert stored.path == workspace.store / KEY / "toy-1-py3-none-any.whl"
    assert stored.path.read_bytes() == b"wheel"
    assert stored.provenance["kind"] == "re-packed wheel"
    assert {path.name for path in workspace.store.iterdir()} == {KEY}
    assert verify(stored) == ()


def test_the_first_one_stays(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, tmp_path / "new", b"first")
    assert put(workspace, tmp_path / "new", b"second").path.read_bytes() == b"first"


def test_runs_that_race_agree(workspace: Workspace, tmp_path: Path) -> None:
    found: list[StoredWheel] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(put(workspace, tmp_path / str(n), b"%d" % n)))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({stored.sha256 for stored in found}) == 1
    assert verify(found[0]) == ()


@pytest.mark.parametrize("harm", ["cut", "gone", "no provenance", "broken provenance", "empty provenance"])
def test_what_is_damaged_counts_as_absent_and_is_replaced(harm: str, workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    provenance = stored.path.with_name("provenance.json")
    match harm:
        case "cut":
            stored.path.write_bytes(b"half")
        case "gone":
            stored.path.unlink()
        case "no provenance":
            provenance.unlink()
        case "broken provenance":
            provenance.write_text("{")
        case _:
            provenance.write_text("[]")
    assert lookup(workspace, KEY) is None
    assert keys(workspace) == frozenset()
    assert damaged_keys(workspace) == {KEY}
    assert put(workspace, tmp_path / "new").path.read_bytes() == b"wheel"
    assert lookup(workspace, KEY) is not None
    assert keys(workspace) == {KEY}
    assert damaged_keys(workspace) == frozenset()


def test_only_a_damaged_wheel_is_dropped(workspace: Workspace, tmp_path: Path) -> None:
    assert damaged_keys(workspace) == frozenset()
    assert not drop_damaged(workspace, KEY)
    stored = put(workspace, tmp_path / "new")
    assert not drop_damaged(workspace, KEY)
    stored.path.write_bytes(b"WHEEL")
    assert drop_damaged(workspace, KEY)
    assert keys(workspace) == damaged_keys(workspace) == frozenset()


def test_a_changed_wheel_is_found_by_verify(workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    stored.path.write_bytes(b"WHEEL")
    assert lookup(workspace, KEY) is not None  # a lookup reads no contents
    (finding,) = verify(stored)
    assert finding.code == "store-damaged"
    stored.path.unlink()
    assert [finding.code for finding in verify(stored)] == ["store-damaged"]


def test_a_wrong_provenance_is_our_bug(workspace: Workspace, tmp_path: Path) -> None:
    wheel = tmp_path / "toy.whl"
    wheel.write_bytes(b"x")
    with pytest.raises(AssertionError):
        publish(workspace, KEY, wheel, {"wheel": {"name": wheel.name, "size": 2, "sha256": "0"}})


def test_the_document_is_readable(workspace: Workspace, tmp_path: Path) -> None:
    stored = put(workspace, tmp_path / "new")
    text = stored.path.with_name("provenance.json").read_text()
    assert json.loads(text) == stored.provenance
    assert text.count("\n") > 3


def test_a_plan_learns_what_is_stored_and_what_the_newest_wheel_was_built_from(
    workspace: Workspace, tmp_path: Path
) -> None:
    assert keys(workspace) == frozenset()
    assert latest_key_parts(workspace) == {}
    for number, started in enumerate(("2026-03-01T00:00:00", "2026-01-01T00:00:00", "2026-02-01T00:00:00")):
        wheel = tmp_path / f"toy-{number}-py3-none-any.whl"
        wheel.write_bytes(b"wheel")
        described = {"name": wheel.name, "size": 5, "sha256": sha256_file(wheel)}
        parts = {"source": str(number)}
        provenance = {"package": "toy", "wheel": described, "key-parts": parts, "started": started}
        publish(workspace, BuildKey(f"{number}" * 64), wheel, provenance)
    assert keys(workspace) == {"0" * 64, "1" * 64, "2" * 64}
    assert latest_key_parts(workspace) == {"toy": {"source": "0"}}
    (workspace.store / ("0" * 64) / "toy-0-py3-none-any.whl").unlink()
    assert keys(workspace) == {"1" * 64, "2" * 64}
    assert latest_key_parts(workspace) == {"toy": {"source": "2"}}
