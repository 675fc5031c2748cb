"""A file that people wrote, with other values: its comments and its layout are kept."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

_SCHEMA = "#:schema "
"""The comment by which editors find the schema; its path is relative to the file's folder."""


def derived(text: str, values: Mapping[str, object], *, comments: Sequence[str]) -> str:
    """Return a TOML text that says other values, below comments of its own.

    Args:
        text: What was written, valid TOML.
        values: All that it is to say.
        comments: Lines for its head, without the sign that begins a comment.
    """
    import tomlkit

    document = tomlkit.parse(text)
    _change(document, values)
    body = document.as_string()
    if body.startswith(_SCHEMA):
        body = body.partition("\n")[2]
    return "".join(f"# {line}".rstrip() + "\n" for line in comments) + "\n" + body


def _change(table: MutableMapping[str, Any], values: Mapping[str, object]) -> None:
    """Make a table say what is wanted; what says it already is not touched."""
    for key in [key for key in table if key not in values]:
        del table[key]
    for key, value in values.items():
        there = table.get(key)
        if isinstance(value, dict) and isinstance(there, MutableMapping):
            _change(there, value)
        elif there != value:
            table[key] = value
