"""What really runs when an instance is made, and what it has afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglforge.patches.contracts.bodies import slots
from sglforge.patches.contracts.classes import Known, Outside
from sglforge.patches.contracts.flow import Event, Run, State
from sglforge.patches.contracts.members import Initializer, Members, Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Construction:
    """How instances of a class are made.

    ``init`` is the first ``__init__`` in the order of lookup: a method, the class whose ``__init__`` is made of its
    fields, one outside of the tree, or None for that of `object`. ``end`` is what holds afterwards, None when it always
    raises, so that there are no instances. ``outside`` names the bases outside of the tree whose ``__init__`` ran.
    """

    cls: Known
    init: Initializer
    end: State | None
    sets: tuple[Event, ...]
    reads: tuple[Event, ...]
    ran: tuple[Method, ...]
    outside: tuple[str, ...]
    allowed: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constructions:
    """The constructions of the classes of a tree, made when they are asked for."""

    members: Members
    _made: dict[Known, Construction] = field(default_factory=dict)

    def of(self, cls: Known) -> Construction:
        """Return how instances of a class are made."""
        if cls not in self._made:
            self._made[cls] = self._construct(cls)
        return self._made[cls]

    def _construct(self, cls: Known) -> Construction:
        graph = self.members.graph
        names = slots(graph, cls)
        allowed = None if names is None else frozenset(names)
        init = self.members.find(graph.order(cls), "__init__")
        run = Run(members=self.members, instance=cls, allowed=allowed)
        end = run.initialize(init, State())
        if graph.is_rebound(cls):
            run.outside.append(f"what else is called {cls.name}")
        return Construction(
            cls=cls,
            init=init,
            end=end,
            sets=tuple(run.sets),
            reads=tuple(run.reads),
            ran=tuple(run.ran),
            outside=tuple(run.outside),
            allowed=allowed,
        )


def outside_of(construction: Construction, members: Members) -> tuple[str, ...]:
    """Return what lies outside of the tree and may give an instance attributes; builtins are known."""
    order = members.graph.order(construction.cls)
    names = [*(base.name for base in order if isinstance(base, Outside)), *construction.outside]
    return tuple(dict.fromkeys(name for name in names if not name.startswith("builtins.")))
