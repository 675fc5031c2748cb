"""Edits of Python files: a text, an edit and its payload give the edited text."""

from __future__ import annotations

import ast
import copy
import hashlib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglforge.base.ids import Sha256
from sglforge.errors import PatchError
from sglforge.patches.anchors import (
    Definition,
    Function,
    Spot,
    Suite,
    find,
    find_function,
    find_statement,
    inner_suites,
)
from sglforge.patches.endings import leaves, yields
from sglforge.patches.faults import already_there, corrupt, drifted
from sglforge.patches.layout import Layout, first_line, lay_out
from sglforge.patches.model import BodyEdit, ClassAttributeEdit, InsertEdit, PythonEdit, ReplaceEdit
from sglforge.patches.parameters import fitted
from sglforge.patches.payload import Code, Payload, understand
from sglforge.patches.pytext import PythonText, Region, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an edit does to a text.

    ``regions`` are the stretches that it replaces. Afterwards the statements of ``suite`` are the old ones,
    with ``statements`` in the place of ``removed`` of them from ``index`` on.
    """

    regions: tuple[Region, ...]
    suite: Suite
    index: int
    removed: int
    statements: tuple[ast.stmt, ...]


def apply_edit(source: PythonText, edit: PythonEdit, payload: Payload) -> PythonText:
    """Return the edited text; every byte outside the regions of the edit is the one it was.

    Raises PatchError ``patch-drifted``, ``patch-anchor-ambiguous``, ``patch-already-there``,
    ``patch-corrupt``, ``patch-no-effect``, ``patch-changes-flow``, ``patch-does-not-compile`` and ``patch-misplaced``.
    """
    change = _change(source, edit, understand(fitted(payload, source, edit)))
    _check_flow(source, edit, payload, change)
    try:
        after = source.replaced(change.regions)
    except (SyntaxError, ValueError) as error:
        raise PatchError(
            code="patch-does-not-compile",
            message=f"{source.file} is no Python any more with {payload.where}: {reason(error)}",
            hint="the payload does not fit the place that it goes to",
        ) from error
    if not _is_in_place(source, after, change):
        raise PatchError(
            code="patch-misplaced",
            message=f"with {payload.where}, {source.file} parses as something else than the edit says",
            hint="the payload changes what the statements around it belong to",
        )
    return after


def _check_flow(source: PythonText, edit: PythonEdit, payload: Payload, change: Change) -> None:
    """Refuse an edit that takes code out of use, or makes a function another kind, and does not say so.

    What may not stand where it goes, such as a `return` in a class, is left to the check that it compiles.
    """
    function = change.suite.function(source.module)
    below = change.suite.statements(source.module)[change.index :]
    match edit:
        case ClassAttributeEdit():
            return
        case ReplaceEdit():
            before, after = below[: change.removed], [*change.statements]
            if edit.operation == "replace-function":
                before, after = ([*getattr(one[0], "body", ())] for one in (before, after))
            if not edit.generator and bool(yields(before)) is not bool(yields(after)):
                what = "becomes a generator" if yields(after) else "is no generator any more"
                raise _other_flow(f"with {payload.where} `{edit.anchor}` {what}", "generator")
            return
        case BodyEdit() | InsertEdit():
            pass
    last = leaves(change.statements)
    if last and below and not edit.leaves and (function or isinstance(last, ast.Raise)):
        raise _other_flow(
            f"the `{type(last).__name__.lower()}` on line {last.lineno} of {payload.where} never goes on: "
            f"what stands in {source.file} from line {below[0].lineno} on would never run",
            "leaves",
        )
    found = yields(change.statements)
    if found and function and not edit.generator and not yields(function.body):
        raise _other_flow(
            f"the `yield` on line {found.lineno} of {payload.where} makes `{function.name}` in {source.file} a "
            "generator",
            "generator",
        )


def _other_flow(message: str, key: str) -> PatchError:
    return PatchError(
        code="patch-changes-flow",
        message=message,
        hint=f"rewrite the payload, or say in the edit that it is meant: `{key} = true`",
    )


def is_there(source: PythonText, edit: PythonEdit, payload: Payload) -> bool:
    """Tell whether a text holds an edit's payload inside its anchored object."""
    return shift(source, edit, payload) is not None


def shift(source: PythonText, edit: PythonEdit, payload: Payload) -> int | None:
    """Return by how many lines an edit's payload stands further down in a text than in its own file.

    None is returned when the text does not hold it inside the anchored object.
    """
    try:
        statements = understand(fitted(payload, source, edit)).statements
        line = _run(source, edit, statements)
    except PatchError:
        return None
    return None if line is None else line - statements[0].lineno


def replaced_digest(source: PythonText, edit: ReplaceEdit, payload: Payload) -> Sha256:
    """Return the digest that ``replaces`` would have to be for a file as it is.

    Raises PatchError ``patch-drifted``, ``patch-anchor-ambiguous`` and ``patch-corrupt``.
    """
    change = _replacement(source, edit, understand(fitted(payload, source, edit)))
    return text_digest(_old_text(source, change))


