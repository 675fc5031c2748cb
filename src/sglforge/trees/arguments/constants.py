"""Values that a module states, read off its syntax: constants, lists of them, attributes of classes.

Nothing is run. What cannot be told is ``UNKNOWN``: a call, a name that is bound twice, a list that is changed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from sglforge.errors import RenderError


class Unknown:
    """The value that could not be told."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
Values: TypeAlias = Mapping[str, object]

_DEPTH: Final = 40
_LONGEST: Final = 100_000
"""Items or characters of the longest value; a file of a few lines can state one of any length."""
_CONTAINERS: Final[Mapping[str, Callable[[list[object]], object]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "sorted": partial(sorted, key=repr),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """The syntax of one module: what its top level binds, None where it binds a name twice or changes it."""

    name: str
    path: Path
    body: list[ast.stmt]
    bound: Mapping[str, ast.stmt | None]
    definitions: Mapping[str, ast.ClassDef | ast.FunctionDef]
    imported: Mapping[str, tuple[str, str | None]]

    def where(self, node: ast.AST) -> str:
        """Return ``file:line`` of a node."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an expression stands: its module and what is bound around it, nearest first."""

    module: Module
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A class or function with its module."""

    module: Module
    node: ast.ClassDef | ast.FunctionDef


class Sources:
    """The modules of a tree, parsed when they are asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._modules: dict[str, Module] = {}
        self._class_values: dict[ast.AST, Values] = {}
        self._named_values: dict[tuple[str, str], object] = {}

    def module(self, name: str) -> Module | None:
        """Return a module of the tree, None for one that is not among its files.

        Raises RenderError ``arguments-unreadable`` for one that is no Python.
        """
        if name not in self._files:
            return None
        if name not in self._modules:
            self._modules[name] = _parse(name, self._files[name])
        return self._modules[name]

    def definition(self, node: ast.expr, module: Module) -> Definition | None:
        """Return the class or function that a name stands for, through imports."""
        if not isinstance(node, ast.Name):
            return None
        return self._definition(node.id, module, _DEPTH)

    def class_values(self, definition: Definition) -> Values:
        """Return what a class body assigns, evaluated."""
        if definition.node in self._class_values:
            return self._class_values[definition.node]
        values: dict[str, object] = {}
        self._class_values[definition.node] = values
        for statement in definition.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = self.value(value, Place(module=definition.module, values=values))
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    values[name] = self.value(value, Place(module=definition.module, values=values))
                case _:
                    pass
        return values

    def value(self, node: ast.expr, place: Place) -> object:
        """Return the value of an expression, or UNKNOWN."""
        return self._value(node, place, _DEPTH)

    def _value(self, node: ast.expr, place: Place, depth: int) -> object:
        if not depth:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return place.values[name] if name in place.values else self._named(name, place.module, depth - 1)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._items(node, place, depth)
            case ast.Dict(keys=keys, values=values):
                pairs = [
                    (self._value(key, place, depth - 1) if key else UNKNOWN, self._value(value, place, depth - 1))
                    for key, value in zip(keys, values, strict=True)
                ]
                return dict(pairs) if all(is_scalar(key) for key, _ in pairs) else UNKNOWN
            case ast.BinOp() | ast.UnaryOp():
                return self._computed(node, place, depth)
            case ast.JoinedStr(values=parts):
                texts = [self._value(part, place, depth - 1) for part in parts]
                return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else UNKNOWN
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                found = self._value(inner, place, depth - 1)
                return UNKNOWN if found is UNKNOWN else str(found)
            case ast.Attribute(value=ast.Name() as owner, attr=name):
                return self._attribute(owner, name, place, depth)
            case ast.Subscript(value=container, slice=ast.Constant(value=int(index))):
                items = self._value(container, place, depth - 1)
                fits = isinstance(items, list | tuple) and -len(items) <= index < len(items)
                return items[index] if fits and isinstance(items, list | tuple) else UNKNOWN
            case ast.Call():
                return self._called(node, place, depth)
            case _:
                return UNKNOWN

    def _items(self, node: ast.List | ast.Tuple | ast.Set, place: Place, depth: int) -> object:
        items: list[object] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = self._value(element.value, place, depth - 1)
                if not isinstance(inner, list | tuple) or len(items) + len(inner) > _LONGEST:
                    return UNKNOWN
                items += inner
            else:
                items.append(self._value(element, place, depth - 1))
        if isinstance(node, ast.Tuple):
            return tuple(items)
        if isinstance(node, ast.List):
            return items
        return set(items) if all(is_scalar(item) for item in items) else UNKNOWN

    def _computed(self, node: ast.BinOp | ast.UnaryOp, place: Place, depth: int) -> object:
        if isinstance(node, ast.UnaryOp):
            operand = self._value(node.operand, place, depth - 1)
            return -operand if isinstance(node.op, ast.USub) and isinstance(operand, int | float) else UNKNOWN
        left, right = self._value(node.left, place, depth - 1), self._value(node.right, place, depth - 1)
        if any(isinstance(side, list | tuple | str) and len(side) > _LONGEST for side in (left, right)):
            return UNKNOWN
        match node.op, left, right:
            case ast.Add(), list(), list():
                return [*left, *right]
            case ast.Add(), tuple(), tuple():
                return (*left, *right)
            case ast.Add(), str(), str():
                return left + right
            case ast.Add(), int() | float(), int() | float():
                return left + right
            case ast.Sub(), int() | float(), int() | float():
                return left - right
            case ast.Mult(), int() | float(), int() | float():
                return left * right
            case _:
                return UNKNOWN

    def _called(self, node: ast.Call, place: Place, depth: int) -> object:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.expr() as inner], keywords=[]) if name in _CONTAINERS:
                items = self._value(inner, place, depth - 1)
                if isinstance(items, list | tuple | set | frozenset | dict):
                    return _CONTAINERS[name](list(items)) if all(map(is_scalar, items)) else UNKNOWN
            case ast.Call(func=ast.Attribute(value=inner, attr="keys"), args=[], keywords=[]):
                found = self._value(inner, place, depth - 1)
                return list(found) if isinstance(found, dict) else UNKNOWN
            case _:
                pass
        return UNKNOWN

    def _attribute(self, owner: ast.Name, name: str, place: Place, depth: int) -> object:
        if owner.id in place.values:
            return UNKNOWN
        if place.module.imported.get(owner.id) == ("argparse", None) and name == "SUPPRESS":
            return "==SUPPRESS=="
        definition = self._definition(owner.id, place.module, depth - 1)
        if definition is None or not isinstance(definition.node, ast.ClassDef):
            return UNKNOWN
        # An attribute of an enumeration is a member, not what stands behind it.
        return UNKNOWN if definition.node.bases else self.class_values(definition).get(name, UNKNOWN)

    def _named(self, name: str, module: Module, depth: int) -> object:
        """Return what a module binds to a name; found once, also where a name is asked for by many."""
        asked = (module.name, name)
        if asked not in self._named_values:
            self._named_values[asked] = UNKNOWN  # while it is looked for: a name that is made of itself
            self._named_values[asked] = self._looked_up(name, module, depth)
        return self._named_values[asked]

    def _looked_up(self, name: str, module: Module, depth: int) -> object:
        if not depth:
            return UNKNOWN
        if name in module.bound:
            match module.bound[name]:
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                    return self._value(value, Place(module=module), depth - 1)
                case _:
                    return UNKNOWN
        source, original = module.imported.get(name, ("", None))
        other = self.module(source) if original else None
        return self._named(original, other, depth - 1) if other and original else UNKNOWN

    def _definition(self, name: str, module: Module, depth: int) -> Definition | None:
        if node := module.definitions.get(name):
            return Definition(module=module, node=node)
        source, original = module.imported.get(name, ("", None))
        other = self.module(source) if original and depth else None
        return self._definition(original, other, depth - 1) if other and original else None


