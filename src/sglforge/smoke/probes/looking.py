"""What the probes share that judge by what they saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sglforge.smoke.probes.model import Judgement, inconclusive
from sglforge.smoke.transcript import Observed

Seen = TypeVar("Seen")


def by_looks(
    kind: type[Seen], judge: Callable[[Observed, Sequence[Seen]], Judgement], *, least: int
) -> Callable[[Observed], Judgement]:
    """Return a judge that gets the looks of its probe: at readiness, before its first request, and later ones.

    Looks that a transcript does not hold as they were written leave the question open.

    Args:
        kind: A dataclass; a look is its document.
        judge: Judges at least ``least`` looks.
        least: How many there must be.
    """

    def judged(observed: Observed) -> Judgement:
        from pydantic import TypeAdapter, ValidationError

        try:
            looks = TypeAdapter(list[kind]).validate_python([dict(look) for look in observed.looks])  # type: ignore[valid-type]
        except ValidationError:
            looks = []
        if len(looks) < least:
            return inconclusive("what was seen of the server is not there, or not as smoke writes it")
        return judge(observed, looks)

    return judged
