"""The probe of the numbers behind the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglforge.smoke.generation import Generation, greedy
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, failed, inconclusive, passed
from sglforge.smoke.probes.quality import degenerate
from sglforge.smoke.scores import Score, scored, scores
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

_ALONE_TOKENS = 192
_TOGETHER_TOKENS = (16, 24, 32, 48, 64, 80, 96, 112)
_TOGETHER = {True: 8, False: 64}
"""Requests at once on the CPU (True) and elsewhere: on SM120 NaN came with 64 (sgl-project/sglang#20047)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A continuation with its scores; ``where`` names its request."""

    where: str
    text: Generation
    scores: tuple[Score, ...]

    @property
    def tokens(self) -> int:
        """The tokens that came; whether some were lost is for another probe."""
        ids = self.text.output_ids
        return self.text.completion_tokens if ids is None else len(ids)

    @property
    def complete(self) -> bool:
        return len(self.scores) >= self.tokens

    def first_bad(self) -> tuple[int, str] | None:
        """Return the first token whose step had no numbers, and what it had."""
        for place, score in enumerate(self.scores):
            if not score.finite:
                return place, "has no finite log-probability"
            if score.flat:
                return place, "is exactly as likely as every other candidate: its logits were replaced"
        return None


def _ask(subject: Subject) -> Waves:
    prompts = subject.prompts
    together = tuple(
        greedy(f"together-{number}", prompts[number % len(prompts)], _TOGETHER_TOKENS[number % len(_TOGETHER_TOKENS)])
        for number in range(_TOGETHER[subject.exact])
    )
    alone = (greedy("alone", prompts[0], subject.room_for(_ALONE_TOKENS)),)
    return tuple(tuple(scored(request) for request in wave) for wave in (alone, together))


def _judge(observed: Observed) -> Judgement:
    own = _answers(observed.exchanges, observed.generations())
    control = _answers(observed.control, observed.control_generations())
    answers, note = own, ""
    if not all(answer.complete for answer in own):
        if not control or not all(answer.complete for answer in control):
            return _unscored(own)
        answers = control
        note = " on the control server: with speculation this release returns no log-probabilities"
    hit = {answer.where: bad for answer in answers if (bad := answer.first_bad())}
    if hit:
        return _not_finite(answers, hit, note)
    for answer in own:
        fault = degenerate(answer.text)
        if fault and fault.broken:
            return failed(
                "degenerate-output",
                f"request {answer.where}: {fault.message}",
                "the numbers are finite and wrong: weights, scales or a kernel",
                text=answer.text.text,
            )
    count = sum(len(answer.scores) for answer in answers)
    lowest = min((score.logprob for answer in answers for score in answer.scores if score.logprob), default=0.0)
    return passed(
        f"{count} tokens in {len(answers)} texts, {len(answers) - 1} of them at once: every log-probability is finite"
        + note,
        lowest=lowest,
    )


def _answers(exchanges: Sequence[Exchange], generations: dict[str, Generation]) -> list[_Answer]:
    return [
        _Answer(
            where=exchange.request.name,
            text=generations[exchange.request.name],
            scores=scores(exchange.answer.response),
        )
        for exchange in exchanges
        if exchange.request.name in generations
    ]


def _not_finite(answers: Sequence[_Answer], hit: dict[str, tuple[int, str]], note: str) -> Judgement:
    first = next(answer for answer in answers if answer.where in hit)
    place, what = hit[first.where]
    company = "" if "alone" in hit else "; the request that ran alone is not hit: it takes company"
    return failed(
        "nan-logits",
        f"token {place} of request {first.where} (id {first.scores[place].token}) {what}{note}; "
        f"{len(hit)} of {len(answers)} requests are hit{company}",
        "the model computes NaN: its kernels or what they were given; on SM120 see docs/explanation/sm120.md",
        hit={where: place for where, (place, _) in hit.items()},
        text=first.text.text,
    )


def _unscored(answers: Sequence[_Answer]) -> Judgement:
    missing = next(answer for answer in answers if not answer.complete)
    return inconclusive(
        f"the server returned log-probabilities for {len(missing.scores)} of {missing.tokens} tokens "
        f"of request {missing.where}",
        "this release or this kind of speculation has none: try the profile without [speculation]",
    )


LOGPROBS_FINITE = Probe(
    name="logprobs-finite",
    proves="the model computes numbers: no NaN, alone and in a batch",
    needs=(Need.NATIVE,),
    requests=_ask,
    control_requests=_ask,
    judge=_judge,
)