def is_scalar(value: object) -> bool:
    """Tell whether a value is a text, a number, a truth value or None."""
    return value is None or isinstance(value, str | int | float | bool)


def _parse(name: str, path: Path) -> Module:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise RenderError(
            code="arguments-unreadable",
            message=f"{path.name} is no Python: {getattr(error, 'msg', None) or error}",
            where=f"{path}:{line}",
            hint="restore the file; `nox -s patch` tells whether a topic broke it",
        ) from error
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    bound: dict[str, ast.stmt | None] = {}
    imported: dict[str, tuple[str, str | None]] = {}
    for statement in _flat(tree.body):
        _note(statement, bound, imported, package)
    return Module(
        name=name,
        path=path,
        body=tree.body,
        bound=bound,
        definitions={node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)},
        imported=imported,
    )


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module; those inside blocks of it bind names too, but nobody knows when."""
    return [inner for statement in body for inner in _unfolded(statement)]


def _unfolded(statement: ast.stmt) -> list[ast.stmt]:
    match statement:
        case ast.If(body=body, orelse=other) | ast.For(body=body, orelse=other):
            return _flat([*body, *other])
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            return _flat([*body, *(inner for handler in handlers for inner in handler.body), *other, *last])
        case ast.With(body=body):
            return _flat(body)
        case _:
            return [statement]


def _note(
    statement: ast.stmt,
    bound: dict[str, ast.stmt | None],
    imported: dict[str, tuple[str, str | None]],
    package: str,
) -> None:
    """Note what a statement binds; a second binding, or a call on the name, makes it untold."""

    def bind(name: str, node: ast.stmt | None) -> None:
        bound[name] = None if name in bound or name in imported else node

    match statement:
        case ast.Assign(targets=targets):
            for target in targets:
                for name in _names(target):
                    bind(name, statement if isinstance(target, ast.Name) else None)
        case (
            ast.AnnAssign(target=ast.Name(id=name))
            | ast.AugAssign(target=ast.Name(id=name))
            | ast.ClassDef(name=name)
            | ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
        ):
            bind(name, statement)
        case ast.Import() | ast.ImportFrom():
            imported.update(_imported(statement, package))
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            if name in bound:
                bound[name] = None  # `NAMES.append(...)`: what it holds is not what it was bound to
        case _:
            pass


def _imported(statement: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Yield each name that an import binds with the module and the name in it that it stands for."""
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            source = _absolute(statement.module, statement.level, package)
            yield alias.asname or alias.name, (source, alias.name)
        elif alias.asname or "." not in alias.name:
            yield alias.asname or alias.name, (alias.name, None)


def _absolute(source: str | None, level: int, package: str) -> str:
    if not level:
        return source or ""
    base = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*base, *([source] if source else [])])


def _names(target: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def unreadable(message: str, where: str) -> RenderError:
    """Return the error for a shape that is not known."""
    return RenderError(
        code="arguments-unreadable",
        message=f"the options of this SGLang cannot be read: {message}",
        where=where,
        hint="0.5.9 to 0.5.23 can be read; a newer SGLang may be written in a way that sglforge does not know yet",
    )
