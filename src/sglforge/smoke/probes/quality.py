"""The probe of text that is no text."""

from __future__ import annotations

from collections.abc import Sequence

from sglforge.smoke.degeneration import Degeneration, degeneration
from sglforge.smoke.generation import Generation, excerpt, greedy, prompt_of
from sglforge.smoke.probes.model import Judgement, Probe, Waves, failed, inconclusive, passed
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

_TOKENS = 240
_TEXTS = 4
# Less shows nothing: answers of one word each are sound, and not long.
_FEWEST_TOKENS = 16
_FEWEST_PROMPTS = 3
_SAME_TOKENS = 8


def _ask(subject: Subject) -> Waves:
    tokens = subject.room_for(_TOKENS)
    return (tuple(greedy(f"text-{number}", prompt, tokens) for number, prompt in enumerate(subject.prompts[:_TEXTS])),)


def degenerate(one: Generation) -> Degeneration | None:
    """Return what is degenerate in a continuation, if anything is."""
    return degeneration(one.text, token_ids=one.output_ids, finish=one.finish)


def prompt_ignored(answers: Sequence[tuple[str, Generation]]) -> Judgement | None:
    """Return the failure of a server that answers all prompts alike, None where it does not.

    ``answers`` are pairs of a prompt and what came; of texts of different lengths their beginnings are compared.
    """
    if len({prompt for prompt, _ in answers}) < _FEWEST_PROMPTS:
        return None
    texts = sorted((one.text for _, one in answers), key=len)
    if min(one.completion_tokens for _, one in answers) < _SAME_TOKENS or not texts[0].strip():
        return None
    if not all(text.startswith(texts[0]) for text in texts):
        return None
    return failed(
        "prompt-ignored",
        f"{len({prompt for prompt, _ in answers})} different prompts get one and the same text: {excerpt(texts[0])}",
        "the prompt does not reach the model, or something in front of it answers by itself",
        text=texts[-1],
    )


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
    prompts = {exchange.request.name: prompt_of(exchange.request) for exchange in observed.exchanges}
    if ignored := prompt_ignored([(prompts[name], one) for name, one in answers.items()]):
        return ignored
    tokens = sum(one.completion_tokens for one in answers.values())
    if tokens < _FEWEST_TOKENS:
        return inconclusive(f"{len(answers)} texts of {tokens} tokens altogether are too short to be judged")
    return passed(f"{len(answers)} texts of {tokens} tokens, none of them degenerate")


DEGENERATE = Probe(
    name="degenerate",
    proves="long texts are texts: nothing repeats without end, nothing is unprintable or mixed without sense",
    requests=_ask,
    judge=_judge,
)
