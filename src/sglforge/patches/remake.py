"""A carried diff made again from an edited tree; its header, the order and what is right of it stay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sglforge.errors import PatchError
from sglforge.patches import gitapply
from sglforge.patches.diff import unified_bytes
from sglforge.patches.diffs import Diff, FileDiff, parse_diff
from sglforge.patches.draft import Draft


def remade(kept: Diff, base: Draft, applied: Draft, goal: Draft) -> bytes:
    """Return the file of a diff as it has to be for a tree to become an edited one.

    ``kept`` is the diff without the files that its edit excludes, ``applied`` the tree with as much of it as applies.

    Raises PatchError ``patch-not-expressible``.
    """
    whole = parse_diff(Path(kept.where).read_bytes(), kept.where, strip=kept.strip)
    names = {base.place(name): name for file in kept.files for name in (file.old, file.new) if name}
    left = set(goal.since(base))
    sections: list[bytes] = []
    for file in whole.files:
        if file not in kept.files:
            sections.append(file.text)
            continue
        places = [base.place(name) for name in dict.fromkeys((file.old, file.new)) if name]
        if all(place in left and applied.read(place) == goal.read(place) for place in places):
            sections.append(_as_it_is(file))
        else:
            sections += [_section(place, names, kept.strip, base, goal) for place in places if place in left]
        left -= set(places)
    sections += [_section(place, names, kept.strip, base, goal) for place in sorted(left)]
    raw = whole.header + b"".join(sections)
    if not goal.since(base):
        raise _impossible(
            "nothing is left of the diff: the edited tree is the one before the topic", "remove the topic instead"
        )
    again = parse_diff(raw, kept.where, strip=kept.strip)
    excluded = frozenset(file.name for file in whole.files if file not in kept.files)
    after = gitapply.apply_diff(base, again.without(excluded))
    if after.since(goal) or goal.since(after):
        raise _impossible("the diff of the edited tree does not give that tree again", "use plain names, and no links")
    return raw


def as_diff(base: Draft, goal: Draft) -> bytes:
    """Return what an edited tree has different, as a diff of its own."""
    return b"".join(_section(place, {}, 1, base, goal) for place in goal.since(base))


def _as_it_is(file: FileDiff) -> bytes:
    return file.text if file.text.endswith(b"\n") else file.text + b"\n"


def _section(place: str, names: Mapping[str, str], strip: int, base: Draft, goal: Draft) -> bytes:
    name = names.get(place) or _guessed(place, names)
    old, new = ("/".join([*([first] * strip), name]) for first in ("a", "b"))
    return unified_bytes(old, new, base.read(place), goal.read(place))


def _guessed(place: str, names: Mapping[str, str]) -> str:
    """Return what the diff would call another file of the tree: it may be made for the other layout."""
    for known, name in names.items():
        if name.endswith(f"/{known}"):
            return name.removesuffix(known) + place
        if known.endswith(f"/{name}") and place.startswith(known.removesuffix(name)):
            return place.removeprefix(known.removesuffix(name))
    return place


def _impossible(message: str, hint: str) -> PatchError:
    return PatchError(code="patch-not-expressible", message=message, hint=hint)
