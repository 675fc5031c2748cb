"""Decide above which batch size a server should stop speculating, from what was measured with and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sglforge.launch.threshold_rules import Flags, captured_sizes
from sglforge.smoke.measure import Figure

Outcome = Literal["faster", "same", "slower"]
Kind = Literal["threshold", "always", "never", "unclear"]
NOISY = 0.15
"""Noise bounds so far from their median, as a share of it, hide what a threshold is about."""

_OUTCOMES: Mapping[str, Outcome] = {"higher": "faster", "same": "same", "lower": "slower"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Tokens per second with so many requests at once, with and without speculation."""

    concurrency: int
    speculation: Figure
    plain: Figure

    @property
    def outcome(self) -> Outcome:
        """What speculation does here, beyond what repeats differ by."""
        return _OUTCOMES[self.speculation.beside(self.plain)]

    @property
    def unknown(self) -> bool:
        """Whether it is called the same only because repeats differ by so much."""
        return self.outcome == "same" and self.noise > NOISY

    @property
    def gain(self) -> float:
        """How many times as fast it is with speculation."""
        return self.speculation.median / self.plain.median

    @property
    def noise(self) -> float:
        """How far the wider noise bounds are apart, half of it, as a share of their median."""
        return max((one.high - one.low) / (2 * one.median) for one in (self.speculation, self.plain))


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Batch sizes that CUDA graphs are captured for, and the largest where it is known."""

    sizes: frozenset[int]
    largest: int | None

    def at_most(self, size: int) -> int | None:
        """Return the largest batch size, up to this one, that batches are not padded beyond; None for none."""
        if self.largest is not None and size >= self.largest:
            return size  # nothing pads a batch that is larger than every graph
        return max((one for one in self.sizes if one <= size), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to do about speculation, in one sentence; ``threshold`` is there for a threshold only."""

    kind: Kind
    sentence: str
    threshold: int | None = None


def captured(flags: Flags, info: Mapping[str, object], *, on_cpu: bool) -> Captured | None:
    """Return the captured batch sizes as the server tells them, else as its flags do; None without graphs.

    Servers tell them as ``cuda_graph_bs`` (to 0.5.18) or in ``cuda_graph_config`` (from 0.5.19 on).
    """
    by_flags = None if on_cpu else captured_sizes(flags)
    if by_flags is None:
        return None
    match info:
        case {"cuda_graph_config": {"decode": {"backend": "disabled"}}} | {"disable_cuda_graph": True}:
            return None
        case {"cuda_graph_config": {"decode": {"bs": [*told]}}} | {"cuda_graph_bs": [*told]}:
            sizes = frozenset(size for size in told if isinstance(size, int))
            if sizes:
                return Captured(sizes=sizes, largest=max(sizes))
        case _:
            pass
    return Captured(sizes=by_flags[0], largest=by_flags[1])


def decide(levels: Sequence[Level], graphs: Captured | None) -> Recommendation:
    """Return the largest batch up to which speculation is never slower, at every level that was measured.

    A level whose noise bounds overlap is not slower; if they are so wide that nobody can tell, it is never the last one
    up to which to speculate. A server that pads batches to captured sizes can stop at these only: then it is the
    largest of them up to that level.

    Args:
        levels: What was measured, at least one level.
        graphs: The captured batch sizes, None where batches are not padded.
    """
    levels = sorted(levels, key=lambda level: level.concurrency)
    fine: list[Level] = []
    for level in levels:
        if level.outcome == "slower":
            break
        fine.append(level)
    slower = levels[len(fine)] if len(fine) < len(levels) else None
    unknown = [level for level in fine if level.unknown]
    while fine and fine[-1].unknown:
        fine.pop()
    gains = any(level.outcome == "faster" for level in fine)
    if unknown and (not gains or slower is None):
        return Recommendation(kind="unclear", sentence=_unclear(unknown))
    if not gains:
        return Recommendation(kind="never", sentence=_never(levels, fine, slower))
    last, best = fine[-1].concurrency, max(level.gain for level in fine)
    if slower is None:
        return Recommendation(
            kind="always",
            sentence=f"no threshold: speculation is never slower with up to {last} requests at once, the most "
            f"that were measured (up to {best:.2f} times as fast)",
        )
    beyond = f"with {slower.concurrency} requests at once speculation is slower ({slower.gain:.2f} times as fast)"
    threshold = graphs.at_most(last) if graphs else last
    if threshold is None:
        return Recommendation(
            kind="never",
            sentence=f"no threshold can be set: {beyond}, and no batch size up to {last} is captured; "
            f"list {last} among the captured sizes and measure again, or serve without speculation",
        )
    padded = "" if threshold == last else f", the largest captured batch size up to {last}"
    return Recommendation(
        kind="threshold",
        threshold=threshold,
        sentence=f"speculate up to {threshold} requests at once{padded}: up to {last} it is never slower (up to "
        f"{best:.2f} times as fast), {beyond}{_again(levels, slower)}",
    )


def _unclear(noisy: Sequence[Level]) -> str:
    counts, worst = ", ".join(str(level.concurrency) for level in noisy), max(level.noise for level in noisy)
    return (
        f"no recommendation: with {counts} at once repeats differ by up to {worst:.0%} either way, and what "
        "speculation does is within that; measure again on a quiet machine, or with more --repeats"
    )


def _never(levels: Sequence[Level], fine: Sequence[Level], slower: Level | None) -> str:
    first = levels[0]
    if not fine:
        why = f"with {first.concurrency} at once it is slower already ({first.gain:.2f} times as fast)"
    else:
        why = f"up to {fine[-1].concurrency} requests at once it is not faster either, beyond what repeats differ by"
    smaller = "" if first.concurrency == 1 else f"; fewer than {first.concurrency} were not measured"
    more = f"{smaller}{_again(levels, slower)}"
    return f"serve without speculation: {why}{more}; there is no threshold of 0, so leave [speculation] out"


def _again(levels: Sequence[Level], slower: Level | None) -> str:
    """Return the words for levels above one that is slower where speculation is not."""
    above = [level for level in levels if slower and level.concurrency > slower.concurrency]
    back = [str(level.concurrency) for level in above if level.outcome != "slower"]
    return f"; with {', '.join(back)} it is not slower: more --repeats tell whether that is noise" if back else ""
