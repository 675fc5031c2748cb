"""Write a JSON text that keeps to a schema, as a grammar would make a model do."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fake_sglang.corpus import CAPITALS


def document(schema: Mapping[str, object], prompt: str) -> str:
    """Return JSON for a schema; the prompt decides which country it is about."""
    country = max(CAPITALS, key=lambda name: (prompt.rfind(name), name == "France"))
    return json.dumps(_value(schema, {"country": country, "city": CAPITALS[country][0]}, "text"))


def _value(schema: Mapping[str, object], known: Mapping[str, str], name: str) -> object:
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list):
        return choices[0]
    kinds = schema.get("type", "object")
    match kinds[0] if isinstance(kinds, list) else kinds:
        case "object":
            members = schema.get("properties")
            return {
                key: _value(member, known, key)
                for key, member in (members if isinstance(members, dict) else {}).items()
            }
        case "array":
            items, least = schema.get("items"), schema.get("minItems", 1)
            one = _value(items if isinstance(items, dict) else {"type": "string"}, known, name)
            return [one] * (least if isinstance(least, int) else 1)
        case "integer" | "number":
            return schema.get("minimum", 3)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            text = known.get(name, name)
            least, most = schema.get("minLength", 0), schema.get("maxLength", len(text) + 99)
            return text.ljust(least if isinstance(least, int) else 0, "x")[: most if isinstance(most, int) else None]
