"""Pin a released source: from project and version to file names and hashes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from sglforge.base.download import download, redact
from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.config.lockfile import LockedArchive, LockedFile
from sglforge.config.model import SdistSource, WheelSource
from sglforge.errors import LockError
from sglforge.sources.index import find_files
from sglforge.sources.model import IndexFile
from sglforge.sources.tags import rank, supported_tags

_STANDS_FOR_ALL = "cp311"


def pin(source: WheelSource | SdistSource, pythons: Sequence[str], locations: IndexLocations) -> LockedArchive:
    """Return the files of a release that this machine's Pythons need, with their hashes.

    Hashes are those that the locations state; a file without one is fetched once and hashed.

    Args:
        source: What the stack asks for.
        pythons: The Python minors of the lock, ``3.11``.
        locations: Where to look.

    Raises LockError ``no-wheel-for-python``, ``no-sdist`` and ``ambiguous-file``; FetchError where nothing
    can be found or read.
    """
    offered = find_files(locations, source.project, source.version)
    if isinstance(source, WheelSource):
        names = sorted({_best_wheel(source, offered, minor) for minor in pythons})
    else:
        names = [_sdist(source, offered)]
    return LockedArchive(
        kind=source.kind,
        project=source.project,
        version=source.version,
        files=[LockedFile(name=name, sha256=_hash(name, offered, locations)) for name in names],
    )


def pin_release(project: str, version: str, locations: IndexLocations) -> LockedFile:
    """Return the wheel of a release that stands for it on every machine: the pure one, else one for cp311.

    The sources of a release are the same in all its wheels; so that everybody looks at the same file, it is the
    one for the oldest Python that sglforge runs on, on x86-64 Linux.

    Raises LockError ``no-wheel-for-python`` and ``ambiguous-file``; FetchError where nothing can be found or read.
    """
    offered = find_files(locations, project, version)
    wheels = sorted({file.name for file in offered if file.name.endswith(".whl")})
    pure = [name for name in wheels if name.endswith("-none-any.whl")]
    fitting = [name for name in wheels if f"-{_STANDS_FOR_ALL}-" in name and name.endswith("x86_64.whl")]
    if not pure + fitting:
        raise LockError(
            code="no-wheel-for-python",
            message=f"{project} {version} has neither a pure wheel nor one for {_STANDS_FOR_ALL} on x86-64",
            context={"offered": ", ".join(wheels) or "no wheel"},
            hint="lock the releases that have one",
        )
    name = (pure + fitting)[0]
    return LockedFile(name=name, sha256=_hash(name, offered, locations))


def _best_wheel(source: WheelSource, offered: Sequence[IndexFile], minor: str) -> str:
    supported = supported_tags(minor)
    ranked = [(place, file.name) for file in offered if (place := rank(file.name, supported)) is not None]
    if not ranked:
        raise LockError(
            code="no-wheel-for-python",
            message=f"{source.project} {source.version} has no wheel for Python {minor} on this machine",
            context={"offered": ", ".join(sorted({file.name for file in offered}))},
            hint=f"take {minor} out of `pythons` in the stack's environment, or choose another version",
        )
    return min(ranked)[1]


def _sdist(source: SdistSource, offered: Sequence[IndexFile]) -> str:
    names = sorted({file.name for file in offered if file.name.endswith(".tar.gz")})
    if not names:
        raise LockError(
            code="no-sdist",
            message=f"{source.project} {source.version} has no source archive (tar.gz)",
            context={"offered": ", ".join(sorted({file.name for file in offered}))},
            hint='use `kind = "wheel"` or `kind = "git"` for this package in the stack',
        )
    return names[0]


def _hash(name: str, offered: Sequence[IndexFile], locations: IndexLocations) -> Sha256:
    """Return the one hash that every location has for a file name."""
    found = {_stated(file, locations): redact(file.url) for file in offered if file.name == name}
    if len(found) > 1:
        raise LockError(
            code="ambiguous-file",
            message=f"{name} is offered with different contents",
            context={f"sha256 {sha256}": url for sha256, url in found.items()},
            hint="find out which one is meant and take the other location out of pip's configuration",
        )
    return next(iter(found))


def _stated(file: IndexFile, locations: IndexLocations) -> Sha256:
    if file.sha256:
        return file.sha256
    with tempfile.TemporaryDirectory(prefix="sglforge-pin-") as folder:
        return download(
            file.url,
            Path(folder, file.name),
            sha256=None,
            ca_bundle=locations.ca_bundle,
            trusted_hosts=locations.trusted_hosts,
        )
