"""What became of a series: a state for each topic, the tree id, the effective diff."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sglforge.base.ids import TreeId
from sglforge.errors import Finding, PatchError, Severity


class TopicState(StrEnum):
    """How a topic ended."""

    APPLIED = "applied"
    NOT_FOR_VERSION = "not-for-version"
    SUPERSEDED = "superseded"
    """Something else does its work in this version."""
    UPSTREAMED = "upstreamed"
    """Upstream has the change itself."""
    UNSUPPORTED = "unsupported"
    """This version would need it, and it is not written for it."""
    DRIFTED = "drifted"
    """What it is anchored on is gone, ambiguous or another text."""
    CONFLICT = "conflict"
    """The tree holds the edit already, or another topic undoes it."""
    CORRUPT = "corrupt"
    """The topic itself is broken."""
    REJECTED = "rejected"
    """It applies, but without effect or against a contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Why a topic is not applied; ``error`` when that is a fault."""

    state: TopicState
    message: str
    error: PatchError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """One topic: ``files`` are the files that it edits, ``evidence`` the log text that shows it at work."""

    name: str
    state: TopicState
    message: str
    files: tuple[str, ...] = ()
    evidence: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the result as a document."""
        return {
            "name": self.name,
            "state": self.state.value,
            "message": self.message,
            "files": list(self.files),
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchResult:
    """What a series did to a tree.

    ``tree_id`` is None when a finding is an error: then nothing was written and ``diff`` is empty. ``diff``
    is the effective unified diff, for display: its lines are decoded from each file's own encoding.
    """

    topics: tuple[TopicResult, ...]
    tree_id: TreeId | None
    diff: str
    findings: tuple[Finding, ...]

    def require(self) -> TreeId:
        """Return the tree id of a series that applied.

        Raises PatchError with every finding when it did not; its code is the first finding's.
        """
        if self.tree_id is not None:
            return self.tree_id
        faults = [finding for finding in self.findings if finding.severity is Severity.ERROR]
        first = faults[0]
        count = len(faults)
        raise PatchError(
            code=first.code,
            message=first.message if count == 1 else f"the series does not apply: {count} faults",
            where=first.where,
            hint=first.hint,
            findings=self.findings,
        )
