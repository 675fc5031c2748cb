"""The probe of the speculation threshold: one server above it, below it, and above it again.

The server is its own control: what it drafts for a request alone it would draft for the same request in a batch, if
the batch did not stop it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sglforge.smoke.generation import Generation, greedy
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

SHORT_TOKENS = 64
LONG_TOKENS = 240
_LONG = "long"
# A batch that drafts gets as many right as its requests do alone, one that does not gets hardly any: the middle.
_HALF = 0.5
# The long request is in the batch for the first part only; alone again it drafts for the rest.
_REST = 1 - SHORT_TOKENS / LONG_TOKENS


def _requests(subject: Subject) -> Mapping[str, tuple[str, int]]:
    """Return prompt and tokens by name: one request goes on when the others, at least as many as T, have ended."""
    smoke, above, limit = subject.known, subject.threshold or 0, subject.max_running
    others = min(above + 1, limit - 1) if limit else above + 1
    prompts = [fact.prompt for fact in smoke.facts] or [smoke.json_prompt]
    short = {f"short-{number}": (prompts[number % len(prompts)], SHORT_TOKENS) for number in range(others)}
    return {_LONG: (smoke.long_prompt, LONG_TOKENS), **short}


def _log_evidence(subject: Subject) -> tuple[str, str]:
    """Return what a server logs: the patched one (0.5.9 to 0.5.12) at its start, an adaptive one at each switch."""
    return (
        f"sglforge: speculation threshold {subject.threshold} (",
        f"Switch adaptive runtime state: steps {subject.steps} -> 0",
    )


def _ask_threshold(subject: Subject) -> Waves:
    """Ask together, then each different request alone; texts go on past their end, so that all are busy meanwhile."""
    requests = _requests(subject)
    together = tuple(greedy(f"together-{name}", *asked, ignore_eos=True) for name, asked in requests.items())
    alone = {asked: greedy(f"alone-{name}", *asked, ignore_eos=True) for name, asked in requests.items()}
    return (together, *((request,) for request in alone.values()))


def _judge_threshold(observed: Observed) -> Judgement:
    requests, answers = _requests(observed.subject), observed.generations()
    alone = {asked: answers[f"alone-{name}"] for name, asked in requests.items() if f"alone-{name}" in answers}
    pairs = {name: (answers[f"together-{name}"], alone[asked]) for name, asked in requests.items()}
    for name, (together, expected) in pairs.items():
        if not together.same_as(expected):
            return differs(
                observed.subject,
                "spec-changes-text",
                f"request {name} says something else when drafts stop and begin again on its way: "
                f"{together.first_difference(expected)}",
                "what a step without drafts leaves behind is wrong",
                texts=[expected.text, together.text],
            )
    return _judge_drafts(observed, pairs)


def _judge_drafts(observed: Observed, pairs: Mapping[str, tuple[Generation, Generation]]) -> Judgement:
    short = [pair for name, pair in pairs.items() if name != _LONG]
    stopped, free = (sum(pair[place].right_drafts or 0 for pair in short) for place in (0, 1))
    long, long_free = (one.right_drafts or 0 for one in pairs[_LONG])
    counts = {"above": stopped, "below": free, "back": long, "back_alone": long_free, "requests": len(pairs)}
    if not free or not long_free:
        return inconclusive(
            "no draft is right even below the threshold, so nothing shows whether drafts stop above it",
            "see probe spec-gain",
            **counts,
        )
    if stopped > _HALF * free:
        return failed(
            "threshold-ignored",
            f"{len(pairs)} requests at once still have {stopped} right drafts, alone they have {free}: the server "
            "speculates above its threshold",
            "look for a warning about adaptive speculation, and for max_running_requests, in the log",
            **counts,
        )
    if long < _HALF * _REST * long_free:
        return failed(
            "threshold-sticks",
            f"alone again, the last request of a large batch has {long} right drafts; always alone it has {long_free}: "
            "the server does not begin to speculate again, or its drafts are wrong from then on",
            "the draft's own KV cache must be kept true while the server does not speculate",
            **counts,
        )
    expected = _log_evidence(observed.subject)
    if not any(text in observed.log for text in expected):
        return failed(
            "threshold-not-logged",
            f"the server does what it should, but its log says neither {' nor '.join(map(repr, expected))}",
            "a log that has lost lines, or a release that words them differently",
            **counts,
        )
    return passed(
        f"{len(pairs)} requests at once: {stopped} right drafts instead of {free}; then alone again: {long}", **counts
    )


SPEC_THRESHOLD = Probe(
    name="spec-threshold",
    proves="drafts stop above the threshold and go on below it, and no text changes",
    needs=(Need.NATIVE, Need.EXPECTATIONS, Need.THRESHOLD),
    requests=_ask_threshold,
    judge=_judge_threshold,
)
