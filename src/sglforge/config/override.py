"""Values of a profile replaced on the command line: ``--set speculation.num-steps=2``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

from sglforge.base.toml import Document
from sglforge.config.model import Profile
from sglforge.config.parse import validate
from sglforge.errors import ConfigError


def override(profile: Profile, assignments: Sequence[str]) -> Profile:
    """Return the profile with some values replaced.

    A key is dotted and kebab-case; a value is TOML where it is valid TOML, else text; an empty one removes
    the key. Raises ConfigError ``override-invalid``.
    """
    if not assignments:
        return profile
    data = profile.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        path = key.split(".", 1) if key.startswith(("flags.", "environment.")) else key.split(".")
        if not equals or not all(path):
            raise _invalid(assignment, "it is not KEY=VALUE")
        table = data
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise _invalid(assignment, f"`{part}` is not a table")
        if value:
            table[path[-1]] = _value(value)
        else:
            table.pop(path[-1], None)
    try:
        return validate(Document(path=Path("--set"), data=data, text=""), Profile)
    except ConfigError as error:
        fault = error.findings[0]
        message = fault.message.removesuffix(" in the file").replace("the file", "the profile")
        raise _invalid(", ".join(assignments), message, hint=fault.hint) from None


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return tomllib.loads(f"value = {json.dumps(text)}")["value"]


def _invalid(assignment: str, why: str, *, hint: str = "") -> ConfigError:
    return ConfigError(
        code="override-invalid",
        message=f"--set {assignment}: {why}",
        hint=hint or "keys are those of the profile file, for example: --set port=31000",
    )
