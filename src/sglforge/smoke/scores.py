"""Log-probabilities of a continuation's tokens: how they are asked for, and what SGLang answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sglforge.smoke.client import Request

CANDIDATES = 20
"""The most likely tokens that are asked for at each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One token: its log-probability and those of the most likely candidates of its step.

    None stands for everything that is no number: JSON has no NaN, and SGLang 0.5.23 sends null.
    """

    token: int
    logprob: float | None
    candidates: tuple[float | None, ...]

    @property
    def finite(self) -> bool:
        """Whether the step had numbers at all."""
        return self.logprob is not None

    @property
    def flat(self) -> bool:
        """Whether all candidates are exactly as likely as the token: what is left of NaN that was replaced.

        SGLang replaces NaN by one and the same number when it is told to (SGLANG_SANITIZE_NAN_LOGITS from 0.5.14 on,
        --enable-nan-detection before).
        """
        return len(self.candidates) == CANDIDATES and set(self.candidates) == {self.logprob}


def scored(request: Request) -> Request:
    """Return a request for a continuation that also asks for log-probabilities."""
    return replace(request, body={**(request.body or {}), "return_logprob": True, "top_logprobs_num": CANDIDATES})


def scores(response: object) -> tuple[Score, ...]:
    """Return the scores in an answer, none where it has none."""
    match response:
        case {"meta_info": {"output_token_logprobs": list(rows), "output_top_logprobs": list(top)}}:
            return tuple(_score(row, steps) for row, steps in zip(rows, top, strict=False))
        case _:
            return ()


def _score(row: object, top: object) -> Score:
    logprob, token = _pair(row)
    candidates = tuple(_pair(entry)[0] for entry in top) if isinstance(top, list) else ()
    return Score(token=token, logprob=logprob, candidates=candidates)


def number(value: object) -> float | None:
    """Return a number of an answer, None for what is none, or is none that can be reckoned with."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None


def _pair(entry: object) -> tuple[float | None, int]:
    """Return log-probability and token id of SGLang's ``[logprob, token id, text]``."""
    match entry:
        case Sequence() if len(entry) >= 2 and isinstance(entry[1], int):
            return number(entry[0]), entry[1]
        case _:
            return None, -1
