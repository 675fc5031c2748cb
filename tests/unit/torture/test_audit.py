"""The audit finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from torture.audit import audit, main

PARTS = {"format": "1", "source": {"tree": "ü"}}
KEY = hashlib.sha256(json.dumps(PARTS, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(path: Path) -> dict[str, object]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).decode().rstrip("=")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toy.py", "x = 1\n")
        archive.writestr("toy-1.dist-info/RECORD", f"toy.py,sha256={digest},6\ntoy-1.dist-info/RECORD,,\n")
    content = path.read_bytes()
    return {"name": path.name, "size": len(content), "sha256": sha(content)}


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture(params=["folders", "entries"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A sound workspace, with each of the two layouts of the store."""
    root = tmp_path / "ws"
    draft = put(root / "toy-1-py3-none-any.whl", b"")
    described = wheel(draft)
    entry = json.dumps({"wheel": described, "key-parts": PARTS})
    if request.param == "folders":
        put(root / "store" / KEY / "provenance.json", entry)
        draft.rename(root / "store" / KEY / draft.name)
    else:
        put(root / "store" / "entries" / f"{KEY}.json", entry)
        folder = root / "store" / "objects" / str(described["sha256"])
        folder.mkdir(parents=True)
        draft.rename(folder / draft.name)
    put(root / "sources" / sha(b"archive") / "a.tar.gz", b"archive")
    put(root / "runs" / "1" / "events.jsonl", '{"event": "x"}\n')
    (root / "runs" / "latest").symlink_to("1")
    site = root / "environments" / KEY / "venv" / "site"
    python = put(root / "environments" / KEY / "venv" / "bin" / "python", "")
    python.chmod(0o755)
    put(site / "toy.py", "x = 1\n")
    record = put(site / "toy-1.dist-info" / "RECORD", "toy-1.dist-info/RECORD,,\n")
    receipt = {
        "environment_key": KEY,
        "site_packages": "venv/site",
        "built": [{"files": {"toy.py": [sha(b"x = 1\n"), 6, 0, 0]}}],
        "records": {"toy-1.dist-info": ["1", sha(record.read_bytes()), "", 1, 1, 1]},
    }
    put(root / "environments" / KEY / "receipt.json", json.dumps(receipt))
    (root / "environments" / "name").symlink_to(KEY)
    return root


def test_a_sound_workspace_has_no_fault(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(workspace) == []
    assert main([str(workspace)]) == 0
    assert capsys.readouterr().out == "0 faults\n"


@pytest.mark.parametrize(
    "pattern",
    [
        "store/**/*.whl", "store/**/*.json", "sources/*/*", "environments/[0-9a-f]*/receipt.json",
        "environments/[0-9a-f]*/venv/site/toy.py", "environments/[0-9a-f]*/venv/site/*/RECORD", "runs/1/events.jsonl",
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_every_file_counts(workspace: Path, pattern: str, how: str) -> None:
    (path,) = workspace.glob(pattern)
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    content[place] ^= 0x80  # no JSON or TOML is valid with it
    path.write_bytes(bytes(content) if how == "flip" else bytes(content[:place]))
    faults = audit(workspace)
    assert faults
    assert {fault.kind for fault in faults} == {"damaged"}


@pytest.mark.parametrize(
    "pattern", ["store/**/*.whl", "environments/[0-9a-f]*/venv/site/toy.py", "environments/[0-9a-f]*/receipt.json"]
)
def test_what_is_missing_is_missed(workspace: Path, pattern: str) -> None:
    (path,) = workspace.glob(pattern)
    path.unlink()
    assert "damaged" in {fault.kind for fault in audit(workspace)}


def test_a_key_that_is_not_that_of_its_parts_is_told(workspace: Path) -> None:
    (path,) = workspace.glob("store/**/*.json")
    path.write_text(path.read_text().replace('"format": "1"', '"format": "2"'))
    assert [fault.message for fault in audit(workspace)] == ["its key is not the hash of its key parts"]


def test_litter_is_told_from_damage(workspace: Path) -> None:
    put(workspace / "scratch" / "toy-1.work" / "x", "")
    put(workspace / "sources" / sha(b"archive") / ".a.tar.gz.part", "arch")
    put(workspace / "environments" / ("2" * 64) / "venv" / "x", "")
    (workspace / "store" / f".{KEY}.1-ab.tmp").mkdir()
    assert [fault.kind for fault in audit(workspace)] == ["litter"] * 4


def test_a_lock_that_is_no_toml_is_told(workspace: Path, tmp_path: Path) -> None:
    put(tmp_path / "catalog" / "locks" / "a.lock.toml", "format = 1\n[")
    assert len(audit(workspace, tmp_path / "catalog")) == 1
