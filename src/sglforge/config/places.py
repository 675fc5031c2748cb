"""Follow a location through a document and the JSON schema of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglforge.base.toml import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an error points: keys of the document, the schema there, and the rest of the location."""

    key: KeyPath
    schema: Mapping[str, object]
    rest: tuple[str | int, ...]

    @property
    def table(self) -> str:
        """The table's name as a person writes it."""
        return f"[{dotted(self.key)}]" if self.key else "the file"


def locate(root: Mapping[str, object], data: object, location: Sequence[str | int]) -> Place:
    """Follow an error's location through the document and the schema; tags of unions are no keys."""
    key: list[str | int] = []
    schema = resolved(root, root)
    for index, part in enumerate(location):
        member = _tagged(root, schema, part)
        if member is not None:
            schema = member
            continue
        children = _children(data)
        if part not in children:
            return Place(key=tuple(key), schema=schema, rest=tuple(location[index:]))
        data = children[part]
        key.append(part)
        schema = _inner(root, schema, part)
    return Place(key=tuple(key), schema=schema, rest=())


def resolved(root: Mapping[str, object], schema: object) -> Mapping[str, object]:
    """Return a schema with its reference followed and an optional one unwrapped; its own description wins."""
    if not isinstance(schema, dict):
        return {}
    reference, options, found = schema.get("$ref"), schema.get("anyOf"), schema
    if isinstance(reference, str):
        definitions = root.get("$defs")
        found = definitions[reference.rpartition("/")[2]] if isinstance(definitions, dict) else {}
    elif isinstance(options, list):
        real = [option for option in options if option != {"type": "null"}]
        if len(real) == 1:
            found = dict(resolved(root, real[0]))
    if found is not schema and "description" in schema:
        return {**found, "description": schema["description"]}
    return found


def _children(data: object) -> Mapping[str | int, object]:
    if isinstance(data, list):
        return dict(enumerate(data))
    return data if isinstance(data, dict) else {}


def _tagged(root: Mapping[str, object], schema: Mapping[str, object], part: str | int) -> Mapping[str, object] | None:
    discriminator = schema.get("discriminator")
    if isinstance(discriminator, dict) and part in discriminator["mapping"]:
        member = discriminator["mapping"][part]
        return resolved(root, {"$ref": member} if isinstance(member, str) else member)
    return None


def _inner(root: Mapping[str, object], schema: Mapping[str, object], part: str | int) -> Mapping[str, object]:
    properties = schema.get("properties")
    if isinstance(properties, dict) and part in properties:
        return resolved(root, properties[part])
    inner = schema.get("items") if isinstance(part, int) else schema.get("additionalProperties")
    if not inner and isinstance(patterns := schema.get("patternProperties"), dict):
        inner = next(iter(patterns.values()))
    return resolved(root, inner)


def dotted(key: Sequence[str | int]) -> str:
    """Return a key as it is written in TOML, with indexes in brackets."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
