"""Probes under concurrency."""

from __future__ import annotations

from sglforge.smoke.client import Request
from sglforge.smoke.generation import Generation, greedy
from sglforge.smoke.probes.model import (
    Judgement,
    Need,
    Probe,
    Waves,
    differs,
    inconclusive,
    passed,
)
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

# Lengths differ, so that requests leave the batch one after the other.
_TOKENS = (8, 16, 24, 32, 48, 64, 80, 96)


def _mixed(subject: Subject, prefix: str) -> tuple[Request, ...]:
    prompts = subject.prompts
    return tuple(
        greedy(f"{prefix}-{number}", prompts[number % len(prompts)], tokens) for number, tokens in enumerate(_TOKENS)
    )


def _ask_alone(subject: Subject) -> Waves:
    return tuple((request,) for request in _mixed(subject, "alone"))


def _ask_parallel(subject: Subject) -> Waves:
    """Ask together while no prefix is cached; without a control server, alone first, undisturbed."""
    together, alone = _mixed(subject, "together"), _ask_alone(subject)
    return (together, *alone) if subject.controlled else (*alone, together)


def _judge_parallel(observed: Observed) -> Judgement:
    answers = observed.generations()
    control = observed.control_generations()
    expected_at = "alone on the control server" if observed.subject.controlled else "alone"
    wrong: list[str] = []
    texts: list[str] = []
    also_alone = 0
    for number in range(len(_TOKENS)):
        together, alone = answers[f"together-{number}"], answers[f"alone-{number}"]
        expected: Generation | None = control.get(f"alone-{number}")
        if expected is None:
            if observed.subject.controlled:
                return inconclusive(
                    "the control server, the same profile without speculation, did not answer everything"
                )
            expected = alone
        if not together.same_as(expected):
            wrong.append(f"request {number}: {together.first_difference(expected)}")
            texts += [expected.text, together.text]
            also_alone += alone.same_as(together)
    if not wrong:
        return passed(
            f"{len(_TOKENS)} requests of {_TOKENS[0]} to {_TOKENS[-1]} tokens: each the same as {expected_at}"
        )
    if also_alone == len(wrong):
        code, why = (
            "spec-changes-text",
            "alone on this server it is the same: speculation changes it, not the company",
        )
    else:
        code, why = "garbage-under-concurrency", "alone it is right: requests disturb each other in a batch"
    return differs(
        observed.subject,
        code,
        f"{len(wrong)} of {len(_TOKENS)} parallel requests differ from what they say {expected_at}: {wrong[0]}; {why}",
        texts=texts,
    )


PARALLEL = Probe(
    name="parallel",
    proves="requests of different lengths in one batch all complete, and none changes another",
    needs=(Need.EXPECTATIONS,),
    requests=_ask_parallel,
    control_requests=_ask_alone,
    judge=_judge_parallel,
)
