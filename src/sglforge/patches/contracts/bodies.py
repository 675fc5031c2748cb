"""What a class body gives: attributes of the class, methods, and the fields of a generated ``__init__``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglforge.patches.anchors import dotted
from sglforge.patches.contracts.classes import ClassGraph, Known, Outside, full_name
from sglforge.patches.contracts.scopes import Function, never, running

_GENERATED_BY_BASE = {"msgspec.Struct", "pydantic.BaseModel", "typing.NamedTuple"}
_GENERATED_BY_DECORATOR = {
    "dataclasses.dataclass",
    "pydantic.dataclasses.dataclass",
    "attr.s",
    "attr.define",
    "attr.frozen",
    "attr.mutable",
    "attrs.define",
    "attrs.frozen",
    "attrs.mutable",
}
_FIELD = {"field", "Field", "ib", "attrib"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An annotated name of a class body: ``default`` is what it is assigned, ``line`` where it stands."""

    name: str
    line: int
    annotation: str
    default: ast.expr | None

    @property
    def is_set_by_init(self) -> bool:
        """Tell whether a generated ``__init__`` sets it on the instance."""
        if self.annotation.rpartition(".")[2] in {"ClassVar", "InitVar", "KW_ONLY"}:
            return False
        options = _field_options(self.default)
        return options is None or options.get("init") is not False or "default_factory" in options

    @property
    def is_class_attribute(self) -> bool:
        """Tell whether the class itself has it, in a class whose ``__init__`` is generated."""
        options = _field_options(self.default)
        return self.default is not None and (options is None or "default" in options)


def class_attributes(graph: ClassGraph, cls: Known) -> dict[str, int]:
    """Return the names that the class itself has once its module was imported, each with its line.

    Counted are assignments, methods, properties and nested classes that every way through the body binds; a name that
    is only annotated is none, nor is a slot.
    """
    names = _definite(cls.node.body)
    if _is_struct(graph, cls):
        names = {name: line for name, line in names.items() if name not in {field.name for field in _slotted(cls)}}
    elif _decorator(cls):
        for field in fields(cls):
            if not field.is_class_attribute:
                names.pop(field.name, None)
    for name, line in _set_from_outside(graph, cls):
        names.setdefault(name, line)
    return names


def methods(cls: Known) -> dict[str, Function]:
    """Return the functions that a class body defines, by name; of several of one name the last one."""
    return {statement.name: statement for statement in running(cls.node.body) if isinstance(statement, Function)}


def fields(cls: Known) -> tuple[Field, ...]:
    """Return the annotated names of a class body."""
    return tuple(
        Field(
            name=statement.target.id,
            line=statement.lineno,
            annotation=_annotation(statement.annotation),
            default=statement.value,
        )
        for statement in running(cls.node.body)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )


def has_generated_init(graph: ClassGraph, cls: Known) -> bool:
    """Tell whether the ``__init__`` of a class is made of its fields; an undecorated subclass inherits one."""
    if "__init__" in methods(cls):
        return False
    decorator = _decorator(cls)
    if decorator is None:
        return _is_struct(graph, cls)
    return _keywords(decorator).get("init") is not False


def generated_fields(graph: ClassGraph, cls: Known) -> set[str]:
    """Return the names that the generated ``__init__`` of a class sets, those of its bases' fields included."""
    order = [base for base in graph.order(cls) if isinstance(base, Known)]
    own = [base for base in order if _decorator(base) or _is_struct(graph, base)]
    return {field.name for base in own for field in fields(base) if field.is_set_by_init}


def slots(graph: ClassGraph, cls: Known) -> set[str] | None:
    """Return the only names that instances can be given, or None where they take any."""
    names: set[str] = set()
    for base in graph.order(cls):
        if isinstance(base, Outside):
            if base.name != "msgspec.Struct":
                return None
            continue
        own = _own_slots(graph, base)
        if own is None or "__dict__" in own:
            return None
        names |= own
    return names


def _own_slots(graph: ClassGraph, cls: Known) -> set[str] | None:
    for statement in cls.node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                return _literal_names(value)
            case _:
                pass
    if _keywords(_decorator(cls)).get("slots") is True or _is_struct(graph, cls):
        return {field.name for field in _slotted(cls)}
    return None


def _slotted(cls: Known) -> list[Field]:
    return [field for field in fields(cls) if field.annotation.rpartition(".")[2] != "ClassVar"]


def _decorator(cls: Known) -> ast.expr | None:
    """Return the decorator that makes the ``__init__`` of a class."""
    for decorator in cls.node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if full_name(cls.scope, dotted(function)) in _GENERATED_BY_DECORATOR:
            return decorator
    return None


def _is_struct(graph: ClassGraph, cls: Known) -> bool:
    return any(isinstance(base, Outside) and base.name in _GENERATED_BY_BASE for base in graph.order(cls))


def _definite(statements: Sequence[ast.stmt]) -> dict[str, int]:
    """Return the names that a block binds whichever way it runs."""
    names: dict[str, int] = {}
    for statement in statements:
        names |= dict(_bound(statement))
        if isinstance(statement, ast.Delete):
            for target in statement.targets:
                names.pop(dotted(target), None)
    return names


def _bound(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    line = statement.lineno
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, line
        case ast.Assign(targets=targets):
            for target in targets:
                names = [node for node in ast.walk(target) if isinstance(node, ast.Name)]
                yield from ((node.id, line) for node in names if isinstance(node.ctx, ast.Store))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            yield name, line
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((alias.asname or alias.name.partition(".")[0], line) for alias in aliases)
        case ast.If() | ast.Try() | ast.With():
            every = [_definite(way) for way in _ways(statement)]
            common = set.intersection(*(set(way) for way in every))
            yield from ((name, at) for way in every for name, at in way.items() if name in common)
        case _:
            return


def _ways(statement: ast.If | ast.Try | ast.With) -> list[list[ast.stmt]]:
    """Return the ways through a statement, each as the statements that run on it."""
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            known = never(test)
            return [body, orelse] if known is None else [orelse if known else body]
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
            return [[*way, *finalbody] for way in ([*body, *orelse], *(handler.body for handler in handlers))]
        case ast.With(body=body):
            return [body]


def _set_from_outside(graph: ClassGraph, cls: Known) -> Iterator[tuple[str, int]]:
    """Yield the attributes that the module assigns to a class below it: `C.x = 0`."""
    module = graph.tree.module(cls.file)
    for statement in module.body if module else ():
        if isinstance(statement, ast.Assign) and statement.lineno > cls.line:
            for target in statement.targets:
                owner, _, name = dotted(target).rpartition(".")
                if owner == cls.name:
                    yield name, statement.lineno


def _field_options(default: ast.expr | None) -> dict[str, object] | None:
    """Return the keywords of `field(...)`, or None for any other default."""
    if isinstance(default, ast.Call) and dotted(default.func).rpartition(".")[2] in _FIELD:
        return _keywords(default)
    return None


def _keywords(call: ast.expr | None) -> dict[str, object]:
    """Return the keywords of a call with their values, where these are constants; of what is no call, none."""
    keywords = call.keywords if isinstance(call, ast.Call) else ()
    return {
        keyword.arg: keyword.value.value if isinstance(keyword.value, ast.Constant) else keyword.value
        for keyword in keywords
        if keyword.arg
    }


def _annotation(node: ast.expr) -> str:
    return dotted(node.value if isinstance(node, ast.Subscript) else node)


def _literal_names(node: ast.expr) -> set[str] | None:
    """Return the texts of a literal, or None when it is not one."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return {value} if isinstance(value, str) else set(value)
