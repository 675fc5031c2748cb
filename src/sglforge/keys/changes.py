"""What differs between the parts of two builds, leaf by leaf, and in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sglforge.keys.parts import SHORT, Parts

MISSING = None
"""Stands for what one side does not have."""
_ID_LENGTHS = frozenset({40, 64})

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One leaf that differs: its place, and what was and is there; None: nothing."""

    place: Path
    before: object
    after: object

    @property
    def part(self) -> str:
        """The place in one word: ``build-requires.cmake.version``."""
        return ".".join(self.place)

    def to_json(self) -> dict[str, object]:
        """Return the change as a document."""
        return {"part": self.part, "before": self.before, "after": self.after, "text": self.text}

    @property
    def text(self) -> str:
        """The change in a person's words: ``build-requires: cmake 3.31.9 -> 3.31.10``."""
        match self.place:
            case "build-requires", name, _:
                return f"build-requires: {self._entry(name)}"
            case "patches", "topics", name:
                return f"patches: topic {name} {self._verb()}"
            case "patches", "order":
                return f"patches: order {_shown(self.before)} -> {_shown(self.after)}"
            case "source", "paths", path:
                return f"source: {path}: tree {self._both()}"
            case "source", "submodules", path:
                return f"source: submodule {path}: {self._both()}"
            case "depends", name:
                return f"depends: {name} {self._verb()} ({self._both()})"
            case (part,):
                return f"{part}: {self._both()}"
            case _:
                part, *rest = self.place
                return f"{part}: {'.'.join(rest)} {self._both()}"

    def _entry(self, name: str) -> str:
        """Return what happened to one build requirement."""
        if self.place[-1] == "files":
            return f"{name}: other files of the same version"
        if self.before is MISSING:
            return f"{name} {_shown(self.after)} added"
        if self.after is MISSING:
            return f"{name} {_shown(self.before)} removed"
        return f"{name} {self._both()}"

    def _verb(self) -> str:
        if self.before is MISSING:
            return "added"
        return "removed" if self.after is MISSING else "changed"

    def _both(self) -> str:
        return f"{_shown(self.before)} -> {_shown(self.after)}"


def changes(before: Parts, after: Parts) -> tuple[Change, ...]:
    """Return what differs, in the order of the parts of ``after``; what follows from another change is left out.

    That is the files of a requirement whose version differs too, and the order of topics that came or went.
    """
    old, new = dict(leaves(before)), dict(leaves(after))
    places = [*new, *(place for place in old if place not in new)]
    found = [
        Change(place=place, before=old.get(place, MISSING), after=new.get(place, MISSING))
        for place in places
        if old.get(place, MISSING) != new.get(place, MISSING)
    ]
    differing = {change.place for change in found}
    return tuple(change for change in found if not _follows(change, differing))


def leaves(value: object, place: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield every leaf of parts with its place; a list is one leaf, an empty table none."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from leaves(entry, (*place, str(name)))
    else:
        yield place, value


def described(parts: Parts) -> Iterator[str]:
    """Yield every leaf in words, for people who want to see what a key was made from."""
    for place, value in leaves(parts):
        if value not in (None, []):
            yield f"{'.'.join(place)} {_shown(value)}"


def _follows(change: Change, differing: set[Path]) -> bool:
    match change.place:
        case "build-requires", name, "files":
            return ("build-requires", name, "version") in differing
        case "patches", "order":
            old, new = _words(change.before), _words(change.after)
            return [name for name in old if name in new] == [name for name in new if name in old]
        case _:
            return False


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def _shown(value: object) -> str:
    """Return a leaf for people: ids are cut, lists are listed, what a terminal would obey is quoted."""
    if value is MISSING:
        return "none"
    if isinstance(value, str):
        return value[:SHORT] if _is_id(value) else value if value and value.isprintable() else json.dumps(value)
    return ", ".join(map(_shown, value)) or "none" if isinstance(value, Sequence) else str(value)


def _is_id(text: str) -> bool:
    return len(text) in _ID_LENGTHS and not text.strip("0123456789abcdef")
