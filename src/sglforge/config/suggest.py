"""Did you mean: the nearest of the words that would have been right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Kind = Literal["package", "target", "toolkit", "stack", "profile"]

UNKNOWN: dict[Kind, str] = {
    "package": "unknown-package",
    "target": "unknown-target",
    "toolkit": "unknown-toolkit",
    "stack": "unknown-stack",
    "profile": "unknown-profile",
}
"""The code of a name that leads nowhere."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that looks most like a wrong one, or None when none looks alike."""
    from difflib import get_close_matches

    plain = {name.lower().replace("_", "-"): name for name in known}
    match = get_close_matches(word.lower().replace("_", "-"), plain, n=1, cutoff=0.6)
    return plain[match[0]] if match else None


def hint(word: str, known: Iterable[str]) -> str:
    """Return `did you mean` with the nearest word, else the list of what is known."""
    names = list(known)
    if match := nearest(word, names):
        return f"did you mean `{match}`?"
    if not names:
        return "there is none yet"
    return f"known: {', '.join(sorted(names))}"
