"""What a recipe asks for, held against what the lock pins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sglforge.config.lockfile import LockedRequirement

_BARE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SEPARATORS = re.compile(r"[-_.]+")


def unpinned(wanted: Iterable[str], pinned: Sequence[LockedRequirement]) -> tuple[str, ...]:
    """Return the PEP 508 requirements that no pin fulfils; one with a marker needs no pin."""
    versions = {_normal(pin.name): pin.version for pin in pinned}
    return tuple(text for text in wanted if not _fulfilled(text, versions))


def _fulfilled(text: str, versions: dict[str, str]) -> bool:
    if _BARE_NAME.fullmatch(text):  # the common form: packaging is not imported for it
        return _normal(text) in versions
    from packaging.requirements import Requirement

    requirement = Requirement(text)
    version = versions.get(_normal(requirement.name))
    if version is None:
        return requirement.marker is not None
    return requirement.specifier.contains(version, prereleases=True)


def _normal(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()
