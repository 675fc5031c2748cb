"""Judge a transcript that somebody else recorded: by what it holds, and by nothing that it does not."""

from __future__ import annotations

from dataclasses import dataclass

from sglforge.errors import Finding, Severity, Verdict
from sglforge.smoke.recorded.judges import bench, liveness, numbers, speculation, text
from sglforge.smoke.recorded.model import Record, question
from sglforge.smoke.recorded.normalise import normalise

_JUDGES = (liveness.judge, numbers.judge, text.judge, speculation.judge, bench.judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The verdict on a recorded transcript; ``right`` names what was judged and found to be right."""

    where: str
    findings: tuple[Finding, ...]
    right: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """A fault fails, an open question or nothing to judge is inconclusive, a judged completion is a pass."""
        severities = {finding.severity for finding in self.findings}
        if Severity.ERROR in severities:
            return "fail"
        if not self.right or Severity.WARNING in severities:
            return "inconclusive"
        return "pass"

    def to_json(self) -> dict[str, object]:
        """Return CONTRACT's document."""
        return {
            "schema": 1,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "transcript": self.where,
            "right": list(self.right),
        }


def judge_recording(document: object, *, where: str) -> Recording:
    """Judge a transcript in any of the forms of docs/reference/transcripts.md.

    ``where`` names it in messages. Whether the document is one of sglforge's own (it has ``schema`` and ``subject``)
    is for the caller to ask first.

    Raises ConfigError: transcript-invalid (no object or list, wrong types, too deep or too large).
    """
    record = normalise(document, where=where)
    opinions = [judge(record) for judge in _JUDGES]
    findings = [finding for opinion in opinions for finding in opinion.findings]
    right = tuple(said for opinion in opinions for said in opinion.right)
    if not findings and not right:
        findings.append(_nothing(record))
    return Recording(where=where, findings=tuple(_placed(findings, where)), right=right)


def _placed(findings: list[Finding], where: str) -> list[Finding]:
    return [
        Finding(
            code=finding.code,
            severity=finding.severity,
            subject=finding.subject,
            message=finding.message,
            hint=finding.hint,
            where=finding.where or where,
            detail=finding.detail,
        )
        for finding in findings
    ]


def _nothing(record: Record) -> Finding:
    held = [f"{len(record.events)} requests" if record.events else "", "a log" if record.log else ""]
    said = " and ".join(one for one in held if one) or "nothing that is understood"
    return question(
        f"there is no completion to judge: the transcript holds {said}",
        "record a completion with its text and status; health alone says nothing about decoding",
    )
