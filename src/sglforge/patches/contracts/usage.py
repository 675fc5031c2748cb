"""Which attributes of `self` code reads and sets: a topic's, and upstream's own in each class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sglforge.patches.anchors import dotted
from sglforge.patches.contracts.bodies import fields
from sglforge.patches.contracts.classes import Known
from sglforge.patches.contracts.flow import Event, Run, State
from sglforge.patches.contracts.members import WITHOUT_SELF, Members, Method
from sglforge.patches.contracts.origins import Origins
from sglforge.patches.contracts.scopes import Function, running

_ON_CLASSES = {"__new__", "__init_subclass__", "__class_getitem__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What upstream's own code in a class body does with attributes of `self`.

    ``read`` are those that it reads without having set or looked for them just before. ``declared`` are set somewhere,
    or annotated.
    """

    read: frozenset[str]
    declared: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usages:
    """The use of attributes in the classes of a patched tree, found when it is asked for."""

    members: Members
    origins: Origins
    _of: dict[Known, Usage] = field(default_factory=dict)
    _brought: dict[str, tuple[Event, ...]] = field(default_factory=dict)

    def upstream(self, cls: Known) -> Usage:
        """Return what upstream's code in a class body does with attributes of `self`."""
        if cls not in self._of:
            self._of[cls] = self._upstream(cls)
        return self._of[cls]

    def brought(self, file: str) -> tuple[Event, ...]:
        """Return what the code that was brought into a file reads and sets on `self`, in the order of the file.

        Reads of what is surely set by then, or was looked for, are left out.
        """
        if file not in self._brought:
            self._brought[file] = tuple(sorted(self._events(file), key=lambda event: event.place.line))
        return self._brought[file]

    def _events(self, file: str) -> Iterator[Event]:
        for cls in self.members.graph.classes(file):
            for method in _methods(cls):
                if self.origins.touches(file, method.function):
                    run = Run(members=self.members, instance=cls, depth=4)
                    run.call(method, State())
                    for event in (*run.reads, *run.sets):
                        if event.depth == 0 and self.origins.of(file, event.place.line):
                            yield event

    def _upstream(self, cls: Known) -> Usage:
        read: set[str] = set()
        declared = {one.name for one in fields(cls) if self._is_upstream(cls, one.line)}
        for method in _methods(cls):
            run = Run(members=self.members, instance=cls, depth=1)
            run.call(method, State())
            read |= {event.attribute for event in run.reads if self._is_upstream(cls, event.place.line)}
            declared |= {event.attribute for event in run.sets if self._is_upstream(cls, event.place.line)}
        return Usage(read=frozenset(read), declared=frozenset(declared))

    def _is_upstream(self, cls: Known, line: int) -> bool:
        return self.origins.of(cls.file, line) is None


def _methods(cls: Known) -> Iterator[Method]:
    """Yield the functions of a class body that take an instance, those of one name all."""
    for statement in running(cls.node.body):
        if isinstance(statement, Function) and _takes_an_instance(statement):
            yield Method(owner=cls, function=statement)


def _takes_an_instance(function: Function) -> bool:
    static = any(dotted(decorator) in WITHOUT_SELF for decorator in function.decorator_list)
    return not static and function.name not in _ON_CLASSES
