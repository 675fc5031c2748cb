"""The words of a command line as they may be shown and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def shown(words: Iterable[str]) -> tuple[str, ...]:
    """Return words without what may be secret in their addresses: users, passwords, queries."""
    return tuple(_ADDRESS.sub(_redacted, word) if "://" in word else word for word in words)


def _redacted(match: re.Match[str]) -> str:
    from sglforge.base.download import redact  # not needed by most calls

    return redact(match[0])
