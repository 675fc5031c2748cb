"""Anchors: functions and classes by qualified name, statements by kind and name."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglforge.errors import PatchError
from sglforge.patches.faults import drifted
from sglforge.patches.model import StatementQuery

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
Step = tuple[str, int]

_NEAREST = 5
_KINDS: dict[str, tuple[type[ast.stmt], ...]] = {
    "assign": (ast.Assign, ast.AnnAssign, ast.AugAssign),
    "call": (ast.Expr,),
    "for": (ast.For, ast.AsyncFor),
    "if": (ast.If,),
    "import": (ast.Import, ast.ImportFrom),
    "raise": (ast.Raise,),
    "return": (ast.Return,),
    "try": (ast.Try, ast.TryStar),
    "while": (ast.While,),
    "with": (ast.With, ast.AsyncWith),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A list of statements: the steps from the module to its owner, and the owner's field that holds it.

    The steps are field names with indexes, so that the same suite can be found in the edited file.
    """

    steps: tuple[Step, ...] = ()
    field: str = "body"

    def owner(self, module: ast.Module) -> ast.AST:
        """Return the node that owns the statements."""
        node: ast.AST = module
        for field, index in self.steps:
            node = getattr(node, field)[index]
        return node

    def statements(self, module: ast.Module) -> list[ast.stmt]:
        """Return the statements."""
        found: list[ast.stmt] = getattr(self.owner(module), self.field)
        return found

    def function(self, module: ast.Module) -> Function | None:
        """Return the function that the statements are part of; None in the body of a class or of the module."""
        node: ast.AST = module
        inner: Function | None = None
        for field, index in self.steps:
            node = getattr(node, field)[index]
            if isinstance(node, Definition):
                inner = node if isinstance(node, Function) else None
        return inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A statement: the suite that holds it, and its index there."""

    suite: Suite
    index: int

    def node(self, module: ast.Module) -> ast.stmt:
        """Return the statement."""
        return self.suite.statements(module)[self.index]

    def body(self) -> Suite:
        """Return the statement's own body."""
        return Suite(steps=(*self.suite.steps, (self.suite.field, self.index)))


def find(module: ast.Module, name: str, file: str) -> Spot:
    """Return the one function or class with a qualified name as Python spells it: `f.<locals>.g`, `A.B.m`.

    Raises PatchError ``patch-drifted`` with the nearest names, ``patch-anchor-ambiguous`` with every line.
    """
    spots = [spot for qualified, spot in _definitions(module, Suite(), "", within=name) if qualified == name]
    if len(spots) > 1:
        lines = [spot.node(module).lineno for spot in spots]
        raise _ambiguous(f"{file} has `{name}` {len(spots)} times, on lines {_listed(lines)}")
    if not spots:
        raise drifted(f"{file} has no `{name}`{_nearest(module, name, list(_definitions(module, Suite(), '')))}")
    return spots[0]


def find_function(module: ast.Module, name: str, file: str) -> Function:
    """Return the one function with a qualified name.

    Raises PatchError ``patch-drifted``, also when it is a class, and ``patch-anchor-ambiguous``.
    """
    node = find(module, name, file).node(module)
    if isinstance(node, Function):
        return node
    raise drifted(f"`{name}` in {file} (line {node.lineno}) is not a function")


def find_statement(module: ast.Module, suite: Suite, query: StatementQuery, scope: str) -> Spot:
    """Return the one statement of a suite that a query matches; ``scope`` names the suite in messages.

    Raises PatchError ``patch-drifted`` and ``patch-anchor-ambiguous``.
    """
    searched = [suite, *inner_suites(module, suite)] if query.nested else [suite]
    spots = [Spot(suite=own, index=index) for own in searched for index in range(len(own.statements(module)))]
    candidates = [spot for spot in spots if _is_kind(spot.node(module), query.type)]
    spots = [spot for spot in candidates if _matches(spot.node(module), query)]
    wanted = f"`{query.type}` statement" + "".join(f" with `{word}`" for word in (query.name, query.literal) if word)
    if len(spots) > 1:
        lines = [spot.node(module).lineno for spot in spots]
        raise _ambiguous(f"{scope} has {len(spots)} times a {wanted}, on lines {_listed(lines)}")
    if not spots:
        lines = [spot.node(module).lineno for spot in candidates]
        others = f"; there are others of that kind on lines {_listed(lines)}" if lines else ""
        raise drifted(f"{scope} has no {wanted}{others}")
    return spots[0]


def inner_suites(module: ast.Module, suite: Suite) -> Iterator[Suite]:
    """Yield the suites of the blocks inside a suite, at any depth, but not those of functions and classes."""
    for index, statement in enumerate(suite.statements(module)):
        if not isinstance(statement, Definition):
            for own in _own_suites(statement, Spot(suite=suite, index=index)):
                yield own
                yield from inner_suites(module, own)


