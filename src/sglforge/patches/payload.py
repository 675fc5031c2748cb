"""Payloads: code files of ours, re-indented to the place that they go to."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from dataclasses import dataclass
from functools import lru_cache

from sglforge.base.ids import Sha256
from sglforge.errors import PatchError
from sglforge.patches.faults import corrupt
from sglforge.patches.pytext import parse

UNIT = 4
"""Spaces per level in payload files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A code file of ours: its text (LF, no blank lines at the ends) and ``where`` it lies, for messages."""

    text: str
    where: str

    @property
    def comments(self) -> frozenset[str]:
        """The lines that are nothing but a comment, in the languages that are patched here."""
        lines = (line.strip() for line in self.text.split("\n"))
        return frozenset(line for line in lines if line.startswith(("#", "//")) and not line.startswith("#include"))

    @property
    def sha256(self) -> Sha256:
        """The hash of the text."""
        return Sha256(hashlib.sha256(self.text.encode()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A payload that parses: its lines, its statements, and the lines that begin inside a string."""

    lines: tuple[str, ...]
    statements: tuple[ast.stmt, ...]
    inside_strings: frozenset[int]

    def indented(self, prefix: str, unit: str, newline: str) -> str:
        """Return the code with every line at its place, each ended by ``newline``.

        ``unit`` is one level of indentation at that place. Lines that begin inside a string stay as they are.
        """
        return "".join(
            (line if number in self.inside_strings else _moved(line, prefix, unit)) + newline
            for number, line in enumerate(self.lines, start=1)
        )


def read(raw: bytes, where: str) -> Payload:
    """Take a payload file's bytes.

    Raises PatchError ``patch-corrupt`` when they are not UTF-8.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise corrupt(f"the payload is not UTF-8: {error}", where=where) from error
    return Payload(text=text.replace("\r\n", "\n").replace("\r", "\n").strip("\n") + "\n", where=where)


@lru_cache(maxsize=16)  # a payload is asked for again by each check of its topic
def understand(payload: Payload) -> Code:
    """Parse a payload; nobody changes the statements.

    Raises PatchError ``patch-corrupt`` when it is no Python, has no statement or is not indented by 4 spaces.
    """
    try:
        statements = parse(payload.text).body
        tokens = list(tokenize.generate_tokens(io.StringIO(payload.text).readline))
        for statement in statements:
            ast.dump(statement)
    except RecursionError as error:
        raise _broken(payload, 1, "the payload is nested too deeply") from error
    except SyntaxError as error:
        raise _broken(payload, error.lineno, f"the payload is not Python: {error.msg}") from error
    except (ValueError, tokenize.TokenError) as error:
        raise _broken(payload, 1, f"the payload is not Python: {error}") from error
    if not statements:
        raise _broken(payload, 1, "the payload holds no statement")
    for token in tokens:
        if token.type == tokenize.INDENT and (len(token.string) % UNIT or token.string.strip(" ")):
            raise _broken(payload, token.start[0], "payloads are indented by 4 spaces a level")
    return Code(
        lines=tuple(payload.text.removesuffix("\n").split("\n")),
        statements=tuple(statements),
        inside_strings=frozenset(_inside_strings(tokens)),
    )


def lines_inside_strings(text: str) -> frozenset[int]:
    """Return the lines of a Python text that begin inside a string; the first line is 1.

    Raises SyntaxError, ValueError and tokenize.TokenError.
    """
    return frozenset(_inside_strings(list(tokenize.generate_tokens(io.StringIO(text).readline))))


def _inside_strings(tokens: list[tokenize.TokenInfo]) -> list[int]:
    """Return the lines that begin inside a string, also inside the pieces of an f-string (Python >= 3.12)."""
    found: list[int] = []
    openings: list[int] = []
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            found += range(token.start[0] + 1, token.end[0] + 1)
        elif name in {"FSTRING_START", "TSTRING_START"}:
            openings.append(token.start[0])
        elif name in {"FSTRING_END", "TSTRING_END"}:
            found += range(openings.pop() + 1, token.end[0] + 1)
    return found


def _moved(line: str, prefix: str, unit: str) -> str:
    code = line.lstrip(" ")
    if not code.strip():
        return ""
    levels, rest = divmod(len(line) - len(code), UNIT)
    return prefix + unit * levels + " " * rest + code


def _broken(payload: Payload, line: int | None, message: str) -> PatchError:
    return corrupt(message, where=f"{payload.where}:{line or 1}", hint="correct the payload")
