"""Python files as text that turns back into the very bytes it came from."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from dataclasses import dataclass
from itertools import accumulate

from sglforge.errors import PatchError

_LEADING = re.compile(r"[ \t\f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A stretch of a text that is replaced: offsets in characters, ``start == end`` for an insertion."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonText:
    """A Python file: its name in messages, its bytes, its text in physical lines with their ends, its syntax tree.

    Line numbers are those of ``ast``: the first line is 1. Offsets count characters of the text.
    """

    file: str
    raw: bytes
    encoding: str
    lines: tuple[str, ...]
    starts: tuple[int, ...]
    module: ast.Module

    @property
    def text(self) -> str:
        """The whole text, without a byte order mark."""
        return "".join(self.lines)

    def offset(self, line: int, utf8_column: int) -> int:
        """Return the offset of a position as ``ast`` gives it (columns are UTF-8 bytes)."""
        before = self.lines[line - 1].encode()[:utf8_column]
        return self.starts[line - 1] + len(before.decode())

    def leading(self, line: int) -> str:
        """Return the whitespace that a line begins with."""
        match = _LEADING.match(self.lines[line - 1])
        return match.group().replace("\f", "") if match else ""

    def ending(self, line: int) -> str:
        """Return how a line ends; where it has no end, how the first one does."""
        for candidate in (*self.lines[line - 1 : line], *self.lines[:1]):
            for newline in ("\r\n", "\n", "\r"):
                if candidate.endswith(newline):
                    return newline
        return "\n"

    def is_blank_or_comment(self, line: int) -> bool:
        """Tell whether a line holds no code."""
        stripped = self.lines[line - 1].strip()
        return not stripped or stripped.startswith("#")

    def replaced(self, regions: tuple[Region, ...]) -> PythonText:
        """Return the file with regions replaced; every other byte stays.

        Raises PatchError ``patch-corrupt`` when the file's encoding cannot hold the new text, SyntaxError
        when the result is not Python.
        """
        text, position, parts = self.text, 0, [_mark(self.raw)]
        for region in sorted(regions, key=lambda item: (item.start, item.end)):
            kept = text[position : region.start]
            parts += [kept.encode(self.encoding), self._encoded(region.new)]
            position = region.end
        parts.append(text[position:].encode(self.encoding))
        return _parsed(b"".join(parts), self.encoding, self.file)

    def _encoded(self, new: str) -> bytes:
        try:
            return new.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise PatchError(
                code="patch-corrupt",
                message=f"the payload holds {error.object[error.start]!r}, the file is {self.encoding}",
                hint="write the character as an escape",
            ) from error


def read(raw: bytes, file: str) -> PythonText:
    """Take a Python file apart.

    Raises PatchError ``patch-target-unreadable`` when it is not Python for the running interpreter, or its
    bytes are not what its declared encoding says.
    """
    try:
        lines = iter(raw.splitlines(keepends=True))
        encoding = tokenize.detect_encoding(lambda: next(lines))[0].removesuffix("-sig")
        source = _parsed(raw, encoding, file)
        intact = _mark(raw) + source.text.encode(encoding) == raw
    except (SyntaxError, ValueError, LookupError) as error:
        raise _unreadable(file, reason(error)) from error
    if not intact:
        raise _unreadable(file, f"its encoding {encoding} does not survive a round trip")
    return source


def _parsed(raw: bytes, encoding: str, file: str) -> PythonText:
    text = raw.removeprefix(codecs.BOM_UTF8).decode(encoding)
    lines = tuple(io.StringIO(text, newline=""))  # each with its own end: \n, \r or \r\n
    *starts, _ = accumulate(map(len, lines), initial=0)
    return PythonText(file=file, raw=raw, encoding=encoding, lines=lines, starts=tuple(starts), module=parse(text))


def parse(text: str | bytes) -> ast.Module:
    """Parse Python without the warnings that upstream's code deserves.

    Raises SyntaxError or ValueError (null bytes, nested too deeply).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (RecursionError, MemoryError) as error:
            raise ValueError("it is nested too deeply") from error


def reason(error: Exception) -> str:
    """Return why a text is no Python, with the line where that is known."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.msg} (line {error.lineno})"
    return str(error)


def _mark(raw: bytes) -> bytes:
    return codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""


def _unreadable(file: str, why: str) -> PatchError:
    return PatchError(
        code="patch-target-unreadable",
        message=f"{file} cannot be read as Python: {why}",
        hint="use the Python that the environment is made for; a file that no Python reads cannot be edited",
    )
