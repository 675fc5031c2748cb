"""What the probes share that judge by what they saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sglforge.smoke.probes.model import Judgement, inconclusive
from sglforge.smoke.transcript import Observed

Seen = list[Mapping[str, Any]]


def by_looks(judge: Callable[[Observed, Seen], Judgement]) -> Callable[[Observed], Judgement]:
    """Return a judge that gets the looks of its probe: at readiness, before its first request, and later ones.

    Looks that a transcript does not hold as they were written leave the question open.
    """

    def judged(observed: Observed) -> Judgement:
        try:
            return judge(observed, [dict(look) for look in observed.looks])
        except (LookupError, TypeError, ValueError, AttributeError):
            return inconclusive("what was seen of the server is not there, or not as smoke writes it")

    return judged
