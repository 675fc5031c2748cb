"""What a probe is, what it sees, what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sglforge.config.model import Profile, SmokeExpectations
from sglforge.smoke import serverlog
from sglforge.smoke.client import Request
from sglforge.smoke.generation import Generation, generation
from sglforge.smoke.server import Stopped
from sglforge.smoke.transcript import Exchange
from sglforge.smoke.verdict import ProbeVerdict, Scope


class Need(StrEnum):
    """What a probe cannot do without; the value says what is missing."""

    SPECULATION = "the profile does not speculate"
    THRESHOLD = "the profile sets no speculation threshold"
    EXPECTATIONS = "the profile has no [smoke] section: nothing is known about what its model should say"
    FACTS = "the profile's [smoke] section lists no facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is probed: a profile's server, on this kind of hardware."""

    profile: Profile
    scope: Scope

    @property
    def expectations(self) -> SmokeExpectations:
        """What is known about the model; only probes that need it may ask."""
        if self.profile.smoke is None:
            raise LookupError(Need.EXPECTATIONS)
        return self.profile.smoke

    def missing(self, needs: Sequence[Need]) -> Need | None:
        """Return the first need that is not met."""
        smoke = self.profile.smoke
        met = {
            Need.SPECULATION: self.profile.speculation is not None,
            Need.THRESHOLD: bool(self.profile.speculation and self.profile.speculation.disable_above_batch),
            Need.EXPECTATIONS: smoke is not None,
            Need.FACTS: smoke is not None and bool(smoke.facts),
        }
        return next((need for need in needs if not met[need]), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that a judge may look at.

    ``exchanges`` and ``control`` are this probe's, on the profile's server and on the control server.
    ``ended`` and ``health`` tell of the profile's server after the last request; health is asked only when an
    answer is missing. ``ready_log`` is what it had logged when it was ready, ``log`` what it has by now.
    """

    subject: Subject
    exchanges: tuple[Exchange, ...] = ()
    control: tuple[Exchange, ...] = ()
    ready_log: str = ""
    log: str = ""
    ended: str | None = None
    health: str | None = None
    stops: tuple[tuple[str, Stopped], ...] = ()

    def generations(self) -> dict[str, Generation]:
        """Return the continuations of the profile's server by request name."""
        return _generations(self.exchanges)

    def control_generations(self) -> dict[str, Generation]:
        """Return the continuations of the control server by request name."""
        return _generations(self.control)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a judge says; ``code`` names the fault of a failure."""

    verdict: ProbeVerdict
    message: str
    code: str = ""
    hint: str = ""
    evidence: Mapping[str, object] = field(default_factory=dict)


Waves = tuple[tuple[Request, ...], ...]
"""Requests in the order of sending: those of a wave go out together, the next wave waits for the answers."""


def no_requests(_subject: Subject) -> Waves:
    """Ask nothing."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One property of a server: what is asked, and a pure function that judges the answers.

    ``control_requests`` go to a server of the same profile without speculation, which runs first. A request
    without a good answer fails its probe before the judge is asked, unless that ``judges_silence`` itself.
    """

    name: str
    proves: str
    judge: Callable[[Observed], Judgement]
    requests: Callable[[Subject], Waves] = no_requests
    control_requests: Callable[[Subject], Waves] = no_requests
    needs: tuple[Need, ...] = ()
    judges_silence: bool = False


def passed(message: str, **evidence: object) -> Judgement:
    """Return a pass."""
    return Judgement(verdict="pass", message=message, evidence=evidence)


def failed(code: str, message: str, hint: str = "", **evidence: object) -> Judgement:
    """Return a failure."""
    return Judgement(verdict="fail", message=message, code=code, hint=hint, evidence=evidence)


def inconclusive(message: str, hint: str = "", **evidence: object) -> Judgement:
    """Return an open question."""
    return Judgement(verdict="inconclusive", message=message, hint=hint, evidence=evidence)


def skipped(message: str, **evidence: object) -> Judgement:
    """Return that there was nothing to judge."""
    return Judgement(verdict="skipped", message=message, evidence=evidence)


def differs(subject: Subject, code: str, message: str, hint: str = "", **evidence: object) -> Judgement:
    """Return the judgement on texts that should be equal: exact on the CPU, open on a GPU.

    On a GPU the same request may take kernels that round differently when other requests run beside it.
    """
    if subject.scope == "cpu-logic":
        return failed(code, message, hint, **evidence)
    return inconclusive(f"{message} (on a GPU a difference alone is no proof of a fault)", hint, **evidence)


def judge(probe: Probe, observed: Observed) -> Judgement:
    """Return what a probe says about what was observed; an answer that is missing speaks for itself."""
    if not probe.judges_silence and (fault := _no_answer(observed)):
        return fault
    return probe.judge(observed)


def _no_answer(observed: Observed) -> Judgement | None:
    for exchange in observed.exchanges:
        name, answer = exchange.request.name, exchange.answer
        match answer.status:
            case 200 if exchange.request.path != "/generate" or generation(answer.response):
                continue
            case "timeout":
                return failed(
                    "decode-hang",
                    f"timeout: no answer to request {name} within {answer.seconds:.0f} s; health is {observed.health}",
                    "if the server is only slow, raise request-timeout-s in the profile; else it hangs",
                )
            case "disconnected" if observed.ended:
                return failed(
                    "server-died",
                    f"the server ended during request {name} ({observed.ended}): {serverlog.cause(observed.log)}",
                    "read its log",
                )
            case "disconnected" if raised := serverlog.exceptions(observed.log[len(observed.ready_log) :]):
                return failed(
                    "server-died",
                    f"the server dropped request {name}, and its log holds since then: {raised[-1]}",
                    "its scheduler is dead, and the rest of it is about to end: read its log",
                )
            case _:
                return failed(
                    "request-failed",
                    f"request {name} was answered with {answer.status}: {str(answer.response)[:300]}",
                    "the server refuses a plain request; its log says why",
                )
    return None


def _generations(exchanges: Sequence[Exchange]) -> dict[str, Generation]:
    return {e.request.name: g for e in exchanges if e.ok and (g := generation(e.answer.response))}
