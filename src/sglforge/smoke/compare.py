"""Compare two smoke tests by their transcripts: verdicts, texts, speed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sglforge.errors import Finding, Severity
from sglforge.smoke.conditions import Conditions, conditions_of
from sglforge.smoke.equality import Equality, Pair, equality
from sglforge.smoke.generation import Generation, generation, prompt_of
from sglforge.smoke.judging import judge_again
from sglforge.smoke.measure import Figure
from sglforge.smoke.transcript import Exchange, Observed, Transcript

SpeedWord = Literal["faster", "same", "slower", "not comparable"]
_WORDS: Mapping[str, SpeedWord] = {"higher": "faster", "same": "same", "lower": "slower"}
# Options that differ from run to run, or name a file whose content is compared.
_NOT_COMPARED = {"--port", "--model-path", "--speculative-draft-model-path", "--speculative-adaptive-config"}
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """A probe that says something else than before."""

    probe: str
    before: str
    after: str
    message: str

    @property
    def worse(self) -> bool:
        """Whether it passed and fails now."""
        return (self.before, self.after) == ("pass", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPair:
    """The same request in both tests, with both continuations; ``pair.expected`` is the baseline's."""

    probe: str
    server: str
    request: str
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChange:
    """A text that is another one; ``how`` is the word of the judge of equality, which never is ``same``."""

    probe: str
    server: str
    request: str
    how: Equality
    difference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedChange:
    """Tokens per second of the same requests, as far as both tests measured them."""

    name: str
    before: Figure | None
    after: Figure | None
    word: SpeedWord


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What has changed since the baseline.

    Attributes:
        where: The baseline.
        differs: What is not the same, in words: the version, the weights, the machine. Nothing means that both tests
            are of one server on one machine.
        verdicts: Probes that say something else.
        texts: Texts that are others; ``same_texts`` counts those that are not.
        speed: What was measured; ``no_speed`` says why there is nothing to compare.
        seconds: Seconds to ready, and of each probe's requests, before and now: measured once, so without bounds.
    """

    where: str
    differs: tuple[str, ...]
    verdicts: tuple[VerdictChange, ...]
    texts: tuple[TextChange, ...]
    same_texts: int
    speed: tuple[SpeedChange, ...]
    no_speed: str
    seconds: Mapping[str, tuple[float | None, float | None]]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worse, and what should be the same and is not."""
        return (*self._worse(), *self._other_texts(), *self._slower())

    def _worse(self) -> Iterator[Finding]:
        for change in self.verdicts:
            if change.worse:
                yield Finding(
                    code="verdict-worse-than-baseline",
                    severity=Severity.ERROR,
                    subject=change.probe,
                    message=f"{change.probe} passed in {self.where} and fails now: {change.message}",
                    hint="the finding of the probe itself says what to do; "
                    + (
                        f"since then changed: {', '.join(self.differs)}"
                        if self.differs
                        else "nothing known has changed"
                    ),
                )

    def _other_texts(self) -> Iterator[Finding]:
        faults = [text for text in self.texts if text.how != "tie"]
        if self.differs or not faults:
            return
        sure = any(text.how == "other" for text in faults)
        first = faults[0]
        yield Finding(
            code="texts-differ-from-baseline",
            severity=Severity.ERROR if sure else Severity.WARNING,
            subject=first.probe,
            message=f"{len(faults)} of {len(faults) + self.same_texts} texts are not those of {self.where}, and "
            f"nothing else has changed: {first.probe} {first.request}, {first.difference}",
            hint="nox -s smoke -- --probe greedy-repeat shows whether one server repeats itself",
            detail=tuple(f"{text.probe} {text.request}: {text.difference}" for text in faults[1:_SHOWN]),
        )

    def _slower(self) -> Iterator[Finding]:
        for change in self.speed:
            if change.word == "slower" and change.before and change.after:
                yield Finding(
                    code="slower-than-baseline",
                    severity=Severity.WARNING,
                    subject=change.name,
                    message=f"{change.name}: {bounds(change.after)} tokens per second, in {self.where} it was "
                    f"{bounds(change.before)}",
                    hint="repeat both runs on a quiet machine before you believe it",
                )

    def to_json(self) -> dict[str, object]:
        """Return it as ``baseline`` of the document."""
        return {
            "transcript": self.where,
            "differs": list(self.differs),
            "verdicts": [
                {"probe": one.probe, "before": one.before, "after": one.after, "worse": one.worse}
                for one in self.verdicts
            ],
            "texts": {
                "same": self.same_texts,
                "changed": [
                    {
                        "probe": one.probe,
                        "server": one.server,
                        "request": one.request,
                        "how": one.how,
                        "difference": one.difference,
                    }
                    for one in self.texts
                ],
            },
            "speed": [
                {
                    "name": one.name,
                    "verdict": one.word,
                    "before": one.before.to_json() if one.before else None,
                    "after": one.after.to_json() if one.after else None,
                }
                for one in self.speed
            ],
            "no_speed": self.no_speed or None,
            "seconds": {name: {"before": before, "after": after} for name, (before, after) in self.seconds.items()},
        }


