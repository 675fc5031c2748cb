"""Where statements stand in a text: the regions that put code before, after or in the place of others.

Only whole lines are inserted, except where upstream wrote a body on its header's line or several statements
on one line: there the line is broken by an insertion, and no byte of it is changed.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from sglforge.patches.anchors import Suite
from sglforge.patches.payload import Code
from sglforge.patches.pytext import PythonText, Region

DEFAULT_UNIT = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A suite of a text: its statements and how they are indented."""

    source: PythonText
    owner: ast.AST
    statements: list[ast.stmt]
    inline: bool
    prefix: str
    unit: str

    def before(self, index: int, code: Code) -> tuple[Region, ...]:
        """Return the regions that put code before a statement."""
        statement = self.statements[index]
        line = first_line(self.source, statement)
        start = self._start(statement)
        newline = self.source.ending(line)
        if _begins_line(self.source, line, start):
            return (_insertion(self.source.starts[line - 1], self._text(code, newline)),)
        new = newline + self._text(code, newline) + self.prefix
        return (*self._break(index, newline), _insertion(start, new))

    def after(self, index: int, code: Code) -> tuple[Region, ...]:
        """Return the regions that put code after a statement, below what else stands on its last line."""
        following = index + 1
        last = last_line(self.source, self.statements[index])
        if following < len(self.statements) and first_line(self.source, self.statements[following]) <= last:
            return self.before(following, code)
        newline = self.source.ending(last)
        return (*self._break(following, newline), self.below(last, code))

    def below(self, line: int, code: Code) -> Region:
        """Return the region that puts code below a line; a file without a final newline stays without."""
        newline = self.source.ending(line)
        text = self._text(code, newline)
        end = self.source.starts[line - 1] + len(self.source.lines[line - 1])
        if self.source.lines[line - 1].endswith(newline):
            return _insertion(end, text)
        return _insertion(end, newline + text.removesuffix(newline))

    def below_header(self, code: Code) -> tuple[Region, ...]:
        """Return the regions that put code right below the header, above comments on the first statement."""
        if self.inline or isinstance(self.owner, ast.Module):
            return self.before(0, code)
        line = first_line(self.source, self.statements[0])
        while self.source.is_blank_or_comment(line - 1):
            line -= 1
        return (_insertion(self.source.starts[line - 1], self._text(code, self.source.ending(line))),)

    def instead(self, index: int, code: Code) -> tuple[Region, ...]:
        """Return the regions that put code in the place of the statements from ``index`` on."""
        statement = self.statements[index]
        line, start = first_line(self.source, statement), self._start(statement)
        newline = self.source.ending(line)
        text = self._text(code, newline)
        if _begins_line(self.source, line, start):
            return (self.to_the_end(self.source.starts[line - 1], text),)
        return (*self._break(index, newline), self.to_the_end(start, newline + text))

    def to_the_end(self, start: int, text: str) -> Region:
        """Return the region from an offset to the suite's end; a final newline is neither added nor taken."""
        last = last_line(self.source, self.statements[-1])
        newline = self.source.ending(last)
        if not self.source.lines[last - 1].endswith(newline):
            text = text.removesuffix(newline)
        return Region(start=start, end=self.source.starts[last - 1] + len(self.source.lines[last - 1]), new=text)

    def _text(self, code: Code, newline: str) -> str:
        return code.indented(self.prefix, self.unit, newline)

    def _start(self, statement: ast.stmt) -> int:
        line = first_line(self.source, statement)
        if line < statement.lineno:  # a decorator leads it
            return self.source.starts[line - 1] + len(self.source.leading(line))
        return self.source.offset(statement.lineno, statement.col_offset)

    def _break(self, index: int, newline: str) -> tuple[Region, ...]:
        """Return the region that takes the first statement off its header's line, if another is edited."""
        if not self.inline or index == 0:
            return ()
        return (_insertion(self._start(self.statements[0]), newline + self.prefix),)


def lay_out(source: PythonText, suite: Suite) -> Layout:
    """Return how a suite stands in its text; it must hold a statement."""
    owner, statements = suite.owner(source.module), suite.statements(source.module)
    line = first_line(source, statements[0])
    start = source.offset(line, 0 if line < statements[0].lineno else statements[0].col_offset)
    header = source.leading(_header_line(owner, suite.field, line))
    inline = not (isinstance(owner, ast.Module) or line < statements[0].lineno or _begins_line(source, line, start))
    prefix = header + file_unit(source) if inline else source.leading(line)
    if isinstance(owner, ast.Module):
        prefix = ""
    unit = prefix.removeprefix(header) if prefix.startswith(header) else ""
    return Layout(
        source=source,
        owner=owner,
        statements=statements,
        inline=inline,
        prefix=prefix,
        unit=unit or file_unit(source),
    )


def first_line(source: PythonText, statement: ast.stmt) -> int:
    """Return the line that a statement begins on, its decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    if not decorators:
        return statement.lineno
    line = min(decorator.lineno for decorator in decorators)
    while not source.lines[line - 1].lstrip().startswith("@"):
        line -= 1
    return line


def last_line(source: PythonText, statement: ast.stmt) -> int:
    """Return the line that a statement's logical line ends on: comments and continuations included."""
    line, column = statement.end_lineno or statement.lineno, statement.end_col_offset or 0
    rest = source.lines[line - 1][source.offset(line, column) - source.starts[line - 1] :]
    while rest.rstrip("\r\n").endswith("\\") and "#" not in rest and line < len(source.lines):
        line += 1
        rest = source.lines[line - 1]
    return line


def file_unit(source: PythonText) -> str:
    """Return one level of indentation as the first indented body of a file shows it."""
    for node in ast.walk(source.module):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module) or not isinstance(node, ast.stmt) or not isinstance(body, list):
            continue
        header, inner = source.leading(node.lineno), source.leading(body[0].lineno)
        if body[0].lineno > node.lineno and inner.startswith(header) and inner != header:
            return inner.removeprefix(header)
    return DEFAULT_UNIT


def _header_line(owner: ast.AST, field: str, first: int) -> int:
    """Return the line that the header of a suite begins on; an inline `else` shares its statement's."""
    if field != "body":
        return first
    if isinstance(owner, ast.match_case):
        return owner.pattern.lineno
    return getattr(owner, "lineno", first)


def _begins_line(source: PythonText, line: int, start: int) -> bool:
    before = source.lines[line - 1][: start - source.starts[line - 1]]
    continued = line > 1 and source.lines[line - 2].rstrip("\r\n").endswith("\\")
    return not before.strip() and not continued


def _insertion(at: int, new: str) -> Region:
    return Region(start=at, end=at, new=new)
