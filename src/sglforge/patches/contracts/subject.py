"""What contracts are judged on: one topic on the patched tree."""

from __future__ import annotations

from dataclasses import dataclass

from sglforge.patches.contracts.classes import ClassGraph, Known
from sglforge.patches.contracts.construction import Construction, Constructions
from sglforge.patches.contracts.flow import Event
from sglforge.patches.contracts.members import Members
from sglforge.patches.contracts.origins import Origins
from sglforge.patches.contracts.tree import PatchedTree
from sglforge.patches.contracts.usage import Usages


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """A patched tree with all that was found out about it so far."""

    tree: PatchedTree
    origins: Origins
    members: Members
    constructions: Constructions
    usages: Usages

    @property
    def graph(self) -> ClassGraph:
        """The classes of the tree."""
        return self.members.graph

    def made(self, cls: Known) -> Construction:
        """Return how instances of a class are made."""
        return self.constructions.of(cls)

    def written(self, event: Event) -> str | None:
        """Return ``payload:line`` of an event in code that was brought."""
        return self.origins.written(event.place.file, event.place.line)


def patched(tree: PatchedTree, origins: Origins) -> Patched:
    """Return a patched tree of which nothing is found out yet."""
    members = Members(graph=ClassGraph(tree=tree))
    return Patched(
        tree=tree,
        origins=origins,
        members=members,
        constructions=Constructions(members=members),
        usages=Usages(members=members, origins=origins),
    )