def bounds(figure: Figure) -> str:
    """Return a figure with its noise bounds."""
    return f"{figure.median:.0f} ({figure.low:.0f}-{figure.high:.0f})"


def text_pairs(now: Mapping[str, Observed], before: Transcript) -> tuple[TextPair, ...]:
    """Return the continuations of greedy requests that both tests asked in the same words."""
    asked = {_key(exchange): one for exchange in _exchanges(before.observed) if (one := _continuation(exchange))}
    return tuple(
        TextPair(
            probe=exchange.probe,
            server=exchange.server,
            request=exchange.request.name,
            pair=Pair(
                name=f"{exchange.server}/{exchange.probe}/{exchange.request.name}",
                prompt=prompt_of(exchange.request),
                got=got,
                expected=expected,
            ),
        )
        for exchange in _exchanges(now)
        if (got := _continuation(exchange)) and (expected := asked.get(_key(exchange)))
    )


def compare(now: Transcript, before: Transcript, *, where: str, scores: Sequence[Exchange] = ()) -> Comparison:
    """Compare a test with an earlier one; both are judged by the judges of today.

    Args:
        now: The test.
        before: The earlier one.
        where: What to call it.
        scores: How the server of the test scores texts that differ, see `equality.questions`.
    """
    here, there = conditions_of(now.conditions), conditions_of(before.conditions)
    observed = Observed(subject=now.subject, exchanges=tuple(scores))
    pairs = text_pairs(now.observed, before)
    judged = [(one, equality(observed, one.pair)) for one in pairs]
    return Comparison(
        where=where,
        differs=tuple(_differences(now, before, here, there)),
        verdicts=tuple(_verdicts(now, before)),
        texts=tuple(
            TextChange(
                probe=one.probe,
                server=one.server,
                request=one.request,
                how=how,
                difference=one.pair.got.first_difference(one.pair.expected),
            )
            for one, how in judged
            if how != "same"
        ),
        same_texts=sum(how == "same" for _, how in judged),
        speed=tuple(_speeds(here, there)),
        no_speed=_no_speed(here, there),
        seconds=_seconds(now, before, here, there),
    )


def _exchanges(observed: Mapping[str, Observed]) -> Iterator[Exchange]:
    for one in observed.values():
        yield from (*one.control, *one.exchanges)


def _key(exchange: Exchange) -> str:
    """Return what makes a request the same: which server, which probe, its name and its words."""
    request = exchange.request
    return json.dumps([exchange.server, exchange.probe, request.name, request.path, request.body], sort_keys=True)


def _continuation(exchange: Exchange) -> Generation | None:
    """Return the continuation of a greedy request that ran to its end."""
    one = generation(exchange.answer.response) if exchange.ok and _is_greedy(exchange.request.body) else None
    return one if one and one.finish in {"length", "stop"} else None


