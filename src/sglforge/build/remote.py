"""Stores of others, as sources of wheels: folders and plain web servers with the layout of a store; only read.

Whoever serves a store is trusted for what it claims to have built, and for nothing else. What comes is bounded in size
and time, its entry must be that of the key (the digest of the parts that it states), its wheel must have the size and
hash that the entry states, and it goes through the checks of a wheel that was built here. Whatever does not fit is a
warning, and the wheel is built here.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sglforge.base.download import download, local_path, read_bytes, redact
from sglforge.base.files import open_plain
from sglforge.base.ids import BuildKey
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.build.entry import LIMIT_BYTES, Entry, parse
from sglforge.build.store import StoredWheel, object_path, publish, read_entry
from sglforge.errors import ConfigError, Finding, Severity, SglforgeError
from sglforge.sources.unpack import LIMITS

ENTRY_TIME_S = 20.0
OBJECT_TIME_S = 60.0
SLOWEST_BYTES_PER_S = 500_000
SILENCE_S = 10.0
CHUNK_BYTES = 1024 * 1024
_GIVEN_UP = frozenset({"network-unreachable", "tls-failed", "download-refused", "unsupported-url"})
"""What makes a place useless for the rest of a run."""


@dataclass(slots=True, kw_only=True)
class Place:
    """A store of others: a folder, or the address of one that is served; ``given_up`` once it is of no use."""

    folder: Path | None
    url: str
    given_up: bool = field(default=False)

    @property
    def name(self) -> str:
        """The place in words, without what may be secret."""
        return str(self.folder) if self.folder else redact(self.url)


def place(text: str) -> Place:
    """Return the place that a folder or an address (http, https, file) names; a workspace stands for its store.

    Raises ConfigError ``store-place-invalid``.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    if scheme is None:
        return Place(folder=_store_in(Path(text).expanduser().absolute()), url="")
    match scheme[1].lower():
        case "file":
            return Place(folder=_store_in(local_path(text)), url="")
        case "http" | "https":
            return Place(folder=None, url=text.rstrip("/"))
        case _:
            raise ConfigError(
                code="store-place-invalid",
                message=f"a store cannot be read from {redact(text)}",
                hint="name a folder, or an http or https address: --store /mnt/store, --store https://host/store",
            )


def _store_in(folder: Path) -> Path:
    within = folder / "store"
    return within if (within / "entries").is_dir() and not (folder / "entries").is_dir() else folder


def holds(found: Place, key: BuildKey) -> bool | None:
    """Say whether a place has a whole entry of a key and a wheel of its size; None where only a network can tell."""
    if found.folder is None:
        return None
    try:
        entry = read_entry(found.folder, key)
        return entry.fits_its_key and object_path(found.folder, entry).stat().st_size == entry.size
    except (OSError, ValueError, SglforgeError):
        return False


def borrow(
    workspace: Workspace,
    key: BuildKey,
    places: list[Place],
    *,
    check: Callable[[Path], None],
    offline: bool,
    warn: Callable[[Finding], None],
    progress: Callable[[int, int | None], None] | None = None,
) -> tuple[StoredWheel, Place] | None:
    """Copy the wheel of a key from the first place that has a good one into the own store; None when there is none.

    Args:
        workspace: Whose store gets it.
        key: The build key.
        places: Where to look, in this order; one that turns out to be of no use is given up.
        check: Refuses, by raising CheckError, a wheel that is not what it should be.
        offline: Whether the network may not be used.
        warn: Told what is wrong with a place.
        progress: Told the bytes of a wheel so far and in total.

    Raises nothing of a place. What the own disk refuses is OSError, or FetchError ``disk-full`` and ``not-writable``.
    """
    for found in places:
        if found.given_up or (offline and found.folder is None):
            continue
        with working_folder(workspace, "borrow") as folder:
            try:
                entry = _entry(found, key)
                if entry is None:
                    continue
                wheel = _wheel(found, entry, folder, progress)
                _require_bounds(wheel)
                check(wheel)
            except SglforgeError as error:
                if error.code in {"disk-full", "not-writable"}:
                    raise
                found.given_up = error.code in _GIVEN_UP
                warn(_warning(found, key, error.message, given_up=found.given_up))
                continue
            except (_PlaceFault, *_UNREADABLE) as error:
                warn(_warning(found, key, str(error) or type(error).__name__, given_up=False))
                continue
            stored = publish(workspace, key, wheel, {**entry.document, "copied-from": found.name})
            return stored, found
    return None


