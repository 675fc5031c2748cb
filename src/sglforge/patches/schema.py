"""JSON schemas of the files that a patch series consists of."""

from __future__ import annotations

from sglforge.config.schema import schema_of
from sglforge.patches.model import PatchFile, SeriesFile


def schemas() -> dict[str, dict[str, object]]:
    """Return the JSON schema of a topic and of a series, by kind."""
    return {"patch": schema_of(PatchFile), "series": schema_of(SeriesFile)}
