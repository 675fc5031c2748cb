"""TOML documents that know on which line a key stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sglforge.errors import ConfigError

_KEY = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_TABLE = re.compile(rf"^\s*(\[\[?)\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*\]\]?")
_ASSIGN = re.compile(rf"^\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*=")
_PART = re.compile(_KEY)

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed TOML file that knows the lines of its keys; they are looked for when one is asked for."""

    path: Path
    data: Mapping[str, object]
    text: str

    def where(self, key: KeyPath) -> str:
        """Return ``file:line`` of a key, or of the nearest enclosing table that is written down."""
        lines = _scan(self.text)
        for length in range(len(key), -1, -1):
            if line := lines.get(key[:length]):
                return f"{self.path}:{line}"
        return f"{self.path}:1"


def load(path: Path) -> Document:
    """Read a TOML file.

    Raises ConfigError ``toml-unreadable`` for a file that cannot be read, ``toml-syntax`` for one that is no TOML.
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            code="toml-unreadable",
            message=f"cannot read {path.name}: {error}",
            where=str(path),
            hint="look whether it is there, whether you may read it, and whether it is UTF-8",
        ) from error
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits, arrays nested too deeply
        line = re.search(r"at line (\d+)", str(error))
        last = text.count("\n") + (not text.endswith("\n"))
        raise ConfigError(
            code="toml-syntax",
            message=f"not valid TOML: {error}",
            where=f"{path}:{line.group(1) if line else last}",
            hint="correct the line; https://toml.io describes the format",
        ) from error
    return Document(path=path, data=data, text=text)


@lru_cache(maxsize=1)
def _scan(text: str) -> Mapping[KeyPath, int]:
    """Return the line of each table header and key (the first one wins)."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    closing = ""  # the quotes that end the multi-line string which is open
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            closing = "" if closing in line else closing
            continue
        closing = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), "")
        if header := _TABLE.match(line):
            table = _unquote(header.group(2))
            if header.group(1) == "[[":
                index = counts.get(table, 0)
                counts[table] = index + 1
                lines.setdefault(table, number)
                table = (*table, index)
            elif parents := [p for p in counts if table[: len(p)] == p]:
                parent = max(parents, key=len)
                table = (*parent, counts[parent] - 1, *table[len(parent) :])
            lines.setdefault(table, number)
        elif assignment := _ASSIGN.match(line):
            key = (*table, *_unquote(assignment.group(1)))
            for length in range(len(table) + 1, len(key) + 1):
                lines.setdefault(key[:length], number)
    return lines


def _unquote(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