# What reading a file that was made to harm can raise, beyond what the check of a wheel names.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, LookupError, RecursionError, MemoryError)


class _PlaceFault(Exception):  # noqa: N818 - it becomes a warning
    """What a place has is not what it should be, or cannot be read."""


def _entry(found: Place, key: BuildKey) -> Entry | None:
    """Return the entry of a key, None when the place has none."""
    try:
        if found.folder:
            if not found.folder.is_dir():
                raise _PlaceFault("there is no such folder")
            entry = read_entry(found.folder, key)
        else:
            url = f"{found.url}/entries/{key}.json"
            data = read_bytes(url, limit_bytes=LIMIT_BYTES, deadline_s=ENTRY_TIME_S, timeout_s=SILENCE_S)
            if data is None:
                return None
            entry = parse(data, key)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _PlaceFault(f"its entry cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _PlaceFault(f"its entry is not accepted: {error}") from error
    if not entry.fits_its_key:
        raise _PlaceFault("its entry is not accepted: the key is not that of the parts that it states")
    return entry


def _wheel(found: Place, entry: Entry, folder: Path, progress: Callable[[int, int | None], None] | None) -> Path:
    """Bring the wheel of an entry into a folder, verified by size and hash."""
    wheel = folder / entry.name
    if found.folder:
        _copy(object_path(found.folder, entry), wheel, entry, progress)
        return wheel
    url = f"{found.url}/objects/{entry.sha256}/{quote(entry.name)}"
    download(
        url,
        wheel,
        sha256=entry.sha256,
        timeout_s=SILENCE_S,
        attempts=3,
        limit_bytes=entry.size,
        deadline_s=OBJECT_TIME_S + entry.size / SLOWEST_BYTES_PER_S,
        progress=progress,
    )
    if wheel.stat().st_size != entry.size:
        raise _PlaceFault("its wheel has another size than its entry states")
    return wheel


def _copy(source: Path, wheel: Path, entry: Entry, progress: Callable[[int, int | None], None] | None) -> None:
    state, done = hashlib.sha256(), 0
    try:
        stream = open_plain(source)
    except OSError as error:
        raise _PlaceFault(f"its wheel cannot be read: {error.strerror}") from error
    with stream, wheel.open("wb") as copy:
        while True:
            try:
                chunk = stream.read(CHUNK_BYTES)
            except OSError as error:
                raise _PlaceFault(f"its wheel cannot be read: {error.strerror}") from error
            done += len(chunk)
            if not chunk or done > entry.size:
                break
            state.update(chunk)
            copy.write(chunk)
            if progress:
                progress(done, entry.size)
    if done != entry.size or state.hexdigest() != entry.sha256:
        raise _PlaceFault("its wheel is not the one that its entry states")


def _require_bounds(wheel: Path) -> None:
    """Refuse a wheel that would become too much when it is read or unpacked; what is declared is held to later."""
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
    described = sum(member.file_size for member in members if ".dist-info/" in member.filename)
    if described > LIMITS.read_bytes * 4 or sum(member.file_size for member in members) > LIMITS.total_bytes:
        raise _PlaceFault("its wheel would become too large when it is unpacked")


def _warning(found: Place, key: BuildKey, why: str, *, given_up: bool) -> Finding:
    rest = "; it is not asked again" if given_up else ""
    return Finding(
        code="store-not-used",
        severity=Severity.WARNING,
        subject=found.name,
        message=f"store {found.name} is not used for {key[:12]}: {why}{rest}",
        hint="the build goes on without it; correct that store, or leave it out (--store, SGLFORGE_STORES)",
    )
