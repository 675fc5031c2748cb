"""What pydantic found wrong, said for the person who wrote the file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sglforge.base.toml import Document, KeyPath
from sglforge.config.model import PATTERNS, FileModel
from sglforge.config.places import Place, dotted, locate, resolved
from sglforge.config.suggest import hint, nearest
from sglforge.errors import Finding, Severity

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_OWN_VALUE: tuple[tuple[str | int, ...], ...] = ((), ("[key]",), (0,))
"""Rests of a location that are about the value there: itself, its key, or a text that stands for a list of one."""
_JSON_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "a table",
}


def findings(errors: Sequence[ErrorDetails], document: Document, model: type[FileModel]) -> Iterator[Finding]:
    """Yield one finding for each fault of a document."""
    schema = model.model_json_schema(by_alias=True)
    unions: set[KeyPath] = set()
    for error in errors:
        location = error["loc"]
        if error["type"] in {"extra_forbidden", "missing"}:
            place = locate(schema, document.data, location[:-1])
            yield _about_a_key(error, str(location[-1]), place, document)
            continue
        place = locate(schema, document.data, location)
        if place.rest not in _OWN_VALUE:
            # one error for each member of a union: say it once
            if place.key in unions:
                continue
            unions.add(place.key)
            wanted = " or ".join(dict.fromkeys(_words(schema, place.schema)))
            yield _wrong_type(place, document, wanted, error["input"])
            continue
        yield _about_a_value(error, place, document)


def _about_a_key(error: ErrorDetails, name: str, place: Place, document: Document) -> Finding:
    properties = place.schema.get("properties")
    known: Mapping[str, Mapping[str, object]] = properties if isinstance(properties, dict) else {}
    if error["type"] == "missing":
        description = known.get(name, {}).get("description")
        return Finding(
            code="missing-key",
            severity=Severity.ERROR,
            subject=dotted((*place.key, name)),
            message=f"{place.table} lacks the key `{name}`",
            hint=f"{name}: {description}" if description else f"add `{name}`",
            where=document.where(place.key),
        )
    return Finding(
        code="unknown-key",
        severity=Severity.ERROR,
        subject=dotted((*place.key, name)),
        message=f"unknown key `{name}` in {place.table}",
        hint=hint(name, known),
        where=document.where((*place.key, name)),
    )


def _about_a_value(error: ErrorDetails, place: Place, document: Document) -> Finding:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind in _WANTED:
        return _wrong_type(place, document, _WANTED[kind], value)
    help_text = str(place.schema.get("description", ""))
    match kind:
        case "string_pattern_mismatch":
            message = f"{value!r} is not {PATTERNS.get(context['pattern'], context['pattern'])}"
        case "literal_error":
            message, help_text = _none_of(value, _options(place.schema), help_text)
        case "union_tag_invalid":
            message, help_text = _none_of(context["tag"], _options(place.schema), help_text)
        case "union_tag_not_found":
            key = str(context["discriminator"]).strip("'")
            message, help_text = f"lacks the key `{key}`", f"{key} is one of {', '.join(_options(place.schema))}"
        case "value_error":
            message = str(context["error"])
        case _:
            message = f"{error['msg'][0].lower()}{error['msg'][1:]}, this is {_shown(value)}"
    subject = dotted(place.key)
    if place.rest == ("[key]",):
        message, help_text = f"name {message}", ""
    else:
        message = f"`{subject}`: {message}"
    return Finding(
        code="invalid-value",
        severity=Severity.ERROR,
        subject=subject,
        message=message,
        hint=help_text,
        where=document.where(place.key),
    )


def _options(schema: Mapping[str, object]) -> list[str]:
    discriminator, allowed = schema.get("discriminator"), schema.get("enum", [schema.get("const")])
    if isinstance(discriminator, dict):
        return list(discriminator["mapping"])
    return [str(option) for option in allowed] if isinstance(allowed, list) else []


def _none_of(value: object, options: Sequence[str], help_text: str) -> tuple[str, str]:
    guess = nearest(str(value), options)
    return f"{value!r} is none of {', '.join(options)}", f"did you mean `{guess}`?" if guess else help_text


def _wrong_type(place: Place, document: Document, wanted: str, value: object) -> Finding:
    subject = dotted(place.key)
    return Finding(
        code="wrong-type",
        severity=Severity.ERROR,
        subject=subject,
        message=f"`{subject}` must be {wanted}, this is {_type_of(value)}",
        hint=str(place.schema.get("description", "")),
        where=document.where(place.key),
    )


def _words(root: Mapping[str, object], schema: Mapping[str, object]) -> Iterator[str]:
    options = schema.get("anyOf")
    for option in options if isinstance(options, list) else [schema]:
        yield _JSON_WORDS.get(str(resolved(root, option).get("type")), "something else")


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    names = {str: f"the text {_shown(value)}", int: f"the number {value}", float: f"the number {value}"}
    names |= {list: "an array", dict: "a table", dt.date: "a date", dt.datetime: "a date", dt.time: "a time"}
    return names.get(type(value), type(value).__name__)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
