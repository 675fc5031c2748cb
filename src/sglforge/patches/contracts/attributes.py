"""The contract `attribute-set`: what a topic reads on `self` is there on every instance that can come to the read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglforge.config.suggest import nearest
from sglforge.errors import Finding, Severity
from sglforge.patches.contracts.bodies import fields
from sglforge.patches.contracts.classes import Known, Outside
from sglforge.patches.contracts.construction import Construction, outside_of
from sglforge.patches.contracts.flow import Event
from sglforge.patches.contracts.members import Method
from sglforge.patches.contracts.scopes import Function
from sglforge.patches.contracts.subject import Patched


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """A class whose instances may lack an attribute, and why; ``told`` is False where the tree cannot tell."""

    cls: Known
    reason: str
    told: bool = True


def attribute_set(patched: Patched, topic: str) -> Iterator[Finding]:
    """Yield a finding for each attribute that a topic's code reads on `self` and that an instance may lack."""
    reads: dict[tuple[Known, str], list[Event]] = {}
    for file in patched.origins.files(topic):
        for event in patched.usages.brought(file):
            if not event.is_set and patched.origins.is_from(topic, file, event.place.line):
                reads.setdefault((event.method.owner, event.attribute), []).append(event)
    for (cls, attribute), events in reads.items():
        missing = [found for event in events for found in _missing(patched, cls, event)]
        each = {found.cls: found for found in reversed(missing)}
        if missing:
            yield _finding(patched, cls, attribute, events, list(reversed(each.values())))


def _missing(patched: Patched, cls: Known, event: Event) -> Iterator[_Missing]:
    for judged in _judged(patched, cls, event.method):
        if patched.members.provider(judged, event.attribute) is None and (found := _lacks(patched, judged, event)):
            yield found


def _judged(patched: Patched, cls: Known, method: Method) -> list[Known]:
    """Return the classes whose instances can come to a method of a class: itself, unless it is a mixin, and others.

    A mixin has no ``__init__`` in the tree, and subclasses: its instances are theirs.
    """
    reaching = [child for child in patched.graph.subclasses(cls) if _reaches(patched, child, method)]
    if reaching and patched.members.find(patched.graph.order(cls), "__init__") is None:
        return reaching
    return [cls, *reaching]


def _reaches(patched: Patched, cls: Known, method: Method) -> bool:
    """Tell whether a call on an instance comes to a base's method: nothing overrides it without calling it."""
    for base in patched.graph.order(cls):
        if base == method.owner:
            return True
        own = patched.members.methods(base).get(method.function.name) if isinstance(base, Known) else None
        if own and not any(_calls_base(node, own) for node in ast.walk(own)):
            return False
    return True


def _calls_base(node: ast.AST, method: Function) -> bool:
    """Tell whether a node of a method calls the method of that name of a base, on the same instance."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
            return name == method.name
        case ast.Call(func=ast.Attribute(attr=name), args=[ast.Name(id=first), *_]):
            parameters = [*method.args.posonlyargs, *method.args.args]
            return name == method.name and bool(parameters) and parameters[0].arg == first
        case _:
            return False


def _lacks(patched: Patched, cls: Known, event: Event) -> _Missing | None:
    made, attribute = patched.made(cls), event.attribute
    if made.end is None:  # always raises, so there are no instances
        return None
    outside = outside_of(made, patched.members)
    early = [read for read in made.reads if read.now and (read.attribute, read.place) == (attribute, event.place)]
    in_init = event.now and event.method.function.name == "__init__"
    if early and not outside and (in_init or _is_set_later(made, early[0])):
        return _Missing(cls=cls, reason=f"it is not set yet when {event.method} reads it")
    if in_init:
        return None
    if _is_upstreams(patched, cls, attribute):
        accepted = any(attribute in patched.usages.upstream(base).read for base in _own_order(patched, cls))
        if accepted or attribute in made.end.present:
            return None
    elif attribute in made.end.ready:
        return None
    elif outside and not _is_introduced(patched, attribute):
        return _Missing(cls=cls, reason=f"only {', '.join(outside)}, outside of the tree, may have it", told=False)
    return _Missing(cls=cls, reason=_reason(patched, made, event))


def _is_set_later(made: Construction, read: Event) -> bool:
    orders = [event.order for event in made.sets if event.attribute == read.attribute]
    return bool(orders) and min(orders) > read.order


def _is_upstreams(patched: Patched, cls: Known, attribute: str) -> bool:
    """Tell whether upstream's own code knows an attribute on instances of a class."""
    usages = [patched.usages.upstream(base) for base in _own_order(patched, cls)]
    return any(attribute in usage.read or attribute in usage.declared for usage in usages)


