"""Scopes of a module: its classes by qualified name, and what each scope binds names to when it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that an import binds: ``name`` of ``module``, or the module itself; ``level`` counts leading dots."""

    module: str
    level: int = 0
    name: str | None = None


Binding = ast.ClassDef | ast.expr | Imported | None
"""A class, the expression that is assigned, an import, or something that is no class."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """One scope: its statements and the scopes around it, from the inside to the outside."""

    statements: Sequence[ast.stmt]
    outer: tuple[Scope, ...] = ()

    @cached_property
    def bindings(self) -> Mapping[str, Sequence[Binding]]:
        """What each name is bound to; several where it is bound in several places; stars under `*`."""
        found: dict[str, list[Binding]] = {}
        for statement in running(self.statements):
            for name, binding in _bound(statement):
                found.setdefault(name, []).append(binding)
        return found

    def lookup(self, name: str) -> Sequence[Binding]:
        """Return what a name is bound to, from the inside to the outside."""
        for scope in (self, *self.outer):
            if found := scope.bindings.get(name):
                return found
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A class of a module with the scope that it is defined in."""

    name: str
    node: ast.ClassDef
    scope: Scope


def definitions(module: ast.Module) -> tuple[Definition, ...]:
    """Return every class of a module, nested ones included, with its qualified name as Python spells it."""
    scope = Scope(statements=module.body)
    return tuple(_definitions(module.body, scope, (scope,), ""))


def running(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a scope at any depth of blocks; those for type checkers only are left out."""
    for statement in statements:
        yield statement
        if isinstance(statement, Function | ast.ClassDef):
            continue
        for block in blocks(statement):
            yield from running(block)


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement that can run."""
    if isinstance(statement, ast.If) and (known := never(statement.test)) is not None:
        yield statement.orelse if known else statement.body
        return
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for field in ("handlers", "cases"):
        for inner in getattr(statement, field, ()):
            yield inner.body


def never(test: ast.expr) -> bool | None:
    """Tell whether a condition is never true when code runs; None: it depends."""
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Constant(value=value):
            return not value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            known = never(operand)
            return None if known is None else not known
        case _:
            return None


def _definitions(
    statements: Sequence[ast.stmt], scope: Scope, around: tuple[Scope, ...], prefix: str
) -> Iterator[Definition]:
    """Yield the classes of a block; ``around`` are the scopes that functions in it see (a class's own is not)."""
    for statement in running(statements):
        if isinstance(statement, Function):
            inner = Scope(statements=statement.body, outer=around)
            yield from _definitions(statement.body, inner, (inner, *around), f"{prefix}{statement.name}.<locals>.")
        elif isinstance(statement, ast.ClassDef):
            name = prefix + statement.name
            yield Definition(name=name, node=statement, scope=scope)
            yield from _definitions(statement.body, Scope(statements=statement.body, outer=around), around, f"{name}.")


def _bound(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    match statement:
        case ast.ClassDef(name=name):
            yield name, statement
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, None
        case ast.Import(names=aliases):
            for alias in aliases:
                head = alias.name.partition(".")[0]
                yield alias.asname or head, Imported(alias.name if alias.asname else head)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                yield (
                    alias.asname or alias.name,
                    Imported(module or "", level, None if alias.name == "*" else alias.name),
                )
        case ast.Assign(targets=targets, value=value):
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case _:
            return
