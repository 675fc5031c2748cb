"""How long steps say where they are."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """The signature of ``base.console.Step.progress``."""

    def __call__(self, done: float = 0.0, total: float | None = None, *, note: str = "") -> None: ...


def silent(done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
    """Say nothing."""
