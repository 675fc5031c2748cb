"""JSON schema of the files that hold the rules of targets."""

from __future__ import annotations

from sglforge.config.schema import schema_of
from sglforge.launch.rules import RulesFile


def schemas() -> dict[str, dict[str, object]]:
    """Return the JSON schema of a rules file, by kind."""
    return {"rules": schema_of(RulesFile)}
