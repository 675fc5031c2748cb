"""Find the files of a release on package indexes, in folders and on pages of links."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sglforge.base.download import Page, local_path, read_text, redact
from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.errors import FetchError
from sglforge.sources.model import IndexFile

if TYPE_CHECKING:
    from packaging.version import Version
    from pypi_simple import ProjectPage

Reader = Callable[[str], Page | None]
"""Reads a page, None when there is none."""


def find_files(locations: IndexLocations, project: str, version: str) -> list[IndexFile]:
    """Return every file of a release, those on this machine first.

    A location that cannot be asked is passed over as long as another one has the release.

    Raises FetchError ``not-on-index`` when no location has it, or the error of one that could not be asked.
    """
    files: list[IndexFile] = []
    try:
        for file in search(locations, project, version):
            files.append(file)  # noqa: PERF402 - what came before a failure is kept
    except FetchError:
        if not files:
            raise
    return files


def search(locations: IndexLocations, project: str, version: str, *, offline: bool = False) -> Iterator[IndexFile]:
    """Yield the files of a release location by location, so that a caller may stop before the slow ones.

    ``offline`` passes over what is not on this machine.

    Raises FetchError after the last file: that of the first location that could not be asked, else
    ``not-on-index`` or ``offline-missing`` when no location has the release.
    """
    from packaging.version import Version

    wanted = Version(version)
    outcomes: list[tuple[str, str]] = []
    failure: FetchError | None = None
    found = False
    for place in _places(locations, project):
        if offline and not place.local:
            continue
        try:
            matching = [file for file in place.read() if _is_release(file.name, project, wanted)]
        except FetchError as error:
            failure = failure or error
            outcomes.append((place.shown, error.message))
            continue
        outcomes.append((place.shown, f"{len(matching)} files"))
        found = found or bool(matching)
        yield from matching
    if failure:
        raise failure
    if not found:
        raise _not_found(project, version, outcomes, offline=offline)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One location: how it is shown, whether it is on this machine, how its files are listed."""

    shown: str
    local: bool
    read: Callable[[], Iterable[IndexFile]]


def _places(locations: IndexLocations, project: str) -> list[_Place]:
    """Return where to look, what is on this machine first; otherwise in pip's order."""
    from packaging.utils import canonicalize_name
    from pypi_simple import ACCEPT_ANY, PYPI_SIMPLE_ENDPOINT

    name = canonicalize_name(project)

    def reader(url: str) -> Page | None:
        return read_text(url, accept=ACCEPT_ANY, ca_bundle=locations.ca_bundle, trusted_hosts=locations.trusted_hosts)

    indexes = () if locations.no_index else (locations.index_url or PYPI_SIMPLE_ENDPOINT, *locations.extra_index_urls)
    urls = [_as_url(link) for link in locations.find_links]
    urls += [f"{_as_url(index).rstrip('/')}/{name}/" for index in indexes]
    places = [
        _Place(
            shown=redact(url),
            local=url.startswith("file:"),
            read=partial(_list, url, project, reader),
        )
        for url in dict.fromkeys(urls)
    ]
    return sorted(places, key=lambda place: not place.local)


def _as_url(location: str) -> str:
    """Return a location as a URL: pip accepts plain paths too, also for an index."""
    if "://" in location or location.startswith("file:"):
        return location
    return Path(os.path.expandvars(location)).expanduser().absolute().as_uri()


def _list(url: str, project: str, reader: Reader) -> list[IndexFile]:
    if url.startswith("file:"):
        path = local_path(url)
        if path.is_dir() and not (path / "index.html").is_file():
            return [
                IndexFile(name=entry.name, url=entry.as_uri(), sha256=None)
                for entry in sorted(path.iterdir())
                if entry.is_file()
            ]
        if path.is_dir():
            url = (path / "index.html").as_uri()
        elif path.suffix in {".whl", ".gz"}:
            return [IndexFile(name=path.name, url=url, sha256=None)] if path.is_file() else []
    page = reader(url)
    if page is None:
        return []
    files = []
    for package in _parse(page, project).packages:
        if package.url.startswith("file:") and not page.url.startswith("file:"):
            continue  # a page of somebody else does not name files of this machine
        name = unquote(urlsplit(package.url).path.rpartition("/")[2])
        sha256 = package.digests.get("sha256", "").lower()
        files.append(IndexFile(name=name, url=package.url, sha256=Sha256(sha256) if sha256 else None))
    return files


def _parse(page: Page, project: str) -> ProjectPage:
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError

    kind = page.content_type.partition(";")[0].strip().lower()
    try:
        if kind.endswith("json"):
            return ProjectPage.from_json_data(json.loads(page.text), page.url)
        return ProjectPage.from_html(project, page.text, page.url)
    except (ValueError, UnsupportedRepoVersionError) as error:
        raise FetchError(
            code="index-unreadable",
            message=f"{redact(page.url)} is no page of a package index: {str(error).splitlines()[0]}",
            hint="correct the index that `python -m pip config list` names; a login page may have answered",
        ) from error


def _is_release(file_name: str, project: str, version: Version) -> bool:
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        canonicalize_name,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    try:
        if file_name.endswith(".whl"):
            name, found, *_ = parse_wheel_filename(file_name)
        else:
            name, found = parse_sdist_filename(file_name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return False
    return name == canonicalize_name(project) and found == version


def _not_found(project: str, version: str, outcomes: Iterable[tuple[str, str]], *, offline: bool) -> FetchError:
    if offline:
        return FetchError(
            code="offline-missing",
            message=f"{project} {version} was never fetched, and no folder on this machine has it",
            hint="run `nox -s fetch` once with a network",
        )
    return FetchError(
        code="not-on-index",
        message=f"no location has {project} {version}",
        context=dict(outcomes),
        hint="name an index that has it: python -m pip config set global.index-url URL",
    )
