"""Verdicts: of one probe, and of a whole smoke test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sglforge.errors import Finding, Severity, Verdict

if TYPE_CHECKING:
    from sglforge.smoke.compare import Comparison
    from sglforge.smoke.measure import Speed
    from sglforge.smoke.transcript import Observed

ProbeVerdict = Literal["pass", "fail", "inconclusive", "skipped"]
Scope = Literal["cpu-logic", "gpu", "unknown"]

NOT_PROVEN: Mapping[Scope, tuple[str, ...]] = {
    "cpu-logic": (
        "CUDA kernels",
        "CUDA graphs and streams",
        "tensor parallelism and NCCL",
        "memory budgets and speed",
        "sampling: every request is greedy",
        "models other than this one",
    ),
    "gpu": (
        "speed and memory under load",
        "contexts longer than the probes' prompts",
        "sampling: every request is greedy",
        "models other than this one",
    ),
    "unknown": (
        "on which hardware it ran",
        "speed and memory under load",
        "contexts longer than the probes' prompts",
        "sampling: every request is greedy",
        "models other than this one",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What one probe found; ``seconds`` is the time its requests took."""

    name: str
    proves: str
    verdict: ProbeVerdict
    message: str
    seconds: float
    scope: Scope
    evidence: Mapping[str, object] = field(default_factory=dict)
    finding: Finding | None = None

    def to_json(self) -> dict[str, object]:
        """Return the result as part of the report's document."""
        return {
            "name": self.name,
            "proves": self.proves,
            "verdict": self.verdict,
            "message": self.message,
            "seconds": round(self.seconds, 3),
            "scope": self.scope,
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReport:
    """The outcome of a smoke test: what was proven, what was not, and where to read it up.

    ``profile`` is the profile's name, or the address of a server that somebody else started; ``observed`` is what the
    probes saw, by their names; ``comparison`` is what has changed since the baseline, if there is one; ``speed`` is
    there if it was wanted.
    """

    profile: str
    scope: Scope
    probes: tuple[ProbeResult, ...]
    remarks: tuple[Finding, ...] = ()
    seconds: float
    seconds_to_ready: float | None
    versions: Mapping[str, str | None]
    transcript: Path
    log: Path | None = None
    observed: Mapping[str, Observed] = field(default_factory=dict)
    comparison: Comparison | None = None
    speed: Speed | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every fault and remark, in the order of the probes."""
        return (*(probe.finding for probe in self.probes if probe.finding), *self._beside)

    @property
    def verdict(self) -> Verdict:
        """The worst of the probes: one failure fails, one open question leaves the whole open."""
        return overall(self.probes, self._beside)

    @property
    def _beside(self) -> tuple[Finding, ...]:
        return (*self.remarks, *(self.comparison.findings if self.comparison else ()))

    @property
    def not_proven(self) -> tuple[str, ...]:
        """What a pass of this scope says nothing about."""
        return NOT_PROVEN[self.scope]

    def to_json(self) -> dict[str, object]:
        """Return CONTRACT's document."""
        return {
            "schema": 1,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "profile": self.profile,
            "scope": self.scope,
            "not_proven": list(self.not_proven),
            "seconds": round(self.seconds, 3),
            "seconds_to_ready": None if self.seconds_to_ready is None else round(self.seconds_to_ready, 3),
            "versions": dict(self.versions),
            "probes": [probe.to_json() for probe in self.probes],
            "log": str(self.log) if self.log else None,
            "transcript": str(self.transcript),
            **({"speed": self.speed.to_json()} if self.speed else {}),
            **({"baseline": self.comparison.to_json()} if self.comparison else {}),
        }


def overall(probes: Sequence[ProbeResult], remarks: Sequence[Finding] = ()) -> Verdict:
    """Return the verdict over all probes and remarks; a test in which nothing was judged proves nothing."""
    verdicts = {probe.verdict for probe in probes}
    if "fail" in verdicts or any(finding.severity is Severity.ERROR for finding in remarks):
        return "fail"
    if "inconclusive" in verdicts or "pass" not in verdicts:
        return "inconclusive"
    return "warn" if any(finding.severity is Severity.WARNING for finding in remarks) else "pass"