def _is_introduced(patched: Patched, attribute: str) -> bool:
    """Tell whether the series sets or declares an attribute anywhere, so that it is its own to provide."""
    for file in patched.origins.brought:
        if any(event.is_set and event.attribute == attribute for event in patched.usages.brought(file)):
            return True
        for cls in patched.graph.classes(file):
            lines = [field.line for field in fields(cls) if field.name == attribute]
            lines += [line for name, line in patched.members.attributes(cls).items() if name == attribute]
            if any(patched.origins.of(file, line) for line in lines):
                return True
    return False


def _own_order(patched: Patched, cls: Known) -> list[Known]:
    return [base for base in patched.graph.order(cls) if isinstance(base, Known)]


def _reason(patched: Patched, made: Construction, event: Event) -> str:
    attribute, end = event.attribute, made.end
    sets = [one for one in made.sets if one.attribute == attribute]
    if made.allowed is not None and attribute not in made.allowed:
        return "its `__slots__` or fields have no place for it"
    if sets and end and attribute in end.present and (risk := sets[0].after):
        return f"it is set at {sets[0].place}, after `{risk.text}(...)` on line {risk.line}, which can fail"
    if sets:
        return f"it is set at {sets[0].place}, but not on every way through `{sets[0].method.name}`"
    match made.init:
        case Method(owner=owner):
            whose = "its own" if owner == made.cls else "it runs"
            skipped = patched.members.methods(event.method.owner).get("__init__")
            base = Method(owner=event.method.owner, function=skipped) if skipped else None
            skips = f", nor runs {base}" if base and base not in made.ran else ""
            return f"{whose} {made.init} never sets it{skips}"
        case Known(name=name):
            return f"the `__init__` that is made of the fields of `{name}` has no such field"
        case Outside(name=name):
            return f"the `__init__` that it runs is outside of the tree: {name}"
        case None:
            return "it has no `__init__` that sets it"


def _finding(
    patched: Patched, cls: Known, attribute: str, events: Sequence[Event], missing: Sequence[_Missing]
) -> Finding:
    first, told = events[0], any(found.told for found in missing)
    elsewhere = list(_elsewhere(patched, cls, attribute))
    what = f"`self.{attribute}` is read in `{first.method.name}` ({first.place})"
    if elsewhere:
        what += f" and set in `{elsewhere[0].method.name}` ({elsewhere[0].place}), which is another class"
    names = " and ".join(f"`{found.cls.name}`" for found in missing)
    return Finding(
        code="patch-attribute-unset" if told else "patch-attribute-unknown",
        severity=Severity.ERROR if told else Severity.WARNING,
        message=f"{what}: {names} {'may lack it' if told else 'may have it or not'}",
        hint=_hint(patched, cls, attribute) if told else "give it a class attribute, or look it up with a default",
        where=patched.written(first),
        detail=(
            *(f"{found.cls}: {found.reason}" for found in missing),
            *(f"read at {event.place}, from {patched.written(event)}" for event in events),
            *(f"set at {event.place} in `{event.method.name}`, from {patched.written(event)}" for event in elsewhere),
        ),
    )


def _elsewhere(patched: Patched, cls: Known, attribute: str) -> Iterator[Event]:
    """Yield where the series sets an attribute of that name on instances of unrelated classes."""
    related = {cls, *patched.graph.order(cls), *patched.graph.subclasses(cls)}
    for file in patched.origins.brought:
        for event in patched.usages.brought(file):
            if event.is_set and event.attribute == attribute and event.method.owner not in related:
                yield event


def _hint(patched: Patched, cls: Known, attribute: str) -> str:
    if not _is_introduced(patched, attribute):
        own = _own_order(patched, cls)
        known = {name for base in own for name in patched.usages.upstream(base).declared}
        known |= {name for base in own for name in patched.members.attributes(base)}
        if name := nearest(attribute, known):
            return f"did you mean `self.{name}`?"
    init = patched.members.methods(cls).get("__init__")
    first = f", and set it in the first statement of `{cls.name}.__init__`" if init else ""
    return f"give `{cls.name}` a class attribute `{attribute}` with the value that means off{first}"
