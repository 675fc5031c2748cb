"""Probes of speculation: the draft is worth something, and it never changes what is said."""

from __future__ import annotations

from sglforge.smoke.equality import Pair, questions, ties, unequal
from sglforge.smoke.generation import greedy, prompt_of
from sglforge.smoke.probes.model import (
    Judgement,
    Need,
    Probe,
    Waves,
    differs,
    failed,
    inconclusive,
    passed,
)
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

LONG_TOKENS = 240
MIN_TOKENS = 200
# Draft tokens confirmed per verification: a draft of another model confirms about 0.02, one that fits 1 to 3.
MIN_CORRECT_PER_STEP = 0.2
_PARITY_TOKENS = 48


def _ask_long(subject: Subject) -> Waves:
    return ((greedy("long", subject.long_prompt, LONG_TOKENS),),)


def _judge_gain(observed: Observed) -> Judgement:
    one = observed.generations()["long"]
    steps, correct = one.verify_steps, one.right_drafts
    if one.completion_tokens < MIN_TOKENS:
        return inconclusive(
            f"the model stopped after {one.completion_tokens} tokens; it takes {MIN_TOKENS} to judge a draft",
            "give the profile a long-prompt that this model continues for longer",
        )
    if steps is None and correct is None:
        return failed(
            "spec-no-gain",
            "the answer says nothing of speculation: the server runs without the profile's draft",
            "look for a warning about speculation in the log: unsupported combinations are switched off",
        )
    steps = steps or 0
    length = one.completion_tokens / steps if steps else 0.0
    correct = correct or 0
    evidence = {
        "tokens": one.completion_tokens,
        "verify_steps": steps,
        "correct_drafts": correct,
        "accept_length": length,
    }
    if not correct or correct < MIN_CORRECT_PER_STEP * steps:
        return failed(
            "spec-no-gain",
            f"the draft does nothing: {correct} draft tokens were right in {steps} verifications over "
            f"{one.completion_tokens} tokens (accept length {length:.2f}; 1.0 is no draft at all)",
            "the draft's weights were not loaded, or it was made for another model; the text is not affected",
            **evidence,
        )
    return passed(f"{correct} draft tokens right in {steps} verifications (accept length {length:.2f})", **evidence)


def _ask_parity(subject: Subject) -> Waves:
    smoke = subject.known
    short = [(greedy(f"fact-{n}", fact.prompt, _PARITY_TOKENS),) for n, fact in enumerate(smoke.facts)]
    return (*_ask_long(subject), *short)


def _parity(observed: Observed) -> list[Pair]:
    speculative = {e.request.name: e for e in observed.exchanges}
    answers = observed.generations()
    return [
        Pair(name=name, prompt=prompt_of(speculative[name].request), got=answers[name], expected=expected)
        for name, expected in observed.control_generations().items()
        if name in answers
    ]


def _judge_parity(observed: Observed) -> Judgement:
    pairs = _parity(observed)
    if len(pairs) < sum(map(len, _ask_parity(observed.subject))):
        return inconclusive("the control server, the same profile without speculation, did not answer everything")
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "spec-changes-text",
            f"speculation changes the text of {pair.name}: {pair.got.first_difference(pair.expected)}",
            "verification accepts what the model would not say, or its KV rows are wrong",
            texts=[pair.expected.text, pair.got.text],
        )
    tokens = sum(pair.expected.completion_tokens for pair in pairs)
    return passed(f"the same {tokens} tokens in {len(pairs)} texts with and without speculation{ties(observed, pairs)}")


SPEC_GAIN = Probe(
    name="spec-gain",
    proves="the draft is loaded and fits the model",
    needs=(Need.NATIVE, Need.SPECULATION),
    requests=_ask_long,
    judge=_judge_gain,
)
SPEC_PARITY = Probe(
    name="spec-parity",
    proves="speculation says what the model alone says",
    needs=(Need.OWN, Need.SPECULATION, Need.EXPECTATIONS),
    requests=_ask_parity,
    control_requests=_ask_parity,
    follow_up=lambda observed: questions(observed, _parity(observed)),
    judge=_judge_parity,
)
