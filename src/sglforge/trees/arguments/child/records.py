"""A stand-in for msgspec, as far as records of options need it: fields with their defaults."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, dataclass_transform

from sglforge.trees.arguments.child.ghosts import GhostModule


class _Nothing:
    """A default that is not there."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "NODEFAULT"


NODEFAULT: Any = _Nothing()


class Field:
    """One field of a record, with the attributes that msgspec gives it."""

    def __init__(self, name: str, annotation: object, default: object, default_factory: object) -> None:
        self.name = self.encode_name = name
        self.type = annotation
        self.default = default
        self.default_factory = default_factory
        self.required = default is NODEFAULT and default_factory is NODEFAULT


class _Given:
    """What ``field(...)`` returns, until the class is made."""

    def __init__(self, default: object, default_factory: object) -> None:
        self.default = default
        self.default_factory = default_factory


def field(*, default: Any = NODEFAULT, default_factory: Any = NODEFAULT, **_: object) -> Any:
    """Return the default of a field."""
    return _Given(default, default_factory)


class _Meta(type):
    """Collect annotated names as fields; the options of a struct (frozen, kw_only ...) mean nothing here."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object) -> _Meta:
        made = super().__new__(mcs, name, bases, namespace)
        fields = {entry.name: entry for base in reversed(made.__mro__[1:]) for entry in base.__dict__.get("_own", ())}
        own = [_field(key, hint, namespace) for key, hint in _annotations(made, namespace).items()]
        own = [entry for entry in own if not str(entry.type).startswith(("ClassVar", "typing.ClassVar"))]
        type.__setattr__(made, "_own", tuple(own))
        type.__setattr__(made, "_all", tuple({**fields, **{entry.name: entry for entry in own}}.values()))
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object) -> None:
        super().__init__(name, bases, namespace)


def _annotations(made: type, namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotations of a class's own body; from Python 3.14 on they are made when they are asked for."""
    found = namespace.get("__annotations__")
    return found if isinstance(found, dict) else getattr(made, "__annotations__", {})


def _field(name: str, annotation: object, namespace: Mapping[str, Any]) -> Field:
    value = namespace.get(name, NODEFAULT)
    if isinstance(value, _Given):
        return Field(name, annotation, value.default, value.default_factory)
    if isinstance(value, (list, dict, set)):  # msgspec copies an empty one for each record
        return Field(name, annotation, NODEFAULT, lambda: copy.copy(value))
    return Field(name, annotation, value, NODEFAULT)


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=_Meta):
    """A record: its fields can be given by position or by name."""

    def __init__(self, *arguments: object, **keywords: object) -> None:
        known = fields(type(self))
        values = {**dict(zip((entry.name for entry in known), arguments, strict=False)), **keywords}
        if unknown := values.keys() - {entry.name for entry in known}:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        for entry in known:
            if entry.name in values:
                value = values[entry.name]
            elif entry.default is not NODEFAULT:
                value = entry.default
            elif callable(entry.default_factory):
                value = entry.default_factory()
            else:
                raise TypeError(f"{type(self).__name__} needs {entry.name}")
            object.__setattr__(self, entry.name, value)


def fields(record: object) -> tuple[Field, ...]:
    """Return the fields of a record or of its class."""
    found: tuple[Field, ...] = getattr(record, "_all", ())
    return found


def defstruct(
    name: str,
    given: Iterable[Any],
    *,
    bases: tuple[type, ...] | None = None,
    namespace: Mapping[str, Any] | None = None,
    **_: object,
) -> type:
    """Return a record class of field names, annotations and defaults."""
    body: dict[str, Any] = dict(namespace or {})
    body["__annotations__"] = {}
    for entry in given:
        words = (entry,) if isinstance(entry, str) else tuple(entry)
        body["__annotations__"][words[0]] = words[1] if len(words) > 1 else Any
        if len(words) > 2:
            body[words[0]] = words[2]
    return _Meta(name, bases or (Struct,), body)


def modules() -> dict[str, ModuleType]:
    """Return the modules that take msgspec's place."""
    main, structs = GhostModule("msgspec"), GhostModule("msgspec.structs")
    names: dict[str, object] = {"Struct": Struct, "NODEFAULT": NODEFAULT, "field": field, "defstruct": defstruct}
    inner: dict[str, Callable[..., object] | type] = {"fields": fields, "FieldInfo": Field}
    vars(main).update(names, structs=structs, UNSET=NODEFAULT)
    vars(structs).update(inner)
    return {"msgspec": main, "msgspec.structs": structs}
