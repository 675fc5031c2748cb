"""How statements end: whether they ever go on to the next one, and whether they make their function a generator."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def leaves(statements: Sequence[ast.stmt]) -> ast.stmt | None:
    """Return the statement that none of the ones below it is ever reached from; None where they can be.

    A call that never comes back is not seen, and a condition is taken for open, but for `while True`.
    """
    return next((statement for statement in statements if _leaves(statement)), None)


def yields(statements: Sequence[ast.stmt]) -> ast.expr | None:
    """Return what makes the function that the statements stand in a generator, None where nothing does."""
    pending: list[ast.AST] = [*reversed(statements)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return node
        pending += reversed([*_own(node)])
    return None


def _leaves(statement: ast.stmt) -> bool:
    match statement:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.If(body=body, orelse=orelse):
            return bool(leaves(body) and leaves(orelse))
        case ast.With(body=body) | ast.AsyncWith(body=body):  # one that is left by `raise` may go on below it
            return isinstance(leaves(body), ast.Return)
        case ast.Try() | ast.TryStar():
            ways = [[*statement.body, *statement.orelse], *(handler.body for handler in statement.handlers)]
            return bool(leaves(statement.finalbody)) or all(leaves(way) for way in ways)
        case ast.While(test=ast.Constant(value=value), body=body) if value:
            return not any(isinstance(node, ast.Break) for node in _of_loop(body))
        case ast.Match(cases=cases):
            last = cases[-1]
            rest = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
            return rest and all(leaves(case.body) for case in cases)
        case _:
            return False


def _of_loop(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a loop's body whose `break` would end that loop."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            yield from _of_loop(statement.orelse)
        elif not isinstance(statement, _SCOPES):
            for node in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    yield from _of_loop(getattr(node, field, ()))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that run in the function that it stands in: of a nested one nothing but its header."""
    if not isinstance(node, _SCOPES):
        yield from ast.iter_child_nodes(node)
        return
    for field, value in ast.iter_fields(node):
        if field != "body":
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST))
