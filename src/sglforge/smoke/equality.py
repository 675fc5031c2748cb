"""Whether two continuations of one prompt are equal: exactly on the CPU, up to rounding elsewhere.

Kernels of a GPU round by who else is in the batch, so two right answers may part where two tokens are equally likely.
There the first tokens that differ are both scored after the same prefix, several times, alone and in company: a gap
within the noise of these repeats is a tie, a larger one is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sglforge.smoke.client import Request
from sglforge.smoke.generation import Generation
from sglforge.smoke.scores import number
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

Equality = Literal["same", "tie", "other", "open"]
"""``open``: they part, and nothing tells how likely both were."""

_SCORED = 6
"""Differences that are scored; when these are ties, so are the others."""
_REPEATS = 4
_COMPANY = 3

# Logits are a matrix product in the model's own type: two of them may be apart by a rounding step of numbers of that
# size (16 to 32: 2^-3 for bfloat16, 2^-6 for float16, 2^-19 for float32), and what leads to them rounds before.
_FLOOR: Mapping[str, float] = {"float32": 1e-4, "float16": 0.0625}
_COARSEST = 0.25
# Company that changes a score by more than this does not round, it disturbs.
_MOST_NOISE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two continuations of a prompt; ``name`` is the request's whose answer is in question."""

    name: str
    prompt: str
    got: Generation
    expected: Generation

    @property
    def place(self) -> int | None:
        """The first place where both have a token and not the same one; None where there is none, or no ids."""
        ours, theirs = self.got.output_ids, self.expected.output_ids
        if ours is None or theirs is None:
            return None
        return next((at for at, (one, two) in enumerate(zip(ours, theirs, strict=False)) if one != two), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How much more likely the expected token was than the one that came, in nats, and how sure that is."""

    gap: float
    noise: float

    @property
    def tied(self) -> bool:
        """Whether both tokens were equally likely, as far as rounding lets one tell."""
        return abs(self.gap) <= self.noise


def equality(observed: Observed, pair: Pair) -> Equality:
    """Compare the two continuations of a pair."""
    if pair.got.same_as(pair.expected):
        return "same"
    has_ids = pair.got.output_ids is not None and pair.expected.output_ids is not None
    if observed.subject.exact or (has_ids and pair.place is None):  # one is only the beginning of the other
        return "other"
    gap = gap_of(observed, pair)
    return "open" if gap is None else "tie" if gap.tied else "other"


def unequal(observed: Observed, pairs: Sequence[Pair]) -> list[tuple[Pair, Equality]]:
    """Return the pairs that are not equal, those that are surely so first."""
    judged = [(pair, equality(observed, pair)) for pair in pairs]
    return [one for wanted in ("other", "open") for one in judged if one[1] == wanted]


def ties(observed: Observed, pairs: Sequence[Pair]) -> str:
    """Return the words for pairs that part where two tokens are equally likely; none for none."""
    count = sum(equality(observed, pair) == "tie" for pair in pairs)
    return f"; {count} of {len(pairs)} part where two tokens are equally likely" if count else ""


def gap_of(observed: Observed, pair: Pair) -> Gap | None:
    """Return how likely both tokens were where a pair parts, None where nobody asked.

    The gap is that of the request alone: where company spoils the numbers, it must not speak for itself.
    """
    scores = _scores(observed, pair.name)
    if len(scores) < 2:
        return None
    floor = _FLOOR.get(observed.subject.dtype or "", _COARSEST)
    noise = max(max(scores) - min(scores), floor, observed.noise or 0.0)
    return Gap(gap=scores[0], noise=min(noise, _MOST_NOISE))


def spread_of(observed: Observed) -> float | None:
    """Return by how much equal scores differed in a probe, in nats; None where nothing was scored."""
    spreads = []
    for name in {exchange.request.name.rpartition(":")[2] for exchange in observed.exchanges}:
        scores = _scores(observed, name)
        spreads += [max(scores) - min(scores)] if len(scores) > 1 else []
    return max(spreads, default=None)


def questions(observed: Observed, pairs: Sequence[Pair]) -> tuple[tuple[Request, ...], ...]:
    """Return what to ask next to judge pairs that part: first the ids of their prompts, then the scores."""
    if observed.subject.exact or observed.subject.api != "sglang":
        return ()
    parting = [pair for pair in pairs if pair.place is not None][:_SCORED]
    asked = {exchange.request.name: exchange for exchange in observed.exchanges}
    if missing := [pair for pair in parting if f"ids:{pair.name}" not in asked]:
        return tuple((_ids(pair),) for pair in missing)
    waves: list[tuple[Request, ...]] = []
    for pair in parting:
        ids = _prompt_ids(asked[f"ids:{pair.name}"])
        if ids is not None and f"score-0:{pair.name}" not in asked:
            waves += _scoring(pair, ids, observed.subject)
    return tuple(waves)


def _ids(pair: Pair) -> Request:
    body = {
        "text": pair.prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": 1},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    return Request(name=f"ids:{pair.name}", path="/generate", body=body)


def _scoring(pair: Pair, prompt: Sequence[int], subject: Subject) -> Iterator[tuple[Request, ...]]:
    """Yield the waves that score both tokens: alone, and in the company of other requests."""
    place = pair.place or 0
    ours, theirs = pair.got.output_ids or (), pair.expected.output_ids or ()
    body = {
        "input_ids": [*prompt, *theirs[:place]],
        "sampling_params": {"temperature": 0, "max_new_tokens": 1},
        "return_logprob": True,
        "token_ids_logprob": [theirs[place], ours[place]],
    }
    for repeat in range(_REPEATS):
        request = Request(name=f"score-{repeat}:{pair.name}", path="/generate", body=body)
        company = repeat >= _REPEATS // 2
        yield (request, *(_filler(subject, number) for number in range(_COMPANY))) if company else (request,)


def _filler(subject: Subject, number: int) -> Request:
    prompt = subject.prompts[number % len(subject.prompts)]
    sampling = {"temperature": 0, "max_new_tokens": 4}
    return Request(name=f"company-{number}", path="/generate", body={"text": prompt, "sampling_params": sampling})


def _scores(observed: Observed, name: str) -> list[float]:
    """Return the gaps that were scored, those of the request alone first; nothing where the first is missing."""
    answers = {exchange.request.name: exchange.answer.response for exchange in observed.exchanges if exchange.ok}
    gaps = [_gap(answers.get(f"score-{repeat}:{name}")) for repeat in range(_REPEATS)]
    return [] if gaps[0] is None else [gap for gap in gaps if gap is not None]


def _gap(response: object) -> float | None:
    """Return the log-probability of the expected token less that of the other one."""
    match response:
        case {"meta_info": {"output_token_ids_logprobs": [[[expected, *_], [got, *_]], *_]}}:
            ours, theirs = number(got), number(expected)
            return None if ours is None or theirs is None else theirs - ours
        case _:
            return None


def _prompt_ids(exchange: Exchange) -> list[int] | None:
    match exchange.answer.response:
        case {"meta_info": {"input_token_logprobs": list(rows)}}:
            ids = [row[1] for row in rows if isinstance(row, list) and len(row) > 1 and isinstance(row[1], int)]
            return ids if ids and len(ids) == len(rows) else None
        case _:
            return None
