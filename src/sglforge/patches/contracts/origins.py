"""Origins: which lines of the patched tree a topic brought, and where in its payloads they are written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Lines of a patched file that come from a payload or a diff: ``first`` is line ``line`` of that file."""

    topic: str
    file: str
    first: int
    last: int
    payload: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Everything that the topics of a series brought into a tree, by file."""

    brought: Mapping[str, Sequence[Brought]]

    def of(self, file: str, line: int) -> Brought | None:
        """Return what brought a line, or None for upstream's own."""
        for one in self.brought.get(file, ()):
            if one.first <= line <= one.last:
                return one
        return None

    def written(self, file: str, line: int) -> str | None:
        """Return ``payload:line`` of a line that was brought, or None."""
        one = self.of(file, line)
        return f"{one.payload}:{one.line + line - one.first}" if one else None

    def is_from(self, topic: str, file: str, line: int) -> bool:
        """Tell whether a topic brought a line."""
        one = self.of(file, line)
        return one is not None and one.topic == topic

    def touches(self, file: str, node: ast.AST) -> bool:
        """Tell whether anything was brought into a node; one without a position may hold something."""
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        lines = self.brought.get(file, ())
        return first is None or last is None or any(one.first <= last and first <= one.last for one in lines)

    def nodes(self, file: str, root: ast.AST) -> Iterator[ast.AST]:
        """Yield every node below another that anything was brought into."""
        for node in ast.iter_child_nodes(root):
            if self.touches(file, node):
                yield node
                yield from self.nodes(file, node)

    def files(self, topic: str) -> tuple[str, ...]:
        """Return the files that a topic brought lines into."""
        return tuple(file for file, lines in self.brought.items() if any(one.topic == topic for one in lines))


def origins_of(brought: Sequence[Brought]) -> Origins:
    """Return the origins of all that was brought."""
    by_file: dict[str, list[Brought]] = {}
    for one in brought:
        by_file.setdefault(one.file, []).append(one)
    return Origins(brought=by_file)