def text_digest(text: str) -> Sha256:
    """Return the digest that ``replaces`` names: lines without common indentation and trailing blanks."""
    lines = textwrap.dedent(text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n").split("\n")
    return Sha256(hashlib.sha256("\n".join(line.rstrip() for line in lines).encode()).hexdigest())


def _change(source: PythonText, edit: PythonEdit, code: Code) -> Change:
    match edit:
        case ReplaceEdit():
            return _replace(source, edit, code)
        case ClassAttributeEdit():
            _check_attributes(source, edit, code)
        case BodyEdit() | InsertEdit():
            pass
    line = _run(source, edit, code.statements)
    if line is not None:
        raise already_there(source.file, edit.payload, line)
    if isinstance(edit, InsertEdit):
        return _insert_beside(source, edit, code)
    return _insert_in_body(source, edit, code)


def _insert_in_body(source: PythonText, edit: BodyEdit | ClassAttributeEdit, code: Code) -> Change:
    suite = _body(source, edit)
    statements = suite.statements(source.module)
    if not statements:  # only a module can have an empty body
        return _insertion(suite, 0, code, (_at_the_end(source, code),))
    if edit.operation == "append-to-body":
        return _after(source, suite, len(statements) - 1, code)
    head = _head(statements, module=isinstance(suite.owner(source.module), ast.Module))
    if head:
        return _after(source, suite, head - 1, code)
    return _insertion(suite, 0, code, lay_out(source, suite).below_header(code))


def _insert_beside(source: PythonText, edit: InsertEdit, code: Code) -> Change:
    spot = _spot(source, edit)
    if edit.operation == "insert-before":
        layout = lay_out(source, spot.suite)
        return _insertion(spot.suite, spot.index, code, layout.before(spot.index, code))
    return _after(source, spot.suite, spot.index, code)


def _after(source: PythonText, suite: Suite, index: int, code: Code) -> Change:
    statement = suite.statements(source.module)[index]
    if leaves([statement]):
        raise PatchError(
            code="patch-no-effect",
            message=f"code below line {statement.lineno} of {source.file} never runs: "
            f"the `{type(statement).__name__.lower()}` there never goes on",
            hint="insert before that statement",
        )
    return _insertion(suite, index + 1, code, lay_out(source, suite).after(index, code))


def _replace(source: PythonText, edit: ReplaceEdit, code: Code) -> Change:
    change = _replacement(source, edit, code)
    line = _function(source, edit).lineno
    replaced = change.suite.statements(source.module)[change.index :][: change.removed]
    if _is_same(list(change.statements), replaced):
        raise already_there(source.file, edit.payload, line)
    digest = text_digest(_old_text(source, change))
    if digest != edit.replaces:
        raise drifted(
            f"`{edit.anchor}` in {source.file} (line {line}) is not what the topic replaces: its sha256 is {digest}",
            hint="read what upstream changed, adapt the payload, then set `replaces` to that sha256",
        )
    return change


def _replacement(source: PythonText, edit: ReplaceEdit, code: Code) -> Change:
    spot, function = find(source.module, edit.anchor, source.file), _function(source, edit)
    if edit.operation == "replace-body":
        return _new_body(spot, function, lay_out(source, spot.body()), code)
    return _new_function(source, spot, function, code)


def _old_text(source: PythonText, change: Change) -> str:
    return source.text[change.regions[-1].start : change.regions[-1].end]


def _new_body(spot: Spot, function: ast.stmt, body: Layout, code: Code) -> Change:
    head = _head(body.statements, module=False)
    if head == len(body.statements):
        raise drifted(f"`{getattr(function, 'name', '')}` (line {function.lineno}) has no body below its docstring")
    return Change(
        regions=body.instead(head, code),
        suite=spot.body(),
        index=head,
        removed=len(body.statements) - head,
        statements=code.statements,
    )


def _new_function(
    source: PythonText,
    spot: Spot,
    function: Function,
    code: Code,
) -> Change:
    new = code.statements[0]
    if (
        len(code.statements) > 1
        or not isinstance(new, ast.FunctionDef | ast.AsyncFunctionDef)
        or (type(new), new.name) != (type(function), function.name)
    ):
        kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
        raise corrupt(f"the payload must hold `{kind} {function.name}` and nothing else")
    if new.decorator_list:
        raise corrupt("the payload has decorators; upstream's stay, so it must have none")
    outer = lay_out(source, spot.suite)
    text = code.indented(outer.prefix, outer.unit, source.ending(function.lineno))
    region = lay_out(source, spot.body()).to_the_end(source.starts[function.lineno - 1], text)
    expected = copy.copy(new)
    expected.decorator_list = function.decorator_list
    return Change(regions=(region,), suite=spot.suite, index=spot.index, removed=1, statements=(expected,))


def _insertion(suite: Suite, index: int, code: Code, regions: tuple[Region, ...]) -> Change:
    return Change(regions=regions, suite=suite, index=index, removed=0, statements=code.statements)


def _at_the_end(source: PythonText, code: Code) -> Region:
    text = source.text
    newline = source.ending(1)
    start = newline if text and not text.endswith(("\n", "\r")) else ""
    return Region(start=len(text), end=len(text), new=start + code.indented("", "    ", newline))


def _is_in_place(before: PythonText, after: PythonText, change: Change) -> bool:
    old = change.suite.statements(before.module)
    try:
        new = change.suite.statements(after.module)
    except (AttributeError, IndexError):  # the way to the suite is another one now
        return False
    first, last = change.index, change.index + len(change.statements)
    kept, there = [*old[:first], *old[first + change.removed :]], [*new[:first], *new[last:]]
    return (
        len(kept) == len(there)
        and _is_same(new[first:last], list(change.statements))
        and all(_is_kept(before, one, after, other) for one, other in zip(kept, there, strict=True))
    )


def _is_kept(before: PythonText, one: ast.stmt, after: PythonText, other: ast.stmt) -> bool:
    """Tell whether a statement is the one that it was: the same lines hold the same tree, and are compared sooner."""
    return _extent(before, one) == _extent(after, other) or _is_same(one, other)


def _extent(source: PythonText, statement: ast.stmt) -> tuple[object, ...]:
    """Return what a statement is parsed from: its lines, and where in the first and the last of them it stands."""
    lines = source.lines[first_line(source, statement) - 1 : statement.end_lineno]
    return type(statement), lines, statement.col_offset, statement.end_col_offset


def _run(source: PythonText, edit: PythonEdit, statements: Sequence[ast.stmt]) -> int | None:
    """Return the line of an edit's statements if they stand one after the other in the anchored object."""
    if isinstance(edit, ReplaceEdit) and edit.operation == "replace-function":
        function = copy.copy(_function(source, edit))
        function.decorator_list = []
        return function.lineno if _is_same([function], list(statements)) else None
    for suite in _homes(source, edit):
        there = suite.statements(source.module)
        for index in range(len(there) - len(statements) + 1):
            if _is_same(there[index : index + len(statements)], list(statements)):
                return there[index].lineno
    return None


def _is_same(one: object, other: object) -> bool:
    """Tell whether two syntax trees are the same, wherever they stand; it ends at the first difference."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        return all(_is_same(getattr(one, name, None), getattr(other, name, None)) for name in one._fields)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one == other


def _homes(source: PythonText, edit: PythonEdit) -> Iterator[Suite]:
    """Yield the suites that an edit's statements may stand in."""
    if isinstance(edit, InsertEdit) and edit.statement is None:
        yield _spot(source, edit).suite
        return
    body = _body(source, edit)
    yield body
    if isinstance(edit, InsertEdit) and edit.statement and edit.statement.nested:
        yield from inner_suites(source.module, body)


def _spot(source: PythonText, edit: InsertEdit) -> Spot:
    if edit.statement is None:
        if edit.anchor is None:
            raise corrupt("the edit has neither `anchor` nor `statement`", hint="say what it is inserted beside")
        return find(source.module, edit.anchor, source.file)
    scope = f"`{edit.anchor}` in {source.file}" if edit.anchor else source.file
    return find_statement(source.module, _body(source, edit), edit.statement, scope)


def _body(source: PythonText, edit: PythonEdit) -> Suite:
    return find(source.module, edit.anchor, source.file).body() if edit.anchor else Suite()


def _head(statements: Sequence[ast.stmt], *, module: bool) -> int:
    """Return how many statements must stay first: the docstring, and a module's ``__future__`` imports."""
    count = 0
    match statements:
        case [ast.Expr(value=ast.Constant(value=str())), *_]:
            count = 1
        case _:
            pass
    while module and count < len(statements) and _is_future(statements[count]):
        count += 1
    return count


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _function(source: PythonText, edit: ReplaceEdit) -> Function:
    return find_function(source.module, edit.anchor, source.file)


def _check_attributes(source: PythonText, edit: ClassAttributeEdit, code: Code) -> None:
    node = find(source.module, edit.anchor, source.file).node(source.module)
    if not isinstance(node, ast.ClassDef):
        raise drifted(f"`{edit.anchor}` in {source.file} (line {node.lineno}) is not a class")
    new = set().union(*(_assigned(statement) for statement in code.statements))
    if not all(_assigned(statement) for statement in code.statements):
        raise corrupt("the payload must hold assignments to names and nothing else")
    for statement in node.body:
        defined = {statement.name} if isinstance(statement, Definition) else _assigned(statement)
        if taken := new & defined:
            raise PatchError(
                code="patch-already-there",
                message=f"`{edit.anchor}` in {source.file} has `{min(taken)}` already: line {statement.lineno}",
                hint="upstream may do what the topic is for: read that line, then drop or rename",
            )


def _assigned(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
