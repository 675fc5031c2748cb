"""Judge the numbers behind a text: log-probabilities that are none, and a log that says NaN."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from sglforge.smoke.recorded.model import Event, Opinion, Record, fault
from sglforge.smoke.recorded.serverlog import LINE_LIMIT

_NAN = re.compile(
    r"\bnans?\b.{0,80}(?:logit|prob|sampl|hidden|tensor|output|value|attention|draft|cache|detect|found)"
    r"|(?:logit|prob|sampl|hidden|tensor|output|value|attention|draft|cache|detect\w*|found|contain\w*).{0,80}\bnans?\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:no|without|zero|0|not|never)\s+(?:\w+\s+)?nans?\b|nan[ _-]detection|nan_check"
    r"|nans?\s*[:=]\s*(?:0\b|false|none|no\b)"
    r"|(?:sanitize|check|detect\w*)[ _]nan|nan[\w ]*(?:enabled|disabled)|has_nan\s*[:=]\s*false",
    re.IGNORECASE,
)
_LINE = 240
_DETAILS = 12


def judge(record: Record) -> Opinion:
    """Find NaN in the log or in the log-probabilities of sampled tokens."""
    hit = [event for event in record.completions if not_finite(event)]
    lines = (line[:LINE_LIMIT] for line in record.log.splitlines() if "nan" in line.casefold())
    line = next((line.strip() for line in lines if _NAN.search(line) and not _HARMLESS.search(line)), "")
    if not hit and not line:
        return Opinion()
    said = []
    if hit:
        said.append(f"{hit[0].name}: {_first(hit[0])}")
        said += [f"{len(hit)} of {_scored(record.completions)} answers with log-probabilities are hit"]
    if line:
        said.append(f"the log says NaN: {line[:_LINE]}")
    return Opinion(
        findings=(
            fault(
                "nan-logits",
                f"the model computes NaN: {'; '.join(said)}",
                "greedy decoding takes token 0 where there are no numbers (often '!'). Known: draft rows of a cached "
                "prefix that nobody wrote (compare without [speculation], then with disable-radix-cache = true), and "
                "FlashInfer's CUTLASS FP4 GEMM on SM120 (compare with another fp4-gemm-backend)",
                *(f"{event.name}: {_first(event)}" for event in hit[:_DETAILS]),
                subject=hit[0].name if hit else "log",
            ),
        )
    )


def not_finite(event: Event) -> bool:
    """Whether a sampled token of an answer has no finite log-probability."""
    return any(value is None or not math.isfinite(value) for value in event.reply.logprobs)


def _first(event: Event) -> str:
    values = event.reply.logprobs
    place = next(place for place, value in enumerate(values) if value is None or not math.isfinite(value))
    value = values[place]
    count = sum(one is None or not math.isfinite(one) for one in values)
    ids = event.reply.ids
    token = f" (id {ids[place]})" if ids and place < len(ids) else ""
    shown = "null, which is NaN in JSON" if value is None else str(value)
    return f"the logprob of token {place}{token} is {shown}; {count} of {len(values)} are not finite"


def _scored(events: Sequence[Event]) -> int:
    return sum(bool(event.reply.logprobs) for event in events)
