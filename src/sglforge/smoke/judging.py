"""From what was observed to results, on the spot or from a transcript."""

from __future__ import annotations

from sglforge.errors import Finding, Severity
from sglforge.smoke import serverlog
from sglforge.smoke.probes.catalog import PROBES
from sglforge.smoke.probes.model import Probe, judge
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed, Transcript
from sglforge.smoke.verdict import ProbeResult


def result(probe: Probe, observed: Observed, seconds: float) -> ProbeResult:
    """Judge what was observed; ``seconds`` is how long it took."""
    judgement = judge(probe, observed)
    finding = None
    if judgement.verdict in {"fail", "inconclusive"}:
        failed = judgement.verdict == "fail"
        finding = Finding(
            code=judgement.code if failed else "probe-inconclusive",
            severity=Severity.ERROR if failed else Severity.WARNING,
            subject=probe.name,
            message=judgement.message,
            hint=judgement.hint,
            detail=serverlog.tail(observed.log) if observed.health or observed.fault else (),
        )
    return ProbeResult(
        name=probe.name,
        proves=probe.proves,
        verdict=judgement.verdict,
        message=judgement.message,
        seconds=seconds,
        scope=observed.subject.scope,
        evidence=judgement.evidence,
        finding=finding,
    )


def skipped(probe: Probe, subject: Subject, why: str) -> ProbeResult:
    """Return the result of a probe that was not asked."""
    return ProbeResult(
        name=probe.name, proves=probe.proves, verdict="skipped", message=why, seconds=0.0, scope=subject.scope
    )


def judge_again(transcript: Transcript) -> tuple[ProbeResult, ...]:
    """Judge every probe that a transcript holds by what it holds, in running order."""
    results = []
    for probe in PROBES:
        if why := transcript.skipped.get(probe.name):
            results.append(skipped(probe, transcript.subject, why))
        elif observed := transcript.observed.get(probe.name):
            results.append(result(probe, observed, sum(exchange.answer.seconds for exchange in observed.exchanges)))
    return tuple(results)
