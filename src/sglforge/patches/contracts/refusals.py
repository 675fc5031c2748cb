"""The contract `subclass-assigned`: a subclass that never runs a topic's assignment refuses the setting."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sglforge.config.suggest import nearest
from sglforge.errors import Finding, Severity
from sglforge.patches.contracts.bodies import generated_fields
from sglforge.patches.contracts.classes import Known
from sglforge.patches.contracts.flow import Event
from sglforge.patches.contracts.model import Default, Refusal
from sglforge.patches.contracts.scopes import blocks
from sglforge.patches.contracts.subject import Patched
from sglforge.patches.contracts.texts import literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a topic says about subclasses, with the ``file:line`` that it stands on."""

    entry: Refusal | Default
    where: str


def subclass_assigned(patched: Patched, topic: str, declared: Sequence[Declared]) -> Iterator[Finding]:
    """Yield a finding for each attribute that stays at its class default unseen, and each declaration that is not so.

    ``declared`` is what the topic says about subclasses.
    """
    raises = list(_raises(patched, topic))
    for said in declared:
        if isinstance(said.entry, Refusal) and not any(_refuses(found, said.entry) for found in raises):
            yield _no_refusal(said.entry, said.where)
    defaults: list[_ClassDefault] = []
    brought = [event for file in patched.origins.brought for event in patched.usages.brought(file)]
    for file in patched.origins.files(topic):
        for cls in patched.graph.classes(file):
            for attribute, line in patched.members.attributes(cls).items():
                if patched.origins.is_from(topic, file, line):
                    sets = [event for event in brought if event.is_set and event.attribute == attribute]
                    defaults.append(_ClassDefault(cls=cls, attribute=attribute, line=line))
                    yield from _unassigned(patched, defaults[-1], sets, declared)
    for said in declared:
        yield from _unknown(patched, said, defaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassDefault:
    """An attribute that a topic gives a class, and the line that it does so on."""

    cls: Known
    attribute: str
    line: int

    def __str__(self) -> str:
        return f"`{self.attribute}` of `{self.cls.name}` stays at its class default ({self.cls.file}:{self.line})"


def _unassigned(
    patched: Patched, default: _ClassDefault, sets: Sequence[Event], declared: Sequence[Declared]
) -> Iterator[Finding]:
    """Yield what is wrong with a class default of which ``sets`` are the assignments that the series brings."""
    if not sets:
        return
    cls, made = default.cls, patched.made(default.cls)
    if isinstance(made.init, Known) and default.attribute in generated_fields(patched.graph, made.init):
        return
    related = {cls, *patched.graph.order(cls), *patched.graph.subclasses(cls)}
    detail = tuple(f"set at {event.place} in `{event.method.name}`, from {patched.written(event)}" for event in sets)
    if not any(event.method.owner in related for event in sets):
        yield Finding(
            code="patch-attribute-stays-default",
            severity=Severity.WARNING,
            message=f"{default}: `{sets[0].method.name}` ({sets[0].place}), which sets it, is of another class",
            hint=f"set it in the first statement of `{cls.name}.__init__`",
            where=patched.origins.written(cls.file, default.line),
            detail=detail,
        )
        return
    if not any(event.attribute == default.attribute and patched.written(event) for event in made.sets):
        return
    entries = [said.entry for said in declared if said.entry.attribute == default.attribute]
    exempt = {name for entry in entries for name in entry.classes}
    left = [child for child in patched.graph.subclasses(cls) if _stays(patched, default, child)]
    silent = [child for child in left if child.name not in exempt]
    if silent:
        yield _silent(patched, default, silent, exempt - {child.name for child in left}, detail)


def _unknown(patched: Patched, said: Declared, defaults: Sequence[_ClassDefault]) -> Iterator[Finding]:
    """Yield what a declaration names that is not there: its attribute, or else each class."""
    attribute = said.entry.attribute
    own = [default for default in defaults if default.attribute == attribute]
    if not own:
        known = [default.attribute for default in defaults]
        yield _not_there(f"`{attribute}` is no class attribute that the topic brings", attribute, known, said.where)
        return
    children = {child.name for default in own for child in patched.graph.subclasses(default.cls)}
    bases = " or ".join(dict.fromkeys(f"`{default.cls.name}`" for default in own))
    for name in said.entry.classes:
        if name not in children:
            yield _not_there(f"`{name}` is no subclass of {bases} in this tree", name, children, said.where)


def _not_there(message: str, name: str, known: Iterable[str], where: str) -> Finding:
    near = nearest(name, known)
    return Finding(
        code="patch-declaration-unknown",
        severity=Severity.ERROR,
        message=message,
        hint=f"did you mean `{near}`?" if near else "correct it, give it its own `versions`, or take it out",
        where=where,
    )


def _silent(
    patched: Patched, default: _ClassDefault, silent: Sequence[Known], unused: set[str], detail: tuple[str, ...]
) -> Finding:
    near = next((word for child in silent if (word := nearest(child.name, unused))), None)
    return Finding(
        code="patch-attribute-unassigned-in-subclass",
        severity=Severity.ERROR,
        message=f"{default} in {' and '.join(f'`{child.name}`' for child in silent)}, where no assignment of it runs",
        hint=f"the topic declares `{near}`: correct the name"
        if near
        else "assign it in the first statement of the subclass's `__init__` too, or refuse the setting at start-up "
        "(`contracts.refused`)",
        where=patched.origins.written(default.cls.file, default.line),
        detail=(*(f"{child}: {patched.made(child).init or 'no `__init__`'} runs" for child in silent), *detail),
    )


def _stays(patched: Patched, default: _ClassDefault, child: Known) -> bool:
    """Tell whether instances of a subclass keep a class default."""
    made = patched.made(child)
    if made.end is None or any(event.attribute == default.attribute for event in made.sets):
        return False
    return patched.members.provider(child, default.attribute) == default.cls


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raise:
    """A `raise` that a topic brought: the texts in it, and the names that the conditions around it mention."""

    texts: tuple[str, ...]
    tested: frozenset[str]


def _refuses(found: _Raise, refusal: Refusal) -> bool:
    return refusal.setting in found.tested and any(refusal.message in text for text in found.texts)


def _raises(patched: Patched, topic: str) -> Iterator[_Raise]:
    for file in patched.origins.files(topic):
        module = patched.tree.module(file)
        touched = partial(patched.origins.touches, file)
        for node, tested in _with_conditions(module.body if module else [], frozenset(), touched):
            if patched.origins.is_from(topic, file, node.lineno):
                texts = [literal(inner) for inner in ast.walk(node) if isinstance(inner, ast.expr)]
                yield _Raise(texts=tuple(text for text in texts if text), tested=tested)


def _with_conditions(
    statements: Sequence[ast.stmt], tested: frozenset[str], touched: Callable[[ast.stmt], bool]
) -> Iterator[tuple[ast.Raise, frozenset[str]]]:
    """Yield each `raise` that is not caught where it stands, with the names that the conditions around it mention.

    Statements that are not touched are passed over, with all that is in them.
    """
    for statement in filter(touched, statements):
        match statement:
            case ast.Raise():
                yield statement, tested
            case ast.If(test=test, body=body, orelse=orelse):
                names = tested | _mentioned(test)
                yield from _with_conditions([*body, *orelse], names, touched)
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                yield from _with_conditions(body, frozenset(), touched)
            case _:
                caught = statement.body if isinstance(statement, ast.Try | ast.TryStar) and statement.handlers else None
                for block in blocks(statement):
                    yield from _with_conditions(block if block is not caught else [], tested, touched)


def _mentioned(test: ast.expr) -> frozenset[str]:
    names = set[str]()
    for node in ast.walk(test):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                names.add(name)
            case _:
                pass
    return frozenset(names)


def _no_refusal(refusal: Refusal, where: str) -> Finding:
    return Finding(
        code="patch-refusal-missing",
        severity=Severity.ERROR,
        message=f"nothing that the topic brings refuses `{refusal.setting}` with {refusal.message!r}",
        hint="a payload must hold a `raise` with that text, below an `if` that reads the setting, and outside of a "
        "`try` that catches it",
        where=where,
    )
