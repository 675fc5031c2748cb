"""The JSON schemas: committed as generated, and they know every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglforge.config.schema import KINDS, schema_text, schemas, write_schemas

COMMITTED = Path(__file__).parents[3] / "docs/reference/schema"


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_schema_is_the_generated_one(kind: str) -> None:
    assert (COMMITTED / f"{kind}.schema.json").read_text() == schema_text(schemas()[kind])


def test_schemas_are_written_by_kind(tmp_path: Path) -> None:
    write_schemas(tmp_path, schemas())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{kind}.schema.json" for kind in sorted(KINDS)]
    assert json.loads((tmp_path / "target.schema.json").read_text()) == schemas()["target"]


def test_every_key_is_described_and_spelled_as_in_the_file() -> None:
    keys = [(f"{kind}.{name}", entry) for kind, schema in schemas().items() for name, entry in _keys(schema)]
    assert len(keys) > 60
    assert [name for name, entry in keys if not entry.get("description")] == []
    assert [name for name, _ in keys if "_" in name] == []


def _keys(schema: object) -> Iterator[tuple[str, dict[str, object]]]:
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from properties.items()
    for value in schema.values():
        yield from _keys(value)
