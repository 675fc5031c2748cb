"""Which texts can travel through a script, an environment and a command line unharmed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from sglforge.errors import RenderError

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALLOWED_CONTROLS = frozenset("\n\t")


def printable(value: str, key: str) -> str:
    """Return the value if it holds no NUL, control character (but newline and tab) or lone surrogate.

    Raises RenderError ``value-not-printable``.
    """
    for character in value:
        if unicodedata.category(character) in {"Cc", "Cs"} and character not in _ALLOWED_CONTROLS:
            raise RenderError(
                code="value-not-printable",
                message=f"{key} holds the character U+{ord(character):04X}, which no launch script can carry",
                context={"value": ascii(value)},
                hint="take the character out; a value may hold any other text, quotes and newlines too",
            )
    return value


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a profile, checked.

    Raises RenderError ``variable-name-invalid`` and ``value-not-printable``.
    """
    for name, value in environment.items():
        if not _VARIABLE_NAME.fullmatch(name):
            raise RenderError(
                code="variable-name-invalid",
                message=f"environment: {name!r} cannot be the name of an environment variable",
                hint="letters, digits and underscores, not beginning with a digit",
            )
        printable(value, f"environment.{name}")
    return dict(environment)
