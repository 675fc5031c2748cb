"""Look at a workspace as a stranger: every hash computed here, every link followed, nothing of sglforge imported.

``python tests/torture/audit.py WORKSPACE [CATALOG]`` prints one line for each fault and ends with 1 if there is one.

Understood are both layouts of the store: ``store/<key>/{provenance.json,<wheel>}``, and ``store/entries/<key>.json``
with ``store/objects/<sha256>/<wheel>``.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEX64 = re.compile(r"[0-9a-f]{64}")
DRAFT = re.compile(r"\..*\.tmp")
PART = re.compile(r"\..*\.part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with one path. ``kind``: `damaged` must never be, `litter` only after a run was ended."""

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {self.message}"


def audit(workspace: Path, catalog: Path | None = None) -> list[Fault]:
    """Return what is wrong in a workspace, and with the locks of a catalog."""
    looks = (
        _store, _sources, _mirrors, _environments, _documents, _runs, _scratch, _locks,
    )  # fmt: skip
    faults = [fault for look in looks for fault in look(workspace)]
    if catalog:
        faults += _lock_files(catalog / "locks")
    return faults


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _damaged(path: Path, message: str) -> Fault:
    return Fault(kind="damaged", path=str(path), message=message)


def _litter(path: Path, message: str) -> Fault:
    return Fault(kind="litter", path=str(path), message=message)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _store(workspace: Path) -> Iterator[Fault]:
    store = workspace / "store"
    if (store / "entries").exists() or (store / "objects").exists():
        yield from _new_store(store)
        return
    for folder in _listed(store):
        if DRAFT.fullmatch(folder.name):
            yield _litter(folder, "a draft")
        elif not HEX64.fullmatch(folder.name):
            yield _damaged(folder, "is not named by a key")
        else:
            yield from _old_entry(folder)


