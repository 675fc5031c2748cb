"""What a recorded transcript holds, whatever form it was written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sglforge.errors import Finding, Severity

Role = Literal["completion", "health", "other"]
Outcome = Literal["ok", "timeout", "unreachable", "error", "cancelled", "unknown"]
Company = Literal["single", "parallel", "unknown"]
Mode = Literal["plain", "speculation", "threshold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: what a completion holds, each part None where the record does not have it.

    ``logprobs`` are those of the sampled tokens; None in them is what JSON makes of NaN. ``accept_rate`` is the share
    of drafted tokens that were right. ``other_output`` says that there is something besides text, such as a tool call.
    """

    text: str | None = None
    finish: str = ""
    tokens: int | None = None
    prompt_tokens: int | None = None
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float | None, ...] = ()
    verifications: int | None = None
    right_drafts: int | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    error: str = ""
    other_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A request with what came of it; ``where`` is its place in the document, such as ``step 2``."""

    where: str
    role: Role
    request: str
    outcome: Outcome
    status: str = ""
    seconds: float | None = None
    asked: int | None = None
    company: Company = "unknown"
    prompt: str = ""
    expects_error: bool = False
    reply: Reply = field(default_factory=Reply)

    @property
    def name(self) -> str:
        """Where it is and what it asked."""
        return f"{self.where} ({self.request})" if self.request else self.where

    @property
    def answered(self) -> bool:
        """Whether a completion came, whatever it says."""
        return self.role == "completion" and self.outcome == "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A point of a benchmark: tokens a second of all requests together (or a figure in proportion to it).

    Without ``is_total`` the record does not say whether the figure is that of all requests or of each.
    """

    mode: Mode
    concurrency: int
    total: float
    is_total: bool
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of several answers were right, from 0 to 1, and the words for it."""

    right: float
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A transcript in one form: events in their order, log, command line, benchmark, counts alone and in company."""

    events: tuple[Event, ...] = ()
    log: str = ""
    argv: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    threshold: int | None = None
    shares: tuple[Share, Share] | None = None

    @property
    def completions(self) -> tuple[Event, ...]:
        """Every request for a completion."""
        return tuple(event for event in self.events if event.role == "completion")

    def option(self, name: str) -> str | None:
        """Return the value of an option of the command line, an empty string for one without, None if absent."""
        for place, word in enumerate(self.argv):
            if word == name:
                after = self.argv[place + 1 : place + 2]
                return after[0] if after and not after[0].startswith("--") else ""
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one judge says: faults, questions that stay open, and what it found to be right."""

    findings: tuple[Finding, ...] = ()
    right: tuple[str, ...] = ()


def fault(code: str, message: str, hint: str, *detail: str, subject: str = "") -> Finding:
    """Return a fault of the recorded server."""
    return Finding(
        code=code, severity=Severity.ERROR, subject=subject, message=message, hint=hint, detail=tuple(detail)
    )


def question(message: str, hint: str, *detail: str, subject: str = "") -> Finding:
    """Return what could not be told; the whole verdict is then inconclusive, if nothing fails."""
    return Finding(
        code="probe-inconclusive",
        severity=Severity.WARNING,
        subject=subject,
        message=message,
        hint=hint,
        detail=tuple(detail),
    )
