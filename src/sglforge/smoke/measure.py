"""How fast a server decodes: waves of requests, repeated, and by how much the repeats differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Literal

from sglforge.errors import SmokeError
from sglforge.smoke.client import Answer, Request
from sglforge.smoke.generation import generation, greedy
from sglforge.smoke.interview import Interview

REPEATS = 5
"""How often a measured wave is repeated, after one that is not counted."""

# Of normal noise the median of the distances from the median is the 1.4826th part of a standard deviation.
_DEVIATIONS = 3 * 1.4826
# Few repeats may agree by chance, and tell nothing of what differs from one start to the next.
_FLOOR = 0.05
# Requests at once, and tokens of each.
_WAVES = ((1, 192), (4, 96))

Relation = Literal["lower", "same", "higher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure that was measured several times, and its noise bounds.

    The bounds are the smallest and the largest repeat, but for those more than three standard deviations off (estimated
    from the median distance to the median, which one disturbed repeat does not move), and at least 5 % from the median.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the repeats."""
        return median(self.values)

    @property
    def mad(self) -> float:
        """The median distance to the median."""
        middle = self.median
        return median(abs(value - middle) for value in self.values)

    @property
    def low(self) -> float:
        """The lower noise bound."""
        return min(max(min(self.values), self.median - _DEVIATIONS * self.mad), (1 - _FLOOR) * self.median)

    @property
    def high(self) -> float:
        """The upper noise bound."""
        return max(min(max(self.values), self.median + _DEVIATIONS * self.mad), (1 + _FLOOR) * self.median)

    def beside(self, other: Figure) -> Relation:
        """Say where it lies beside another one; bounds that overlap mean the same."""
        if self.low > other.high:
            return "higher"
        return "lower" if self.high < other.low else "same"

    def to_json(self) -> dict[str, object]:
        """Return median, bounds, extremes and all values, rounded to four digits behind the point."""
        return {
            "median": round(self.median, 4),
            "low": round(self.low, 4),
            "high": round(self.high, 4),
            "min": round(min(self.values), 4),
            "max": round(max(self.values), 4),
            "mad": round(self.mad, 4),
            "values": [round(value, 4) for value in self.values],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Requests that were sent at once and all answered.

    Attributes:
        tokens: Tokens of all answers together.
        prompt_tokens: Tokens of the longest prompt, 0 where the server does not tell.
        seconds: How long it took until the last answer was whole.
        each: How long each answer took, in seconds.
        steps: Verifications of all requests together, None where the server verified no drafts.
    """

    tokens: int
    prompt_tokens: int
    seconds: float
    each: tuple[float, ...]
    steps: int | None

    @property
    def rate(self) -> float:
        """Tokens per second of all requests together."""
        return self.tokens / self.seconds

    def to_json(self) -> dict[str, object]:
        """Return it as a raw figure."""
        return {"tokens": self.tokens, "seconds": self.seconds, "each": list(self.each), "steps": self.steps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Tokens per second by what was asked (``1 request of 192 tokens``); ``missing`` says why there are none."""

    figures: Mapping[str, Figure] = field(default_factory=dict)
    missing: str = "nothing was measured: neither --measure nor --baseline was given"

    def to_json(self) -> dict[str, object]:
        """Return the figures by their names."""
        return {name: figure.to_json() for name, figure in self.figures.items()}


def figure_of(said: object) -> Figure | None:
    """Read a figure of a document, None where it is none."""
    match said:
        case {"values": list(values)} if values and all(isinstance(v, (int, float)) and 0 <= v < inf for v in values):
            return Figure(values=tuple(float(value) for value in values))
        case _:
            return None


def requests(prompts: Sequence[str], count: int, tokens: int) -> tuple[Request, ...]:
    """Return as many greedy requests as are sent at once, each for exactly so many tokens, prompts in turn."""
    return tuple(
        greedy(f"measured-{number}", prompts[number % len(prompts)], tokens, ignore_eos=True) for number in range(count)
    )


def measured(interview: Interview, wave: Sequence[Request]) -> Wave:
    """Send requests at once and return how long they took.

    Raises SmokeError ``measure-unanswered``.
    """
    return wave_of([answer for _, answer in interview.send(wave)])


def wave_of(answers: Sequence[Answer]) -> Wave:
    """Return what the answers to requests that were sent at once tell.

    Raises SmokeError ``measure-unanswered`` where one is no continuation.
    """
    found = [(answer, generation(answer.response) if answer.status == 200 else None) for answer in answers]
    wrong = [answer for answer, one in found if one is None or not one.counted or not one.completion_tokens]
    if wrong:
        first = f": {str(wrong[0].response)[:200]}" if wrong[0].response else ""
        raise SmokeError(
            code="measure-unanswered",
            message=f"{len(wrong)} of {len(answers)} measured requests have no answer ({wrong[0].status}{first})",
            hint="read the server's log; probe burst of nox -s smoke shows whether it loses requests",
        )
    continuations = [one for _, one in found if one]
    verified = [one.verify_steps for one in continuations if one.verify_steps]
    return Wave(
        tokens=sum(one.completion_tokens for one in continuations),
        prompt_tokens=max((_prompt_tokens(answer.response) for answer in answers), default=0),
        seconds=max(*(answer.seconds for answer in answers), 1e-4),
        each=tuple(answer.seconds for answer in answers),
        steps=sum(verified) if verified else None,
    )


def speed(interview: Interview, repeats: int) -> Speed:
    """Measure what a later run is compared with; a server that does not answer has no speed.

    Repeats of one wave lie between those of the others, so that a slow minute is noise of all of them.
    """
    subject = interview.subject
    waves = {
        f"{count} request{'s' if count > 1 else ''} of {tokens} tokens": requests(subject.prompts, count, tokens)
        for count, tokens in _WAVES
        if count <= (subject.max_running or count)
    }
    rates: dict[str, list[float]] = {name: [] for name in waves}
    try:
        for turn in range(repeats + 1):
            for name, wave in waves.items():
                interview.progress(f"measuring {name}, {turn} of {repeats}")
                rate = measured(interview, wave).rate
                if turn:
                    rates[name].append(rate)
    except SmokeError as error:
        return Speed(missing=error.message)
    return Speed(figures={name: Figure(values=tuple(values)) for name, values in rates.items()}, missing="")


def _prompt_tokens(response: object) -> int:
    match response:
        case {"meta_info": {"prompt_tokens": int(tokens)}} | {"usage": {"prompt_tokens": int(tokens)}}:
            return tokens
        case _:
            return 0
