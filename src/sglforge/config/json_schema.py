"""Say what is wrong with a JSON schema, before anything is asked under it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_DEEPEST = 50
_TYPES = {"object", "array", "string", "boolean", "null", "integer", "number"}


def schema_text(text: str) -> str:
    """Return a JSON schema that is written as JSON text.

    Raises ValueError for what is none, the first fault in its words.
    """
    try:
        schema: object = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if fault := next(_faults(schema, "$", 0), None):
        raise ValueError(f"it is no JSON schema: {fault}")
    return text


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _faults(schema: object, at: str, depth: int) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{at} is {type(schema).__name__}, not an object"
        return
    if depth > _DEEPEST:
        yield f"{at} lies more than {_DEEPEST} schemas deep"
        return
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if not (isinstance(name, str) and name in _TYPES):
            yield f"{at}.type: {name!r} is none of {', '.join(sorted(_TYPES))}"
    required = schema.get("required", [])
    if not (isinstance(required, list) and all(isinstance(name, str) for name in required)):
        yield f"{at}.required is no list of names"
    if fault := _no_pattern(schema.get("pattern", "")):
        yield f"{at}.pattern is no regular expression: {fault}"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{at}.properties is {type(properties).__name__}, not an object"
        return
    for name, part in properties.items():
        yield from _faults(part, f"{at}.properties.{name}", depth + 1)
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from _faults(schema[name], f"{at}.{name}", depth + 1)


def _no_pattern(pattern: object) -> str:
    if not isinstance(pattern, str):
        return f"it is {type(pattern).__name__}"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return ""
