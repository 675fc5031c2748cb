"""Waivers: what is said about a contract that a topic switches off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglforge.errors import Finding, Severity
from sglforge.patches.contracts.model import Waiver
from sglforge.patches.topic import Topic


def waivers(topic: Topic) -> Iterator[tuple[Waiver, str]]:
    """Yield each waiver of a topic with the ``file:line`` that it stands on."""
    for index, waiver in enumerate(topic.file.contracts.waive):
        yield waiver, topic.document.where(("contracts", "waive", index))


def remark(waiver: Waiver, where: str, hidden: Sequence[Finding] | None = None) -> Finding:
    """Return the warning about a waiver; ``hidden`` are the faults that it hides, None where nobody looked."""
    useless = hidden is not None and not hidden
    return Finding(
        code="patch-contract-waived",
        severity=Severity.WARNING,
        message=f"the contract `{waiver.contract}` is switched off for this topic: {waiver.reason}",
        hint="it hides nothing: take it out" if useless else "correct what it hides, then take the waiver out",
        where=where,
        detail=tuple(f"hidden: {finding.code}: {finding.message}" for finding in hidden or ()),
    )
