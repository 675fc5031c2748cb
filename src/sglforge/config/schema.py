"""JSON schemas of the files that people write, for editors and for the reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sglforge.base.files import write_text
from sglforge.config.lockfile import Lock
from sglforge.config.model import FileModel, PackageRecipe, Profile, Stack, Target, Toolkit

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS: Mapping[str, type[FileModel]] = {
    "lock": Lock,
    "package": PackageRecipe,
    "profile": Profile,
    "stack": Stack,
    "target": Target,
    "toolkit": Toolkit,
}


def schema_of(model: type[FileModel]) -> dict[str, object]:
    """Return the JSON schema of one kind of file; keys are spelled as in the file."""
    return {"$schema": DIALECT, **model.model_json_schema(by_alias=True)}


def schemas() -> dict[str, dict[str, object]]:
    """Return the JSON schema of every kind of file that this layer reads, by kind."""
    return {kind: schema_of(model) for kind, model in KINDS.items()}


def write_schemas(folder: Path, documents: Mapping[str, Mapping[str, object]]) -> None:
    """Write ``<kind>.schema.json`` for each schema."""
    for kind, document in documents.items():
        write_text(folder / f"{kind}.schema.json", schema_text(document))


def schema_text(document: Mapping[str, object]) -> str:
    """Return a schema as it is committed."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
