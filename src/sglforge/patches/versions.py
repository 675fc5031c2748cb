"""Sets of upstream versions, as PEP 440 specifiers name them."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from sglforge.errors import PatchError


def parse_specifier(text: str) -> SpecifierSet:
    """Return a specifier set.

    Raises ValueError.
    """
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("not a version specifier such as `>=0.5.9,<0.5.13`") from None


def parse_version(text: str) -> Version:
    """Return the version of an upstream tree.

    Raises PatchError ``tree-version-unknown``.
    """
    try:
        return Version(text)
    except InvalidVersion as error:
        raise PatchError(
            code="tree-version-unknown",
            message=f"{text!r} is not a version, so that no topic can be chosen for it",
            hint="correct the version that the stack or the tree names",
        ) from error


def holds(versions: str, version: str | Version) -> bool:
    """Tell whether a specifier holds a version; a pre-release counts as itself."""
    return parse_specifier(versions).contains(version, prereleases=True)


def common(first: str, second: str) -> Version | None:
    """Return a version that two specifiers hold, or None.

    Tried are the versions that the specifiers name and the ones just below and above them. That is enough: what
    a specifier holds begins and ends at versions that it names.
    """
    for version in sorted(set(_tried(first, second))):
        if holds(first, version) and holds(second, version):
            return version
    return None


def _tried(*specifiers: str) -> Iterator[Version]:
    yield Version("0.dev0")
    for text in specifiers:
        for specifier in parse_specifier(text):
            plain = Version(specifier.version.removesuffix(".*"))
            yield plain
            yield from (Version(f"{plain.base_version}{end}") for end in (".dev0", "", ".post999", ".1", ".0.1"))
            if plain.is_prerelease and not plain.is_devrelease:
                yield Version(f"{plain}.dev0")
            yield Version(".".join(str(part) for part in (*plain.release[:-1], plain.release[-1] + 1)))
            if plain.release[-1]:
                yield Version(".".join(str(part) for part in (*plain.release[:-1], plain.release[-1] - 1)))
    yield Version("99999")
