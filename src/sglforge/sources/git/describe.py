"""What version a commit is: its nearest tag ``v<version>``, and how many commits lie between."""

from __future__ import annotations

import re

from packaging.version import Version

from sglforge.config.model import VERSION
from sglforge.sources.git.mirror import Mirror

_DESCRIBED = re.compile(r"v(?P<version>[^-]+)(?P<later>-(?:branch-)?[0-9]+-g[0-9a-f]+)?")
_TAG = re.compile(rf"v(?P<version>{VERSION.strip('^$')})")
_SHOWN = 12


def describe(mirror: Mirror, commit: str) -> str:
    """Return a commit by its nearest tag: ``v0.5.23``, ``v0.5.23-14-g0123456789ab``, or its id where there is none.

    Only tags that are ``v`` and a version count. Nearest is what ``git describe`` says, the fewest commits away; of
    several on one commit it is the highest version. SGLang tags its releases on branches of their own, which main never
    sees again: where such a branch began nearer, the commit is ``v0.5.23-branch-14-g0123456789ab``, 14 after that.
    """
    tags = _tags(mirror, f"--merged={commit}")
    if here := _highest(tags, commit):
        return here
    merged = _nearest_merged(mirror, commit, tags)
    branched = _nearest_branched(mirror, commit, above=merged[0] if merged else None)
    if branched and (merged is None or branched[1] < merged[1]):
        return f"{branched[0]}-branch-{branched[1]}-g{commit[:_SHOWN]}"
    return f"{merged[0]}-{merged[1]}-g{commit[:_SHOWN]}" if merged else commit[:_SHOWN]


def _nearest_merged(mirror: Mirror, commit: str, tags: dict[str, str]) -> tuple[str, int] | None:
    """Return the nearest of the tags that a commit descends from, and how many commits lie between."""
    if not tags:
        return None
    patterns = [word for name in tags for word in ("--match", name)]
    said = mirror.read("describe", "--tags", "--long", "--abbrev=40", f"--candidates={len(tags)}", *patterns, commit)
    name, distance, _ = said.strip().rsplit("-", 2)
    return _highest(tags, tags[name]) or name, int(distance)


def _nearest_branched(mirror: Mirror, commit: str, *, above: str | None) -> tuple[str, int] | None:
    """Return the tag beside a commit whose branch began nearest before it, and how many commits lie between.

    Tags that came after the commit do not count, nor versions that are not above one that it descends from.
    """
    found = []
    for name, tagged in _tags(mirror, f"--no-merged={commit}").items():
        version = Version(name[1:])
        if above and version <= Version(above[1:]):
            continue
        began = mirror.merge_base(commit, tagged)
        if began and began != commit:
            distance = int(mirror.read("rev-list", "--count", f"{began}..{commit}"))
            found.append((distance, version, name))
    if not found:
        return None
    nearest = min(distance for distance, _, _ in found)
    return max((version, name) for distance, version, name in found if distance == nearest)[1], nearest


def version_of(described: str) -> str | None:
    """Return the version that a described commit is built as: the same for all commits after a tag.

    On a tag it is the tag's version. After the tag of a release, or of a post-release, it is the next patch release,
    of a pre-release the next pre-release, both as ``.dev0``; after a development release it is the next of these.
    None for a commit without a tag.
    """
    match = _DESCRIBED.fullmatch(described)
    if match is None or not re.fullmatch(VERSION, match["version"]):
        return None
    version = Version(match["version"])
    return _next(version) if match["later"] else str(version)


def _next(version: Version) -> str:
    release = list(version.release) + [0] * (3 - len(version.release))
    if version.dev is not None:
        return str(version).rpartition(".dev")[0] + f".dev{version.dev + 1}"
    if version.pre:
        kind, number = version.pre
        return ".".join(map(str, version.release)) + f"{kind}{number + 1}.dev0"
    release[-1] += 1
    return ".".join(map(str, release)) + ".dev0"


def _tags(mirror: Mirror, which: str) -> dict[str, str]:
    """Return the tags of versions that an option of ``git for-each-ref`` picks, with their commits."""
    form = "%(refname:lstrip=2)%09%(objectname)%09%(*objectname)"
    said = mirror.read("for-each-ref", which, f"--format={form}", "refs/tags/v*")
    found = {}
    for line in said.splitlines():
        name, own, peeled = line.split("\t")
        if _TAG.fullmatch(name):
            found[name] = peeled or own
    return found


def _highest(tags: dict[str, str], commit: str) -> str | None:
    here = [name for name, its_commit in tags.items() if its_commit == commit]
    return max(here, key=lambda name: Version(name[1:]), default=None)
