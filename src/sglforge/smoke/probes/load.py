"""Probes under concurrency."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sglforge.smoke.client import Request
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
from sglforge.smoke.probes.quality import degenerate, prompt_ignored
from sglforge.smoke.streams import streaming
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

# Lengths differ, so that requests leave the batch one after the other.
_TOKENS = (8, 16, 24, 32, 48, 64, 80, 96)

_USUAL_BATCH = 8
_MOST_AT_ONCE = 96
_BURST = 3
_BURST_TOKENS = 8
_ABORT_SHORT_TOKENS = 16
_ABORT_TOKENS = 400
# What was aborted is gone at the next step, but a busy machine may take its time for that.
_ABORT_FACTOR = 3.0
_ABORT_S = 2.0
_AFTERWARDS, _AGAIN = "afterwards", "again"


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


def _pairs(observed: Observed) -> list[Pair]:
    """Return each answer in company beside the one alone: on the control server, where there is one."""
    answers = observed.generations()
    alone = observed.control_generations() if observed.subject.controlled else answers
    return [
        Pair(
            name=f"together-{number}",
            prompt=prompt_of(request),
            got=answers[f"together-{number}"],
            expected=alone[f"alone-{number}"],
        )
        for number, request in enumerate(_mixed(observed.subject, "together"))
        if f"together-{number}" in answers and f"alone-{number}" in alone
    ]


def _judge_parallel(observed: Observed) -> Judgement:
    pairs, answers = _pairs(observed), observed.generations()
    if len(pairs) < len(_TOKENS):
        return inconclusive("the control server, the same profile without speculation, did not answer everything")
    expected_at = "alone on the control server" if observed.subject.controlled else "alone"
    wrong = unequal(observed, pairs)
    texts = [(pair.prompt, pair.got) for pair in pairs]
    if not wrong and not any(degenerate(one) for _, one in texts) and (ignored := prompt_ignored(texts)):
        return ignored
    if not wrong:
        return passed(
            f"{len(_TOKENS)} requests of {_TOKENS[0]} to {_TOKENS[-1]} tokens: each the same as {expected_at}"
            + ties(observed, pairs)
        )
    alone = {pair.name: answers.get(pair.name.replace("together", "alone")) for pair in pairs}
    alone_too = [pair for pair, _ in wrong if (same := alone[pair.name]) and pair.got.same_as(same)]
    if len(alone_too) == len(wrong):
        code, why = (
            "spec-changes-text",
            "alone on this server it is the same: speculation changes it, not the company",
        )
    else:
        code, why = "garbage-under-concurrency", "alone it is right: requests disturb each other in a batch"
    first, equality = wrong[0]
    return differs(
        equality,
        code,
        f"{len(wrong)} of {len(_TOKENS)} parallel requests differ from what they say {expected_at}: request "
        f"{first.name}: {first.got.first_difference(first.expected)}; {why}",
        texts=[text for pair, _ in wrong for text in (pair.expected.text, pair.got.text)],
    )


PARALLEL = Probe(
    name="parallel",
    proves="requests of different lengths in one batch all complete, and none changes another",
    requests=_ask_parallel,
    control_requests=_ask_alone,
    follow_up=lambda observed: questions(observed, _pairs(observed)),
    judge=_judge_parallel,
)


def _burst_size(subject: Subject) -> int:
    return min(_MOST_AT_ONCE, _BURST * (subject.max_running or _USUAL_BATCH))


def _ask_burst(subject: Subject) -> Waves:
    """Ask each prompt alone, then all at once, over and over."""
    prompts = subject.prompts
    alone = (greedy(f"alone-{n}", prompt, _BURST_TOKENS, ignore_eos=True) for n, prompt in enumerate(prompts))
    burst = (
        greedy(f"burst-{number}", prompts[number % len(prompts)], _BURST_TOKENS, ignore_eos=True)
        for number in range(_burst_size(subject))
    )
    return (*((request,) for request in alone), tuple(burst))


def _burst_pairs(observed: Observed) -> list[Pair]:
    count = len(observed.subject.prompts)
    wanted = ((f"burst-{n}", f"alone-{n % count}") for n in range(_burst_size(observed.subject)))
    return _different(observed, wanted)


def _different(observed: Observed, wanted: Iterable[tuple[str, str]]) -> list[Pair]:
    """Return answers beside those that they must equal; of equal answers to one prompt the first only."""
    answers = observed.generations()
    asked = {exchange.request.name: prompt_of(exchange.request) for exchange in observed.exchanges}
    pairs: dict[object, Pair] = {}
    for name, other in wanted:
        if name in answers and other in answers:
            pair = Pair(name=name, prompt=asked[name], got=answers[name], expected=answers[other])
            pairs.setdefault((pair.prompt, pair.got.text, pair.got.output_ids, pair.expected.output_ids), pair)
    return list(pairs.values())


def _judge_burst(observed: Observed) -> Judgement:
    answers = observed.generations()
    burst = [one for one in observed.exchanges if one.request.name.startswith("burst-")]
    for exchange in observed.exchanges:
        if exchange not in burst and exchange.request.name not in answers:
            return _not_alone(exchange)
    if not burst:
        return inconclusive("the burst was not sent", "judge a transcript as smoke wrote it")
    lost = [exchange for exchange in burst if exchange.request.name not in answers]
    count = len(burst)
    if lost:
        statuses = ", ".join(sorted({str(exchange.status) for exchange in lost}))
        return failed(
            "requests-lost",
            f"{len(lost)} of {count} requests that were sent at once got no answer ({statuses}; health is "
            f"{observed.health}): {', '.join(exchange.request.name for exchange in lost[:8])}",
            "more requests than the server decodes at once must wait, not get lost",
        )
    short = [
        name
        for name, one in answers.items()
        if name.startswith("burst-") and observed.subject.api == "sglang" and one.completion_tokens != _BURST_TOKENS
    ]
    if short:
        return failed(
            "tokens-lost",
            f"{len(short)} of {count} answers lack tokens: {', '.join(short[:8])} of {_BURST_TOKENS} each",
        )
    pairs = _burst_pairs(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "garbage-under-concurrency",
            f"of {count} requests at once {pair.name} says something else than the same request alone: "
            f"{pair.got.first_difference(pair.expected)}",
            "if probe parallel passes, only large batches are wrong: their kernels, graphs or the rows of the cache",
            texts=[pair.expected.text, pair.got.text],
        )
    longest = max(exchange.answer.seconds for exchange in burst)
    return passed(
        f"{count} requests at once, all answered as alone; the last after {longest:.1f} s" + ties(observed, pairs),
        requests=count,
    )


def _not_alone(exchange: Exchange) -> Judgement:
    return failed(
        "decode-hang" if exchange.status == "timeout" else "request-failed",
        f"request {exchange.request.name} was answered with {exchange.status}: {str(exchange.answer.response)[:200]}",
        "see the probes before this one",
    )


def _places(subject: Subject) -> int:
    return min(_MOST_AT_ONCE, subject.max_running or _USUAL_BATCH)


def _short(subject: Subject, name: str) -> tuple[Request, ...]:
    """Return as many short requests as fit."""
    prompts = subject.prompts
    return tuple(
        greedy(f"{name}-{number}", prompts[number % len(prompts)], _ABORT_SHORT_TOKENS, ignore_eos=True)
        for number in range(_places(subject))
    )


def _left(subject: Subject, name: str) -> tuple[Request, ...]:
    """Return as many long streams as fit, each left after two events."""
    prompts, tokens = subject.prompts, subject.room_for(_ABORT_TOKENS)
    return tuple(
        replace(
            streaming(greedy(f"{name}-{number}", prompts[number % len(prompts)], tokens, ignore_eos=True)),
            hang_up_after=2,
        )
        for number in range(_places(subject))
    )


def _ask_abort(subject: Subject) -> Waves:
    """Answer as many as fit; hang up on as many long streams; answer as many again."""
    return _short(subject, "before"), _left(subject, "left"), _short(subject, _AFTERWARDS)


def _more_abort(observed: Observed) -> Waves:
    """Hang up a second time where others had to wait, for a machine may have been busy."""
    if not _slowest(observed, _AGAIN) and _slowest(observed, _AFTERWARDS) > _bound(observed):
        return _left(observed.subject, "left-again"), _short(observed.subject, _AGAIN)
    return questions(observed, _abort_pairs(observed))


def _abort_pairs(observed: Observed) -> list[Pair]:
    """Return each answer after the aborts beside the one to the same request before them."""
    numbers = range(_places(observed.subject))
    return _different(observed, ((f"{name}-{n}", f"before-{n}") for name in (_AFTERWARDS, _AGAIN) for n in numbers))


def _slowest(observed: Observed, name: str) -> float:
    """Return how long the slowest request of a wave took, 0 where it was not sent."""
    return max((e.answer.seconds for e in observed.exchanges if e.request.name.startswith(f"{name}-")), default=0.0)


def _bound(observed: Observed) -> float:
    return _ABORT_FACTOR * _slowest(observed, "before") + _ABORT_S


def _judge_abort(observed: Observed) -> Judgement:
    answers = observed.generations()
    lost = [one for one in observed.exchanges if not one.request.stream and one.request.name not in answers]
    if lost and lost[0].request.name.startswith("before"):
        return failed(
            "request-failed",
            f"before anybody hung up, request {lost[0].request.name} was answered with {lost[0].status}: "
            f"{str(lost[0].answer.response)[:200]}",
            "see the probes before this one",
        )
    if lost:
        return failed(
            "abort-leaks",
            f"after clients have hung up, {len(lost)} requests get no answer ({lost[0].status}; health is "
            f"{observed.health})",
            "the server goes on with requests that nobody waits for, and keeps their places",
        )
    before, after = _slowest(observed, "before"), _slowest(observed, _AFTERWARDS)
    if not after:
        return failed(
            "abort-leaks",
            f"a stream that its client leaves was not even begun (health is {observed.health})",
            "the server's streams are silent: see probe stream",
        )
    after = min(after, _slowest(observed, _AGAIN) or after)
    if after > _bound(observed):
        return failed(
            "abort-leaks",
            f"after clients have hung up, the same requests take {after:.1f} s instead of {before:.1f} s",
            "the server goes on with requests that nobody waits for: they take the places of others",
            before=before,
            after=after,
        )
    pairs = _abort_pairs(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "garbage-under-concurrency",
            f"after an abort the same request says something else ({pair.name}): "
            f"{pair.got.first_difference(pair.expected)}",
            "what an aborted request leaves behind is read by others: its rows of the cache, its place in a batch",
            texts=[pair.expected.text, pair.got.text],
        )
    return passed(
        f"after hanging up on long requests, others say the same and take {after:.1f} s ({before:.1f} s before)"
        + ties(observed, pairs)
    )


BURST = Probe(
    name="burst",
    proves="more requests than fit are all answered, each whole and as it is answered alone",
    requests=_ask_burst,
    follow_up=lambda observed: questions(observed, _burst_pairs(observed)),
    judge=_judge_burst,
    judges_silence=True,
)
ABORT = Probe(
    name="abort",
    proves="a client that hangs up leaves nothing behind that others would wait for or read",
    needs=(Need.NATIVE,),
    requests=_ask_abort,
    follow_up=_more_abort,
    judge=_judge_abort,
    judges_silence=True,
)
