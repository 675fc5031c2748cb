"""What a probe is and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sglforge.smoke import serverlog
from sglforge.smoke.client import Request
from sglforge.smoke.equality import Equality
from sglforge.smoke.generation import generation
from sglforge.smoke.openai import COMPLETIONS
from sglforge.smoke.site import Site
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Look, Observed
from sglforge.smoke.verdict import ProbeVerdict


class Need(StrEnum):
    """What a probe cannot do without; the value says what is missing."""

    NATIVE = "the server is not SGLang: it has the OpenAI-compatible routes only"
    OWN = "the server was started by somebody else"
    SPECULATION = "the server does not speculate"
    THRESHOLD = "there is no speculation threshold"
    CROSSING = "the threshold cannot be crossed: no more requests than that are decoded at once (max-running-requests)"
    EXPECTATIONS = "the profile has no [smoke] section: nothing is known about what its model should say"
    FACTS = "the profile's [smoke] section lists no facts"
    TOOL = "the profile's [smoke] section names no tool"
    CACHE = "the server keeps no prefixes"


def missing(subject: Subject, needs: Sequence[Need]) -> Need | None:
    """Return the first need that a subject does not meet."""
    known = subject.expectations
    met = {
        Need.NATIVE: subject.api == "sglang",
        Need.OWN: subject.own,
        Need.SPECULATION: subject.speculates,
        Need.THRESHOLD: bool(subject.threshold),
        Need.CROSSING: subject.max_running is None or subject.max_running > (subject.threshold or 0),
        Need.EXPECTATIONS: known is not None,
        Need.FACTS: bool(known and known.facts),
        Need.TOOL: bool(known and known.tool),
        Need.CACHE: subject.caches_prefixes,
    }
    return next((need for need in needs if not met[need]), None)


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


def no_more(_observed: Observed) -> Waves:
    """Ask nothing more."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One property of a server: what is asked, and a pure function that judges the answers.

    ``control_requests`` go to a server of the same profile without speculation, which runs first. ``follow_up``
    returns what to ask once the answers so far are known, until it returns nothing. ``look`` sees the server from
    outside: when it is ready, before the first request, and after each wave. A request without a good answer fails
    its probe before the judge is asked, unless that ``judges_silence`` itself, or, where something else than 200 came,
    ``judges_refusals``.
    """

    name: str
    proves: str
    judge: Callable[[Observed], Judgement]
    requests: Callable[[Subject], Waves] = no_requests
    control_requests: Callable[[Subject], Waves] = no_requests
    follow_up: Callable[[Observed], Waves] = no_more
    look: Callable[[Site], Look] | None = None
    needs: tuple[Need, ...] = ()
    judges_silence: bool = False
    judges_refusals: bool = False


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


def differs(equality: Equality, code: str, message: str, hint: str = "", **evidence: object) -> Judgement:
    """Return the judgement on continuations that should be equal: a fault, or open where nobody can tell."""
    if equality == "open":
        return inconclusive(
            f"{message} (whether both were equally likely cannot be told: a GPU rounds by who else is in the batch)",
            hint,
            **evidence,
        )
    return failed(code, message, hint, **evidence)


def judge(probe: Probe, observed: Observed) -> Judgement:
    """Return what a probe says about what was observed; an answer that is missing speaks for itself."""
    return unanswered(probe, observed) or unasked(probe, observed) or probe.judge(observed)


def unanswered(probe: Probe, observed: Observed) -> Judgement | None:
    """Return the judgement on a request without a good answer, None where there is none or the probe judges that."""
    if probe.judges_silence:
        return None
    for exchange in observed.exchanges:
        name, answer = exchange.request.name, exchange.answer
        match answer.status:
            case 200 if _complete(exchange):
                continue
            case int() if probe.judges_refusals:
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


def unasked(probe: Probe, observed: Observed) -> Judgement | None:
    """Return that a transcript lacks a request that is always sent, None where it has them all.

    What comes after a silent request was not sent, which its probe knows.
    """
    if any(not isinstance(exchange.status, int) for exchange in observed.exchanges):
        return None
    there = {(exchange.request.name, exchange.request.stream) for exchange in observed.exchanges}
    asked = [request for wave in probe.requests(observed.subject) for request in wave]
    for request in asked:
        if (request.name, request.stream) not in there:
            return inconclusive(
                f"request {request.name} was not sent: {len(observed.exchanges)} exchanges are there",
                "judge a transcript as smoke wrote it",
            )
    return None


def _complete(exchange: Exchange) -> bool:
    """Say whether an answer is what its route returns; of streams and other routes their probes know more."""
    continues = exchange.request.path in {"/generate", COMPLETIONS} and not exchange.request.stream
    return not continues or generation(exchange.answer.response) is not None