def _is_greedy(body: Mapping[str, object] | None) -> bool:
    match body:
        case {"sampling_params": {"temperature": 0}} | {"temperature": 0}:
            return True
        case _:
            return False


def _differences(now: Transcript, before: Transcript, here: Conditions, there: Conditions) -> Iterator[str]:
    """Yield what is not the same, in words; what nobody knows is not the same either."""
    if now.profile != before.profile:
        yield f"the profile: {before.profile} was, {now.profile} is"
    if here.sglang != there.sglang or here.sglang is None:
        yield f"SGLang: {there.sglang or 'unknown'} was, {here.sglang or 'unknown'} is"
    elif here.receipt is None or there.receipt is None:
        yield "the environment: not known to be the same"
    elif here.receipt != there.receipt:
        yield "the environment: its receipt is another one"
    if here.weights is None or there.weights is None:
        yield "the weights: not known to be the same"
    elif here.weights != there.weights:
        yield "the weights"
    if options := _options(before.argv) ^ _options(now.argv):
        yield f"options: {', '.join(sorted({option.partition('=')[0] for option in options}))}"
    if variables := {name for name, _ in here.variables.items() ^ there.variables.items()}:
        yield f"variables: {', '.join(sorted(variables))}"
    if now.subject.threshold != before.subject.threshold:
        yield f"the threshold: {before.subject.threshold} was, {now.subject.threshold} is"
    yield from _of_machine(here, there)


def _of_machine(here: Conditions, there: Conditions) -> Iterator[str]:
    if not here.host or not there.host:
        yield "the machine: not known to be the same"
    elif here.host != there.host:
        names = sorted(name for name in {*here.host, *there.host} if here.host.get(name) != there.host.get(name))
        yield f"the machine: {', '.join(names)}"


def _options(argv: Sequence[str]) -> set[str]:
    """Return the options of a command line with their values, but for those that are never compared."""
    options: list[str] = []
    for word in argv:
        if word.startswith("--"):
            options.append(word)
        elif options:
            options[-1] += f"={word}"
    return {option for option in options if option.partition("=")[0] not in _NOT_COMPARED}


def _verdicts(now: Transcript, before: Transcript) -> Iterator[VerdictChange]:
    earlier = {result.name: result for result in judge_again(before)}
    for result in judge_again(now):
        was = earlier.get(result.name)
        if was and was.verdict != result.verdict:
            yield VerdictChange(probe=result.name, before=was.verdict, after=result.verdict, message=result.message)


def _speeds(here: Conditions, there: Conditions) -> Iterator[SpeedChange]:
    comparable = not _no_speed(here, there)
    for name in dict.fromkeys((*there.speed.figures, *here.speed.figures)):
        before, after = there.speed.figures.get(name), here.speed.figures.get(name)
        word = _WORDS[after.beside(before)] if comparable and before and after else "not comparable"
        yield SpeedChange(name=name, before=before, after=after, word=word)


def _no_speed(here: Conditions, there: Conditions) -> str:
    """Return why speeds cannot be compared, nothing where they can."""
    for name, side in (("the baseline", there), ("this run", here)):
        if not side.speed.figures:
            return f"{name} has no measured speed: {side.speed.missing}"
    return ", ".join(f"{what}, speeds of two machines say nothing of the software" for what in _of_machine(here, there))


def _seconds(
    now: Transcript, before: Transcript, here: Conditions, there: Conditions
) -> dict[str, tuple[float | None, float | None]]:
    ready = {"ready": (there.seconds_to_ready, here.seconds_to_ready)}
    probes = {
        name: (_asked_for(before.observed[name]), _asked_for(observed))
        for name, observed in now.observed.items()
        if name in before.observed and observed.exchanges
    }
    return {**ready, **probes}


def _asked_for(observed: Observed) -> float:
    """Return the seconds of all requests of a probe, one after the other."""
    return round(sum(exchange.answer.seconds for exchange in observed.exchanges), 3)
