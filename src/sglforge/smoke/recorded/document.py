"""The document of a recorded transcript, and its words of many spellings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from sglforge.errors import ConfigError

MAX_DEPTH = 40
MAX_VALUES = 2_000_000
_FORMS = "docs/reference/transcripts.md lists the forms that are understood"

Node = Mapping[str, object]


def invalid(where: str, what: str, hint: str = _FORMS) -> ConfigError:
    """Return the error for a document that cannot be judged."""
    return ConfigError(
        code="transcript-invalid", message=f"the transcript is not valid: {what}", where=where, hint=hint
    )


def check_size(document: object, where: str) -> None:
    """Refuse what is nested too deeply or holds too many values, before anything walks through it."""
    level: list[object] = [document]
    count = 0
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        count += len(level)
        if count > MAX_VALUES:
            raise invalid(where, f"it holds more than {MAX_VALUES} values")
        if not level:
            return
    raise invalid(where, f"it is nested more than {MAX_DEPTH} levels deep")


def _children(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def first(node: Node, *names: str) -> object:
    """Return the value of the first name that a mapping has, None if it has none."""
    return next((node[name] for name in names if name in node), None)


def mapping(value: object) -> Node:
    """Return a mapping as it is, anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def number(value: object) -> float | None:
    """Return a finite number, also from words such as ``12.5 s``; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str) and (match := re.match(r"\s*(-?\d+(?:\.\d+)?)", value)):
        return float(match[1])
    return None


def whole(value: object) -> int | None:
    """Return a whole number, None for anything else."""
    figure = number(value)
    return int(figure) if figure is not None and figure == int(figure) else None


def words(value: object) -> str:
    """Return a text, the joined lines of a list, or nothing."""
    if isinstance(value, list):
        return "\n".join(str(line) for line in value)
    return value if isinstance(value, str) else ""