def dotted(node: ast.AST | None) -> str:
    """Return the dotted name that an expression is, or an empty text."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            parent = dotted(value)
            return f"{parent}.{attribute}" if parent else ""
        case _:
            return ""


def _definitions(
    module: ast.Module, suite: Suite, prefix: str, *, within: str | None = None
) -> Iterator[tuple[str, Spot]]:
    """Yield every function and class below a suite; with ``within``, only those on the way to a qualified name."""
    for index, statement in enumerate(suite.statements(module)):
        spot = Spot(suite=suite, index=index)
        if isinstance(statement, Definition):
            name = prefix + statement.name
            yield name, spot
            inner = f"{name}." if isinstance(statement, ast.ClassDef) else f"{name}.<locals>."
            if within is None or within.startswith(inner):
                yield from _definitions(module, spot.body(), inner, within=within)
            continue
        for own in _own_suites(statement, spot):
            yield from _definitions(module, own, prefix, within=within)


def _own_suites(statement: ast.stmt, spot: Spot) -> Iterator[Suite]:
    steps = (*spot.suite.steps, (spot.suite.field, spot.index))
    for field in ("body", "orelse", "finalbody"):
        if getattr(statement, field, None):
            yield Suite(steps=steps, field=field)
    for field in ("handlers", "cases"):
        for index in range(len(getattr(statement, field, ()))):
            yield Suite(steps=(*steps, (field, index)))


def _is_kind(statement: ast.stmt, kind: str) -> bool:
    if kind == "call":
        return isinstance(statement, ast.Expr) and any(_calls(statement))
    return isinstance(statement, _KINDS[kind])


def _matches(statement: ast.stmt, query: StatementQuery) -> bool:
    if query.name is not None and not _names(statement, query.name):
        return False
    return query.literal is None or any(_first_literal(call) == query.literal for call in _calls(statement))


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls that a statement makes as a whole: what it runs, assigns, returns, raises or opens."""
    match statement:
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.Return(value=value):
            found = [value]
        case ast.Raise(exc=value):
            found = [value]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            found = [item.context_expr for item in items]
        case _:
            found = []
    for expression in found:
        call = expression.value if isinstance(expression, ast.Await) else expression
        if isinstance(call, ast.Call):
            yield call


def _first_literal(call: ast.Call) -> str | None:
    match call.args:
        case [ast.Constant(value=str(text)), *_]:
            return text
        case _:
            return None


def _names(statement: ast.stmt, name: str) -> bool:
    return any(found == name or found.endswith(f".{name}") for found in _named(statement))


def _named(statement: ast.stmt) -> Iterator[str]:
    """Yield the dotted names that a statement is known by."""
    match statement:
        case ast.Import(names=aliases):
            yield from (alias.name for alias in aliases)
        case ast.ImportFrom(module=module, names=aliases):
            yield from (f"{module}.{alias.name}" if module else alias.name for alias in aliases)
            yield module or ""
        case ast.Assign(targets=targets):
            yield from (dotted(target) for target in targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield dotted(target)
        case ast.Expr():
            yield from (dotted(call.func) for call in _calls(statement))
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head) | ast.AsyncFor(iter=head):
            yield from _mentioned(head)
        case ast.Return(value=head) | ast.Raise(exc=head):
            yield from _mentioned(head)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from _mentioned(*(item.context_expr for item in items))
        case _:
            return


def _mentioned(*expressions: ast.expr | None) -> Iterator[str]:
    for expression in expressions:
        for node in ast.walk(expression) if expression else ():
            if name := dotted(node):
                yield name


def _nearest(module: ast.Module, name: str, known: Sequence[tuple[str, Spot]]) -> str:
    lines = {qualified: spot.node(module).lineno for qualified, spot in known}
    last = name.rpartition(".")[2]
    same = [qualified for qualified in lines if qualified.rpartition(".")[2] == last]
    alike = difflib.get_close_matches(name, lines, n=_NEAREST, cutoff=0.5)
    names = list(dict.fromkeys([*same, *alike]))[:_NEAREST]
    return "; nearest: " + ", ".join(f"`{found}` (line {lines[found]})" for found in names) if names else ""


def _listed(lines: Sequence[int]) -> str:
    *first, last = (str(line) for line in lines)
    return f"{', '.join(first)} and {last}" if first else last


def _ambiguous(message: str) -> PatchError:
    return PatchError(
        code="patch-anchor-ambiguous",
        message=message,
        hint="an anchor must name one thing: take an enclosing object, or a statement in one",
    )
