"""Judge a store: every object hashed, every entry compared with its key, every file accounted for."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import listed, remove, sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build.entry import Entry, is_key
from sglforge.build.store import object_path, read_entry, writing
from sglforge.errors import Finding, Severity

THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was looked at: numbers of entries and objects, bytes hashed; findings; paths that ``repair`` removes."""

    entries: int
    objects: int
    hashed_bytes: int
    findings: tuple[Finding, ...]
    broken: tuple[Path, ...]


def audit(workspace: Workspace, *, progress: Callable[[int, int], None] = lambda _done, _all: None) -> Audit:
    """Return what is wrong with a store; nothing is changed, and other runs go on meanwhile.

    Findings: ``store-damaged`` (a wheel is missing or another one), ``store-entry-invalid`` (an entry is not whole, or
    is not what its key says); as remarks ``store-object-unused`` (an interrupted publication leaves one, and gc removes
    it), and ``store-file-unknown``. ``progress`` is told objects hashed and all of them.
    """
    store = workspace.store
    faults = _Faults()
    entries = dict(_entries(store, faults))
    folders = [folder for folder in listed(store / "objects") if not folder.name.startswith(".")]
    files = [path for folder in folders for path in listed(folder) if not path.name.startswith(".")]
    found, sizes = {}, 0
    with ThreadPoolExecutor(max_workers=min(THREADS, os.cpu_count() or 1)) as pool:
        for number, (path, hashed) in enumerate(zip(files, pool.map(_hash, files), strict=True)):
            progress(number + 1, len(files))
            if hashed:
                found[path], sizes = hashed, sizes + hashed[1]
    for path, entry in entries.items():
        wanted = object_path(store, entry)
        hashed = found[wanted] if wanted in found else _hash(wanted)  # it may have come since
        if hashed != (entry.sha256, entry.size) and path.exists():
            faults.damaged(path, wanted, entry)
    used = {object_path(store, entry) for entry in entries.values()}
    for path, (sha256, _) in found.items():
        if path not in used:
            faults.unused(path, whole=sha256 == path.parent.name)
    for path in _unknown(store):
        faults.unknown(path)
    return Audit(
        entries=len(entries),
        objects=len(files),
        hashed_bytes=sizes,
        findings=tuple(faults.findings),
        broken=tuple(dict.fromkeys(faults.broken)),
    )


def repair(workspace: Workspace, found: Audit) -> None:
    """Remove what an audit found broken: entries before their objects; what they stood for is built again.

    What another run has made good meanwhile stays.
    """
    with writing(workspace):
        for path in sorted(found.broken, key=lambda path: path.parent.name != "entries"):
            if not (_whole_entry(workspace.store, path) if path.parent.name == "entries" else _whole(path)):
                remove(path)


class _Faults:
    """Findings as they are made, and what has to go."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.broken: list[Path] = []

    def damaged(self, path: Path, wheel: Path, entry: Entry) -> None:
        there = os.path.lexists(wheel)
        self.broken += [path, wheel] if there else [path]
        self._add(
            "store-damaged",
            Severity.ERROR,
            wheel,
            f"the wheel of {entry.package or 'a package'} {'is not the one that was built' if there else 'is gone'}",
            "nox -s store -- verify --repair drops it; nox -s build builds it again",
        )

    def invalid(self, path: Path, why: str) -> None:
        self.broken.append(path)
        hint = "nox -s store -- verify --repair drops it; nox -s build makes it again"
        self._add("store-entry-invalid", Severity.ERROR, path, f"the entry does not count: {why}", hint)

    def unused(self, path: Path, *, whole: bool) -> None:
        if not whole:
            self.broken.append(path)
        message = "no entry refers to this wheel" + ("" if whole else ", and it is damaged")
        self._add("store-object-unused", Severity.INFO, path, message, "nox -s store -- gc removes it")

    def unknown(self, path: Path) -> None:
        left = path.name.startswith(".") or is_key(path.name)
        message = "an interrupted run or an older sglforge left it" if left else "sglforge did not put it there"
        hint = "nox -s store -- gc removes it" if left else "look what it is, and move it away"
        self._add("store-file-unknown", Severity.INFO if left else Severity.WARNING, path, message, hint)

    def _add(self, code: str, severity: Severity, path: Path, message: str, hint: str) -> None:
        self.findings.append(
            Finding(code=code, severity=severity, subject=path.name, message=message, where=str(path), hint=hint)
        )


def _entries(store: Path, faults: _Faults) -> Iterator[tuple[Path, Entry]]:
    """Yield the entries that are whole with their paths; note the others."""
    for path in listed(store / "entries"):
        key = BuildKey(path.name.removesuffix(".json"))
        if key == path.name or not is_key(key):
            continue
        try:
            entry = read_entry(store, key)
        except FileNotFoundError:
            continue  # removed meanwhile
        except (OSError, ValueError) as error:
            faults.invalid(path, str(error))
            continue
        if entry.fits_its_key:
            yield path, entry
        else:
            faults.invalid(path, "its key is not that of the parts that it states")


def _hash(path: Path) -> tuple[str, int] | None:
    """Return hash and size of an object: an empty hash where it is no file that can be read, None where it is gone."""
    try:
        status = path.lstat()
        return (sha256_file(path) if stat.S_ISREG(status.st_mode) else ""), status.st_size
    except FileNotFoundError:
        return None
    except OSError:
        return "", 0


def _whole(path: Path) -> bool:
    hashed = _hash(path)
    return hashed is not None and hashed[0] == path.parent.name


def _whole_entry(store: Path, path: Path) -> bool:
    try:
        entry = read_entry(store, BuildKey(path.name.removesuffix(".json")))
    except (OSError, ValueError):
        return False
    return entry.fits_its_key and _hash(object_path(store, entry)) == (entry.sha256, entry.size)


def _unknown(store: Path) -> Iterator[Path]:
    """Yield what is in a store and belongs to none of its parts."""
    known = {"entries", "objects"}
    yield from (path for path in listed(store) if path.name not in known)
    for path in listed(store / "entries"):
        if path.suffix != ".json" or not is_key(path.stem):
            yield path
    for folder in listed(store / "objects"):
        if not is_key(folder.name) or not folder.is_dir():
            yield folder
        yield from (path for path in listed(folder) if path.name.startswith("."))
