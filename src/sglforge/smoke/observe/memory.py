"""Whether something stays level while a server does the same work again and again: bytes, or tokens in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

WARM_UP_ROUNDS = 1
# Thirds of three: a median of three ignores one outlier on either side.
LEAST_SAMPLES = 9
# The sum of RSS of a clean SGLang 0.5.23 on CPU (four processes) drifts by 0.7 MiB over 30 rounds of four requests, in
# steps; ten times that is no false alarm, and one leaked cache block of a real model is more after a few rounds.
TOLERANCE_BYTES = 8 * 2**20
# Steps of allocators grow with the server: more processes, more threads, larger buffers.
TOLERANCE_RELATIVE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """What a series of samples says; amounts are in the unit of the samples.

    ``growth`` is the difference between the medians of the last and the first third after warm-up, ``allowed`` what it
    may be, ``per_round`` the growth for each round between the middles of the thirds. All are None when there are
    `too-few` samples to tell.
    """

    verdict: Literal["steady", "grows", "too-few"]
    samples: tuple[float, ...]
    warm_up: int
    growth: float | None = None
    allowed: float | None = None
    per_round: float | None = None


def steadiness(
    samples: Sequence[float],
    *,
    warm_up: int = WARM_UP_ROUNDS,
    absolute: float = TOLERANCE_BYTES,
    relative: float = TOLERANCE_RELATIVE,
) -> Steadiness:
    """Say whether samples, one after each round of the same work, stay level.

    Only growth counts: memory that is given back is no fault. Take RSS, not PSS, which changes when another
    server that maps the same files starts or ends.

    Args:
        samples: One value after each round, in the order of the rounds.
        warm_up: Rounds at the start that do not count: what is made once is made there.
        absolute: Growth that is allowed, in the unit of the samples; 0 for tokens, of which none may be lost.
        relative: Growth that is allowed, as a share of the first third's median; the larger of both holds.
    """
    counted = samples[warm_up:]
    third = len(counted) // 3
    if len(counted) < LEAST_SAMPLES:
        return Steadiness(verdict="too-few", samples=tuple(samples), warm_up=warm_up)
    first, last = median(counted[:third]), median(counted[-third:])
    growth, allowed = last - first, max(absolute, relative * abs(first))
    return Steadiness(
        verdict="grows" if growth > allowed else "steady",
        samples=tuple(samples),
        warm_up=warm_up,
        growth=growth,
        allowed=allowed,
        per_round=growth / (len(counted) - third),
    )
