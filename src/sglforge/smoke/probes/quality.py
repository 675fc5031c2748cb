"""The probe of text that is no text."""

from __future__ import annotations

from sglforge.smoke.degeneration import Degeneration, degeneration
from sglforge.smoke.generation import Generation, greedy
from sglforge.smoke.probes.model import Judgement, Probe, Waves, failed, inconclusive, passed
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

_TOKENS = 240
_TEXTS = 4


def _ask(subject: Subject) -> Waves:
    tokens = subject.room_for(_TOKENS)
    return (tuple(greedy(f"text-{number}", prompt, tokens) for number, prompt in enumerate(subject.prompts[:_TEXTS])),)


def degenerate(one: Generation) -> Degeneration | None:
    """Return what is degenerate in a continuation, if anything is."""
    return degeneration(one.text, token_ids=one.output_ids, finish=one.finish)


def _judge(observed: Observed) -> Judgement:
    answers = observed.generations()
    found = {name: fault for name, one in answers.items() if (fault := degenerate(one))}
    for name, fault in sorted(found.items(), key=lambda entry: not entry[1].broken):
        said = f"{len(found)} of {len(answers)} texts: {name}: {fault.message}"
        if fault.broken:
            return failed(
                "degenerate-output",
                said,
                "the weights, a scale or a kernel: compare with another attention backend and without [speculation]",
                text=answers[name].text,
            )
        return inconclusive(
            said, "greedy decoding of a small model may do this: read the text", text=answers[name].text
        )
    tokens = sum(one.completion_tokens for one in answers.values())
    return passed(f"{len(answers)} texts of {tokens} tokens, none of them degenerate")


DEGENERATE = Probe(
    name="degenerate",
    proves="long texts are texts: nothing repeats without end, nothing is unprintable or mixed without sense",
    requests=_ask,
    judge=_judge,
)
