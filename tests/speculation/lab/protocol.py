"""What tests ask of a laboratory, and what it answers: plain values that travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Algorithm = Literal["EAGLE", "EAGLE3", "STANDALONE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One scheduler: its models, and what of SGLang is switched on.

    ``pool_tokens`` is the size of the KV pool in tokens. ``installed_attention`` attends as the installed SGLang does
    on a CPU; otherwise the plain torch of `kernels`, which is fast and strict about its metadata. ``grammars`` switches
    constrained decoding on. ``own_graphs`` emulates the graphs of plain decode. ``forgetful`` makes the worker lose its
    threshold at the end of its ``__init__``, as it does where an exception is caught on the way.
    """

    algorithm: Algorithm | None
    target: str
    draft: str
    steps: int = 3
    radix: bool = True
    page_size: int = 1
    pool_tokens: int = 2048
    max_running: int = 8
    tokenizer: bool = False
    installed_attention: bool = False
    grammars: bool = False
    own_graphs: bool = False
    forgetful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: a prompt of token ids, and how many tokens are to come."""

    name: str
    prompt: tuple[int, ...]
    tokens: int
    sampling: Mapping[str, object] = field(default_factory=dict)
    logprobs: bool = False


Client = tuple[Ask, ...]
"""Requests that one client sends, the next when the one before is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A load: clients that begin ``start_gap`` turns of the loop after each other and wait up to ``pause`` turns.

    ``thresholds`` are drawn at random for each decode step when there are several. ``aborts`` names requests that are
    aborted at a turn. ``mutation`` breaks the fall-back (see `mutations`). ``check_state`` compares the whole state
    after each decode step. ``eager_admission`` admits more than the pool holds, so that requests are retracted.
    """

    clients: tuple[Client, ...]
    thresholds: tuple[int, ...]
    start_gap: int = 3
    pause: int = 7
    aborts: Mapping[int, str] = field(default_factory=dict)
    mutation: str | None = None
    check_state: bool = True
    eager_admission: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request in a decode step: its length before it, the drafts accepted, and those a right draft would get."""

    name: str
    length: int
    accepted: int
    expected: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decode step."""

    plain: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Token slots and request slots when everything has ended, and after the cache was flushed."""

    tokens: int
    available: int
    cached: int
    protected: int
    requests: int
    requests_available: int
    available_when_flushed: int

    @property
    def whole(self) -> bool:
        """Whether nothing is lost."""
        return (
            self.available + self.cached == self.tokens == self.available_when_flushed
            and self.protected == 0
            and self.requests == self.requests_available
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that differs from the reference after a decode step."""

    kind: str
    name: str
    length: int
    plain: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a request: the tokens, and what they should have been (more of them than were asked for)."""

    tokens: tuple[int, ...]
    expected: tuple[int, ...]
    finish: str
    cached: int
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job came to; ``error`` is the exception that ended the scheduler's loop."""

    answers: Mapping[str, Answer]
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]
    checked_rows: int
    pool: Pool | None
    retracted: int
    graph_replays: int
    error: str = ""

    def wrong(self) -> list[str]:
        """Return the requests whose tokens are not the reference's, or too few or too many."""
        return [name for name, one in self.answers.items() if one.tokens != one.expected]

    def count(self, *, plain: bool) -> int:
        """Return how many steps ran in a mode."""
        return sum(step.plain is plain for step in self.steps)

    def crossings(self) -> int:
        """Return how often the mode changed between two steps."""
        return sum(one.plain is not two.plain for one, two in pairwise(self.steps))

    def acceptance(self) -> tuple[int, int, list[Row]]:
        """Return checked verifications, those of requests with plain steps before, and those that accepted wrongly."""
        checked = after = 0
        wrong: list[Row] = []
        seen: set[str] = set()
        for step in self.steps:
            for row in step.rows:
                if step.plain:
                    seen.add(row.name)
                elif row.expected is not None:
                    checked += 1
                    after += row.name in seen
                    if row.accepted != row.expected:
                        wrong.append(row)
        return checked, after, wrong
