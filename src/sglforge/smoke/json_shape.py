"""Check a JSON value against the plain part of JSON Schema: types, members, items, bounds, choices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
_CHECKED = {
    "type", "enum", "const", "properties", "required", "additionalProperties", "items",
    "minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum",
}  # fmt: skip
_SILENT = {"$schema", "$id", "title", "description", "default", "examples", "format"}


def unchecked(schema: Mapping[str, object]) -> set[str]:
    """Return the keywords of a schema, at any depth, that `violations` does not understand."""
    found = set(schema) - _CHECKED - _SILENT
    for part in _subschemas(schema):
        found |= unchecked(part)
    return found


def violations(value: object, schema: Mapping[str, object], at: str = "$") -> Iterator[str]:
    """Yield every way in which a value breaks a schema; ``at`` is the JSON path of the value."""
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{at} is {value!r}, not of type {schema['type']}"
        return
    if isinstance(choices := schema.get("enum"), list) and value not in choices:
        yield f"{at} is {value!r}, none of {choices}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} is {value!r}, not {schema['const']!r}"
    if isinstance(value, dict):
        yield from _members(value, schema, at)
    elif isinstance(value, list):
        yield from _bounds(len(value), schema, at, "minItems", "maxItems")
        if isinstance(items := schema.get("items"), dict):
            for index, item in enumerate(value):
                yield from violations(item, items, f"{at}[{index}]")
    elif isinstance(value, str):
        yield from _bounds(len(value), schema, at, "minLength", "maxLength")
        if isinstance(pattern := schema.get("pattern"), str) and not re.search(pattern, value):
            yield f"{at} is {value!r}, which does not match {pattern}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _bounds(value, schema, at, "minimum", "maximum")


def _members(value: Mapping[str, object], schema: Mapping[str, object], at: str) -> Iterator[str]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else []:
        if name not in value:
            yield f"{at} has no {name!r}"
    for name, member in value.items():
        rule = known.get(name, schema.get("additionalProperties", True))
        if rule is False:
            yield f"{at} has {name!r}, which is not allowed"
        elif isinstance(rule, dict):
            yield from violations(member, rule, f"{at}.{name}")


def _bounds(size: float, schema: Mapping[str, object], at: str, low: str, high: str) -> Iterator[str]:
    if isinstance(least := schema.get(low), (int, float)) and size < least:
        yield f"{at}: {size} is below {low} {least}"
    if isinstance(most := schema.get(high), (int, float)) and size > most:
        yield f"{at}: {size} is above {high} {most}"


def _is(value: object, types: object) -> bool:
    names = types if isinstance(types, list) else [types]
    for name in names:
        kinds = _TYPES.get(str(name), ())
        if isinstance(value, kinds) and (not isinstance(value, bool) or name == "boolean"):
            return True
    return False


def _subschemas(schema: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    properties = schema.get("properties")
    members = properties.values() if isinstance(properties, dict) else ()
    for part in (*members, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            yield part
