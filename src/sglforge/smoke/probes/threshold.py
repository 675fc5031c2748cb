"""The probe of the speculation threshold: one server below it, at it, above it, and below it again.

The server is its own control: what it drafts for a request alone it would draft for the same request in a batch, if
the batch did not stop it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, pairwise

from sglforge.smoke.client import Request
from sglforge.smoke.equality import Pair, questions, ties, unequal
from sglforge.smoke.generation import Generation, greedy, prompt_of
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, differs, failed, inconclusive, passed
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

SHORT_TOKENS = 64
LONG_TOKENS = 240
_LONG = "long"
# A batch that drafts gets as many right as its requests do alone, one that does not gets hardly any: the middle.
_HALF = 0.5
# The long request is in the batch for the first part only; alone again it drafts for the rest.
_REST = 1 - SHORT_TOKENS / LONG_TOKENS
# With more right drafts than this share of those alone it missed at least half of the time that the batch was large.
_APART = 1 - SHORT_TOKENS / LONG_TOKENS / 2
# Of these a sound server has nearly all right (125 of 126 on 0.5.23), one whose draft lost its KV rows under half (58).
_BACK = 0.75
# Without drafts a request needs as many steps as it has tokens: it may be slower by what drafts had gained, and this
# often again, which is far from what two waves of equal work differ by and near to what graphs that are missing cost.
_CLIFF = 3.0
# Requests that a busy machine sends one after the other are no batch, and other work makes any wave slow: a cliff is
# there when two of up to three rounds have it, and drafts go on above the threshold when they do in all three.
_ROUNDS = ("at-once", "again", "once-more")
_TOGETHER = ("together", "together-2", "together-3")


def _requests(subject: Subject) -> Mapping[str, tuple[str, int]]:
    """Return prompt and tokens by name: one request goes on when the others, at least as many as T, have ended."""
    above, limit = subject.threshold or 0, subject.max_running
    others = min(above + 1, limit - 1) if limit else above + 1
    prompts = zip(range(others), cycle(_short_prompts(subject)), strict=False)
    short = {f"short-{number}": (prompt, SHORT_TOKENS) for number, prompt in prompts}
    return {_LONG: (subject.long_prompt, LONG_TOKENS), **short}


def _large(subject: Subject, prefix: str) -> tuple[Request, ...]:
    return tuple(greedy(f"{prefix}-{name}", *asked, ignore_eos=True) for name, asked in _requests(subject).items())


def _short_prompts(subject: Subject) -> list[str]:
    return [fact.prompt for fact in subject.known.facts] or [subject.known.json_prompt]


def _log_evidence(subject: Subject) -> tuple[str, str]:
    """Return what a server logs: the patched one (0.5.9 to 0.5.12) at its start, an adaptive one at each switch."""
    return (
        f"sglforge: speculation threshold {subject.threshold} (",
        f"Switch adaptive runtime state: steps {subject.steps} -> 0",
    )


def _wave(subject: Subject, count: int, name: str) -> tuple[Request, ...]:
    """Return as many short requests, to be sent at once; texts go on past their end, so that all are busy."""
    return tuple(
        greedy(f"{name}-{number}", prompt, SHORT_TOKENS, ignore_eos=True)
        for number, prompt in zip(range(count), cycle(_short_prompts(subject)), strict=False)
    )


def _around(subject: Subject) -> tuple[int, ...]:
    """Return how many requests are sent at once: one less than the threshold, as many, one more."""
    at = subject.threshold or 0
    return tuple(count for count in (at - 1, at, at + 1) if 1 <= count <= (subject.max_running or at + 1))


def _ask(subject: Subject) -> Waves:
    """Ask together, then each different request alone, then as many at once as are around the threshold."""
    requests = _requests(subject)
    together = _large(subject, _TOGETHER[0])
    alone = {asked: greedy(f"alone-{name}", *asked, ignore_eos=True) for name, asked in requests.items()}
    around = (_wave(subject, count, f"{count}-at-once") for count in _around(subject))
    return (together, *((request,) for request in alone.values()), *around)


def _follow_up(observed: Observed) -> Waves:
    """Look a second time where a busy machine may have been the reason; then score what differs."""
    answers = observed.generations()
    for name, again in pairwise(_TOGETHER):
        if (_ignored(observed, name) or _apart(observed, name)) and f"{again}-{_LONG}" not in answers:
            return (_large(observed.subject, again),)
    around, rounds = _around(observed.subject), _rounds(observed)
    slow = sum(_slower(observed, name) is not None for name in rounds)
    if slow == 1 and len(rounds) < len(_ROUNDS):
        return tuple(_wave(observed.subject, count, f"{count}-{_ROUNDS[len(rounds)]}") for count in around)
    return questions(observed, _pairs(observed))


def _pairs(observed: Observed) -> list[Pair]:
    """Return every answer beside the one of the same request alone."""
    answers, requests = observed.generations(), _requests(observed.subject)
    alone = {asked: answers[f"alone-{name}"] for name, asked in requests.items() if f"alone-{name}" in answers}
    asked = [(f"{prefix}-{name}", wanted) for prefix in _TOGETHER for name, wanted in requests.items()]
    for count in _around(observed.subject):
        wave = _wave(observed.subject, count, f"{count}-at-once")
        asked += [(request.name, (prompt_of(request), SHORT_TOKENS)) for request in wave]
    return [
        Pair(name=name, prompt=wanted[0], got=answers[name], expected=alone[wanted])
        for name, wanted in asked
        if name in answers and wanted in alone
    ]


def _judge(observed: Observed) -> Judgement:
    pairs = _pairs(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "spec-changes-text",
            f"request {pair.name} says something else when drafts stop and begin again around it: "
            f"{pair.got.first_difference(pair.expected)}",
            "what a step without drafts leaves behind is wrong",
            texts=[pair.expected.text, pair.got.text],
        )
    if cliff := _cliff(observed):
        return cliff
    return _judge_drafts(observed, pairs)


def _judge_drafts(observed: Observed, pairs: list[Pair]) -> Judgement:
    names = _requests(observed.subject)
    batches = {one: [pair for pair in pairs if pair.name in {f"{one}-{name}" for name in names}] for one in _TOGETHER}
    whole = [one for one, batch in batches.items() if len(batch) == len(names)]
    together = [one for one in whole if not _apart(observed, one)]
    large = min((batches[one] for one in together or whole), key=_drafted, default=[])
    if not large:
        return inconclusive("not every request was sent", "judge a transcript as smoke wrote it")
    last, short = large[0], large[1:]
    stopped, free = _drafted(large), _right([pair.expected for pair in short])
    long, long_free = _right([last.got]), _right([last.expected])
    counts = {"above": stopped, "below": free, "back": long, "back_alone": long_free, "requests": len(large)}
    if not free or not long_free:
        return inconclusive(
            "no draft is right even below the threshold, so nothing shows whether drafts stop above it",
            "see probe spec-gain",
            **counts,
        )
    if stopped > _HALF * free:
        return failed(
            "threshold-ignored",
            f"{len(large)} requests at once still have {stopped} right drafts, alone they have {free}: the server "
            "speculates above its threshold",
            "look for a warning about adaptive speculation, and for max_running_requests, in the log",
            **counts,
        )
    if not together:
        return inconclusive(
            f"the long request was never in a large batch for long: {long} right drafts, alone {long_free}",
            "measure on a machine with less to do: requests that are sent together must arrive together",
            **counts,
        )
    if long < _BACK * _REST * long_free:
        return failed(
            "threshold-sticks",
            f"alone again, the last request of a large batch has {long} right drafts; always alone it has {long_free}: "
            "the server does not begin to speculate again, or its drafts are wrong from then on",
            "the draft's own KV cache must be kept true while the server does not speculate",
            **counts,
        )
    expected = _log_evidence(observed.subject)
    if observed.subject.own and not any(text in observed.log for text in expected):
        return failed(
            "threshold-not-logged",
            f"the server does what it should, but its log says neither {' nor '.join(map(repr, expected))}",
            "a log that has lost lines, or a release that words them differently",
            **counts,
        )
    rounds = _rounds(observed)
    slow = [name for name in rounds if _slower(observed, name)]
    counted = next((name for name in rounds if name not in slow), _ROUNDS[0])
    waves = {str(count): round(_seconds(observed, count, counted), 2) for count in _around(observed.subject)}
    said = ", ".join(f"{count} in {seconds} s" for count, seconds in waves.items())
    once = f", but once of {len(rounds)} times" if slow else ""
    return passed(
        f"{len(large)} requests at once: {stopped} right drafts instead of {free}; then alone again: {long}; "
        f"no cliff{once} ({said} at once){ties(observed, pairs)}",
        **counts,
        seconds=waves,
    )


def _drafted(wave: list[Pair]) -> int:
    """Return the right drafts of the short requests of a large batch; its long one comes first."""
    return _right([pair.got for pair in wave[1:]])


def _ignored(observed: Observed, prefix: str) -> bool:
    """Say whether the requests of a large batch had as many right drafts as they have alone."""
    answers, requests = observed.generations(), _requests(observed.subject)
    alone = {wanted: answers.get(f"alone-{name}") for name, wanted in requests.items()}
    asked = [(answers.get(f"{prefix}-{name}"), alone[wanted]) for name, wanted in requests.items() if name != _LONG]
    pairs = [(got, expected) for got, expected in asked if got and expected]
    drafted, free = (_right([pair[place] for pair in pairs]) for place in (0, 1))
    return len(pairs) == len(asked) and drafted > _HALF * free


def _apart(observed: Observed, prefix: str) -> bool:
    """Say whether the long request was alone while it should have been in a large batch: it drafted all the time."""
    answers = observed.generations()
    got, free = answers.get(f"{prefix}-{_LONG}"), answers.get(f"alone-{_LONG}")
    if got is None or free is None:
        return False
    return _right([got]) > _APART * _right([free])


def _right(answers: list[Generation]) -> int:
    return sum(one.right_drafts or 0 for one in answers)


def _cliff(observed: Observed) -> Judgement | None:
    """Return the judgement on a cliff that was there twice, None where there is none."""
    slower = {name: factor for name in _rounds(observed) if (factor := _slower(observed, name))}
    if len(slower) < 2:
        return None
    at, above = _around(observed.subject)[-2:]
    seconds = {count: min(_seconds(observed, count, name) for name in slower) for count in (at, above)}
    return failed(
        "spec-threshold-regression",
        f"above the threshold it is {min(slower.values()):.1f} times slower: {at} requests at once take "
        f"{seconds[at]:.1f} s, {above} take {seconds[above]:.1f} s, more than the drafts that are missing explain",
        "decoding without drafts runs without graphs, or does work for drafts that nobody uses",
        seconds={str(count): round(value, 2) for count, value in seconds.items()},
    )


def _rounds(observed: Observed) -> list[str]:
    """Return the rounds of waves around the threshold that were sent."""
    around = _around(observed.subject)
    return [name for name in _ROUNDS if around and _seconds(observed, around[0], name)]


def _slower(observed: Observed, name: str) -> float | None:
    """Return how much slower each request is above the threshold than at it, where that is more than drafts explain."""
    around = _around(observed.subject)
    if len(around) < 2 or around[-1] != (observed.subject.threshold or 0) + 1:
        return None
    at, above = (_seconds(observed, count, name) for count in around[-2:])
    wave = [one for called, one in observed.generations().items() if called.startswith(f"{around[-2]}-{name}-")]
    steps = sum(one.verify_steps or one.completion_tokens for one in wave)
    gain = sum(one.completion_tokens for one in wave) / steps if steps else 1.0
    share = around[-1] / around[-2]
    return above / at if at and above > _CLIFF * gain * share * at else None


def _seconds(observed: Observed, count: int, name: str) -> float:
    """Return how long a wave took, 0 where it was not sent."""
    prefix = f"{count}-{name}-"
    return max((one.answer.seconds for one in observed.exchanges if one.request.name.startswith(prefix)), default=0.0)


THRESHOLD_WAVE = Probe(
    name="threshold-wave",
    proves="drafts stop above the threshold and go on below it; no request is lost, no text changes, no cliff",
    needs=(Need.NATIVE, Need.EXPECTATIONS, Need.THRESHOLD, Need.CROSSING),
    requests=_ask,
    follow_up=_follow_up,
    judge=_judge,
)
