"""JSON Schema, as far as constrained decoding uses it."""

from __future__ import annotations

from typing import Any

import pytest

from sglforge.smoke.json_shape import unchecked, violations

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "pattern": "^[A-Z]?[a-z]*$"},
        "people": {"type": "integer", "minimum": 1, "maximum": 10},
        "kind": {"enum": ["town", "village"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "exact": {"const": 1.5},
        "maybe": {"type": ["string", "null"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"city": "Rome"}, None),
        ({"city": "Rome", "people": 3, "kind": "town", "tags": ["a", "b"], "exact": 1.5, "maybe": None}, None),
        ([], "$ is"),
        ({}, "$ has no 'city'"),
        ({"city": 5}, "$.city is 5"),
        ({"city": ""}, "$.city"),
        ({"city": "ROME"}, "$.city"),
        ({"city": "Rome", "people": True}, "$.people is True"),
        ({"city": "Rome", "people": 0}, "$.people: 0 is below"),
        ({"city": "Rome", "people": 11}, "$.people: 11 is above"),
        ({"city": "Rome", "people": 1.5}, "$.people is 1.5"),
        ({"city": "Rome", "kind": "isle"}, "$.kind"),
        ({"city": "Rome", "tags": ["a", 1]}, "$.tags[1] is 1"),
        ({"city": "Rome", "tags": ["a", "b", "c"]}, "$.tags: 3 is above"),
        ({"city": "Rome", "exact": 2}, "$.exact"),
        ({"city": "Rome", "maybe": 1}, "$.maybe"),
        ({"city": "Rome", "more": 1}, "$ has 'more'"),
    ],
)
def test_violations_name_their_place(value: Any, place: str | None) -> None:
    found = list(violations(value, CITY))
    assert len(found) == (0 if place is None else 1)
    assert all(line.startswith(str(place)) for line in found)


def test_members_that_are_not_named_follow_the_general_rule() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert list(violations({"a": 1}, schema)) == []
    assert list(violations({"a": "x"}, schema)) == ["$.a is 'x', not of type integer"]


def test_what_is_not_understood_is_said() -> None:
    assert unchecked(CITY) == set()
    schema = {"type": "object", "title": "x", "properties": {"a": {"anyOf": []}, "b": {"items": {"$ref": "#"}}}}
    assert unchecked(schema) == {"anyOf", "$ref"}
