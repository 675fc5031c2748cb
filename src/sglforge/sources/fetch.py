"""Fetch the archive that a lock names: as a file, verified, without running anything of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sglforge.base.download import Progress, download
from sglforge.base.files import remove, sha256_file
from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedArchive, LockedFile
from sglforge.errors import FetchError
from sglforge.sources.choose import choose
from sglforge.sources.index import search
from sglforge.sources.model import IndexFile, SourceArchive


def fetch(
    locked: LockedArchive,
    *,
    package: str,
    python_minor: str,
    locations: IndexLocations,
    workspace: Workspace,
    offline: bool = False,
    progress: Progress | None = None,
    lock: Path | None = None,
    command: str = "nox -s fetch",
) -> SourceArchive:
    """Return the locked archive of a package for one Python; fetch it into ``sources/<sha256>/`` when absent.

    What is there is verified before it is used, what comes is verified before it is kept. Offline, indexes on
    the network are not asked; folders on this machine are.

    Args:
        locked: The source as the lock has it.
        package: Its name in the recipes.
        python_minor: The Python that it is for, ``3.11``.
        locations: Where files may come from.
        workspace: Where they are kept.
        offline: Whether the network may not be used.
        progress: Told the bytes of a download so far and in total.
        lock: The lock's path, for messages that say where an expectation is written.
        command: What brings the archive, for a hint where it may not be fetched.

    Raises LockError ``no-file-for-python``; FetchError ``offline-missing``, ``not-on-index``,
    ``hash-mismatch`` and those of :func:`sglforge.base.download.download`.
    """
    return fetch_file(
        choose(locked, python_minor),
        locked,
        package=package,
        locations=locations,
        workspace=workspace,
        offline=offline,
        progress=progress,
        lock=lock,
        command=command,
    )


def fetch_file(
    wanted: LockedFile,
    locked: LockedArchive,
    *,
    package: str,
    locations: IndexLocations,
    workspace: Workspace,
    offline: bool = False,
    progress: Progress | None = None,
    lock: Path | None = None,
    command: str = "nox -s fetch",
) -> SourceArchive:
    """Return one file of a locked source, whether or not it fits a Python of this machine.

    Arguments and errors are those of :func:`fetch`; ``wanted`` is the file.
    """
    sha256 = Sha256(wanted.sha256)
    path = workspace.sources / sha256 / wanted.name
    archive = SourceArchive(package=package, path=path, sha256=sha256)
    damaged = path.is_file()
    if damaged:
        if sha256_file(path) == sha256:
            return archive
        if not offline:
            remove(path)  # damaged on this disk: what cannot be used is fetched again
    failures: list[FetchError] = []
    offers = search(locations, locked.project, locked.version, offline=offline)
    while file := _next(offers, wanted, failures):
        if file.sha256 not in {None, sha256}:
            failures.append(_other_file(wanted, file))
            continue
        try:
            download(
                file.url,
                path,
                sha256=sha256,
                ca_bundle=locations.ca_bundle,
                trusted_hosts=locations.trusted_hosts,
                progress=progress,
            )
        except FetchError as error:
            if error.code in {"disk-full", "not-writable"}:
                raise
            failures.append(error)
        else:
            return archive
    fault = _summary(failures or [_not_offered(locked, wanted, offline=offline)], wanted, lock)
    if fault.code == "offline-missing":
        fault.hint = f"run it once with a network: {command}"
        if damaged:
            fault.message = f"{wanted.name} was fetched, and is damaged on this disk: its sha256 is not the locked one"
            fault.where = str(path)
    raise fault


def _next(offers: Iterator[IndexFile], wanted: LockedFile, failures: list[FetchError]) -> IndexFile | None:
    """Return the next offer of the wanted file; None at the end, with what the search could not do noted."""
    try:
        return next((file for file in offers if file.name == wanted.name), None)
    except FetchError as error:
        failures.append(error)
        return None


def _other_file(wanted: LockedFile, file: IndexFile) -> FetchError:
    return FetchError(
        code="hash-mismatch",
        message=f"an index offers another {wanted.name} than the lock accepts; it was not fetched",
        context={"expected sha256": wanted.sha256, "got sha256": file.sha256 or ""},
        hint="compare with another index; `nox -s lock` accepts the new file, if it is meant",
    )


def _not_offered(locked: LockedArchive, wanted: LockedFile, *, offline: bool) -> FetchError:
    if offline:
        return FetchError(
            code="offline-missing",
            message=f"{wanted.name} was never fetched",
            hint="run `nox -s fetch` once with a network",
        )
    return FetchError(
        code="not-on-index",
        message=f"{locked.project} {locked.version} is offered, but not the locked file {wanted.name}",
        hint="the index lacks it or it was withdrawn: name another index, or lock again (`nox -s lock`)",
    )


def _summary(failures: list[FetchError], wanted: LockedFile, lock: Path | None) -> FetchError:
    """Return the first failure, with the others beside it and the line of the lock that was not met."""
    error = failures[0]
    if others := [other.message for other in failures[1:]]:
        error.context = {**error.context, "also": "; ".join(others)}
    if error.code == "hash-mismatch" and lock and lock.is_file():
        lines = lock.read_text(encoding="utf-8").splitlines()
        number = next((n for n, line in enumerate(lines, start=1) if wanted.sha256 in line), 1)
        error.where = f"{lock}:{number}"
    return error
