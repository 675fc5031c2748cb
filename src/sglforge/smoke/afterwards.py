"""What a server is asked after its probes for a comparison: how fast it is, how likely a baseline's texts are to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglforge.smoke.compare import Comparison, compare, text_pairs
from sglforge.smoke.equality import questions
from sglforge.smoke.interview import Interview, silent
from sglforge.smoke.measure import REPEATS, Speed, speed
from sglforge.smoke.transcript import Exchange, Observed, Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An earlier smoke test to compare with; ``where`` is what to call it."""

    where: str
    transcript: Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to ask afterwards; with a baseline its speed is measured in any case."""

    measure: bool = False
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards:
    """What a server answered afterwards."""

    speed: Speed | None = None
    scores: tuple[Exchange, ...] = ()


def ask_afterwards(interview: Interview, observed: Mapping[str, Observed], wanted: Wanted) -> Afterwards:
    """Ask what is wanted, if anything; ``observed`` is what the probes saw."""
    baseline = wanted.baseline
    if not (wanted.measure or baseline):
        return Afterwards()
    if any(silent(one.exchanges) for one in observed.values()):
        return Afterwards(speed=Speed(missing="it did not answer every probe"))
    scores = _scores(interview, observed, baseline.transcript) if baseline else ()
    return Afterwards(speed=speed(interview, REPEATS), scores=scores)


def compared(transcript: Transcript, wanted: Wanted, asked: Afterwards) -> Comparison | None:
    """Compare a finished test with the baseline that was wanted, if one was."""
    if wanted.baseline is None:
        return None
    return compare(transcript, wanted.baseline.transcript, where=wanted.baseline.where, scores=asked.scores)


def _scores(interview: Interview, observed: Mapping[str, Observed], before: Transcript) -> tuple[Exchange, ...]:
    """Let a GPU score where its texts part from those of the baseline; nothing where equality is exact."""
    pairs = [one.pair for one in text_pairs(observed, before) if not one.pair.got.same_as(one.pair.expected)]
    asked: tuple[Exchange, ...] = ()
    while not silent(asked) and (waves := questions(Observed(subject=interview.subject, exchanges=asked), pairs)):
        asked += tuple(
            Exchange(probe="baseline", server=interview.role, request=request, answer=answer)
            for wave in waves
            for request, answer in interview.send(wave)
        )
    return asked