def _old_entry(folder: Path) -> Iterator[Fault]:
    try:
        provenance = json.loads((folder / "provenance.json").read_text())
        wheel = folder / provenance["wheel"]["name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield _damaged(folder, f"has no provenance that can be read: {error}")
        return
    if {entry.name for entry in _listed(folder)} != {"provenance.json", wheel.name}:
        yield _damaged(folder, f"holds {[entry.name for entry in _listed(folder)]}")
    yield from _entry(folder, folder.name, provenance, wheel)


def _new_store(store: Path) -> Iterator[Fault]:
    for folder in _listed(store):
        if DRAFT.fullmatch(folder.name):
            yield _litter(folder, "a draft")
        elif HEX64.fullmatch(folder.name):
            yield _litter(folder, "an entry of the old layout")
    for folder in _listed(store / "objects"):
        if DRAFT.fullmatch(folder.name):
            yield _litter(folder, "a draft")
            continue
        for file in _listed(folder):
            if DRAFT.fullmatch(file.name):
                yield _litter(file, "a draft")
            elif sha256(file) != folder.name:
                yield _damaged(file, "has another hash than its folder's name")
    for path in _listed(store / "entries"):
        if DRAFT.fullmatch(path.name):
            yield _litter(path, "a draft")
            continue
        try:
            entry = json.loads(path.read_text())
            own = entry.pop("sha256", None)
            wheel = store / "objects" / entry["wheel"]["sha256"] / entry["wheel"]["name"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield _damaged(path, f"cannot be read: {error}")
            continue
        if own is not None and own != _digest(entry):
            yield _damaged(path, "has another hash than it says")
        yield from _entry(path, path.name.removesuffix(".json"), entry, wheel)


def _entry(place: Path, key: str, entry: dict[str, Any], wheel: Path) -> Iterator[Fault]:
    """Hold a wheel to its entry: size, hash, RECORD, and the key to the parts that it was computed from."""
    stated = entry["wheel"]
    if not wheel.is_file() or wheel.is_symlink():
        yield _damaged(wheel, "is not there")
        return
    if (wheel.stat().st_size, sha256(wheel)) != (stated["size"], stated["sha256"]):
        yield _damaged(wheel, "has another size or hash than its entry says")
        return
    parts = entry.get("key-parts", entry.get("key_parts", entry.get("provenance", {}).get("key-parts")))
    if _digest(parts) != key:
        yield _damaged(place, "its key is not the hash of its key parts")
    yield from _wheel(wheel)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _wheel(path: Path) -> Iterator[Fault]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            record = next(name for name in names if name.endswith(".dist-info/RECORD"))
            rows = {row[0]: row[1] for row in csv.reader(io.StringIO(archive.read(record).decode())) if row}
            if set(rows) != {name for name in names if not name.endswith("/")}:
                yield _damaged(path, "holds other files than its RECORD")
            for name, stated in rows.items():
                if stated and stated != _record_hash(archive.read(name)):
                    yield _damaged(path, f"{name} is not what RECORD says")
    except (OSError, ValueError, KeyError, StopIteration, zipfile.BadZipFile) as error:
        yield _damaged(path, f"is no wheel: {error!r}")


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _sources(workspace: Path) -> Iterator[Fault]:
    for folder in _listed(workspace / "sources"):
        if not HEX64.fullmatch(folder.name):
            continue
        for file in _listed(folder):
            if PART.fullmatch(file.name) or DRAFT.fullmatch(file.name):
                yield _litter(file, "a file that was not finished")
            elif sha256(file) != folder.name:
                yield _damaged(file, "has another hash than its folder's name")


def _mirrors(workspace: Path) -> Iterator[Fault]:
    for mirror in _listed(workspace / "sources" / "git"):
        if not re.fullmatch(r"[0-9a-f]{64}\.git", mirror.name):
            yield _litter(mirror, "a mirror that was not finished")
            continue
        done = subprocess.run(
            ("git", "--git-dir", mirror, "fsck", "--full", "--no-dangling"),
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            yield _damaged(mirror, f"git fsck: {(done.stderr or done.stdout).strip()[:300]}")


def _environments(workspace: Path) -> Iterator[Fault]:
    folder = workspace / "environments"
    for path in _listed(folder):
        if DRAFT.fullmatch(path.name):
            yield _litter(path, "a draft")
        elif path.is_symlink():
            if not (path / "receipt.json").is_file():
                yield _damaged(path, "points at no finished environment")
        elif (path / "receipt.json").is_file():
            yield from _environment(path)
        else:
            yield _litter(path, "an environment that was not finished")


def _environment(path: Path) -> Iterator[Fault]:
    try:
        receipt = json.loads((path / "receipt.json").read_text())
        site = path / receipt["site_packages"]
        built = [(site / name, row[0]) for entry in receipt["built"] for name, row in entry["files"].items()]
        records = [(site / folder / "RECORD", row[1]) for folder, row in receipt["records"].items()]
        if receipt["environment_key"] != path.name:
            yield _damaged(path / "receipt.json", "is of another environment")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield _damaged(path / "receipt.json", f"cannot be read: {error!r}")
        return
    for file, stated in (*built, *records):
        if not file.is_file():
            yield _damaged(file, "is not there, and the receipt says so")
        elif sha256(file) != stated:
            yield _damaged(file, "is not what the receipt says")
    for record, _ in records:
        if record.is_file():
            yield from _installed(site, record)
    if not os.access(path / "venv" / "bin" / "python", os.X_OK):
        yield _damaged(path / "venv/bin/python", "cannot be run")


def _installed(site: Path, record: Path) -> Iterator[Fault]:
    for row in csv.reader(io.StringIO(record.read_text(errors="replace"))):
        if len(row) > 1 and row[1]:
            file = site / row[0]
            if not file.is_file() or _record_hash(file.read_bytes()) != row[1]:
                yield _damaged(file, "is not what RECORD says")


def _documents(workspace: Path) -> Iterator[Fault]:
    """Read the small documents that are published whole."""
    for shelf in ("verdicts", "noise", "arguments", "history"):
        for path in sorted((workspace / shelf).rglob("*")):
            if not path.is_dir():
                yield from _document(path)
    for path in sorted(workspace.glob("*remembered.json*")):
        yield from _document(path)


def _document(path: Path) -> Iterator[Fault]:
    if DRAFT.fullmatch(path.name):
        yield _litter(path, "a draft")
        return
    try:
        json.loads(path.read_text())
    except (OSError, ValueError) as error:
        yield _damaged(path, f"cannot be read: {error}")


def _runs(workspace: Path) -> Iterator[Fault]:
    runs = workspace / "runs"
    for path in _listed(runs):
        if DRAFT.fullmatch(path.name):
            yield _litter(path, "a draft")
        elif path.is_symlink():
            if not path.is_dir():
                yield _damaged(path, "points at no run")
        elif path.name == "bug.txt":
            yield _damaged(path, path.read_text()[-1500:])
        elif path.is_dir():
            yield from _run(path)


def _run(folder: Path) -> Iterator[Fault]:
    for path in _listed(folder):
        if DRAFT.fullmatch(path.name):
            yield _litter(path, "a draft")
    if (folder / "run.json").exists():
        yield from _document(folder / "run.json")
    events = folder / "events.jsonl"
    lines = events.read_text(errors="replace").splitlines() if events.is_file() else ()
    for number, line in enumerate(lines, start=1):
        try:
            json.loads(line)
        except ValueError as error:
            yield _damaged(events, f"line {number}: {error}")


def _scratch(workspace: Path) -> Iterator[Fault]:
    for path in _listed(workspace / "scratch"):
        yield _litter(path, "a working folder")


def _locks(workspace: Path) -> Iterator[Fault]:
    for path in _listed(workspace / "locks"):
        if DRAFT.fullmatch(path.name):
            yield _litter(path, "a draft")
        elif path.suffix == ".holder":
            yield _litter(path, "names a holder")


def _lock_files(folder: Path) -> Iterator[Fault]:
    for path in _listed(folder):
        if DRAFT.fullmatch(path.name):
            yield _litter(path, "a draft")
            continue
        try:
            tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            yield _damaged(path, f"cannot be read: {error}")


def main(arguments: list[str]) -> int:
    """Print the faults of a workspace; return 1 if there is one."""
    faults = audit(Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else None)
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
