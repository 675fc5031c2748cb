"""Faults that sglforge can name: findings, errors, exit codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

Verdict = Literal["pass", "warn", "fail", "inconclusive", "unknown"]

EXIT_BUG = 70
EXIT_INTERRUPTED = 130


class Severity(StrEnum):
    """How much a finding matters: an error stops the stage, a warning is shown, info is free."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault or remark, in the form every verb prints.

    ``code`` is kebab-case and has a page ``docs/errors/<code>.md``; ``where`` is ``file:line`` or None;
    ``hint`` says what to do, as a command where there is one.
    """

    code: str
    severity: Severity
    message: str
    subject: str = ""
    hint: str = ""
    where: str | None = None
    detail: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the finding as CONTRACT's document."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "subject": self.subject,
            "message": self.message,
            "hint": self.hint,
            "where": self.where,
            "detail": list(self.detail),
        }


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of a complete list of findings: fail, warn or pass."""
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return "fail"
    return "warn" if Severity.WARNING in severities else "pass"


@dataclass(eq=False, kw_only=True)
class SglforgeError(Exception):
    """A fault with a name, a place and a way out.

    ``findings`` holds every fault when one pass found several; the error then speaks for all of them.
    ``log`` names a file with the full output of the process that failed, if one did.
    """

    exit_code: ClassVar[int] = EXIT_BUG

    code: str
    message: str
    where: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    findings: tuple[Finding, ...] = ()
    log: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message} [{self.code}]"

    def as_findings(self) -> tuple[Finding, ...]:
        """Return the faults behind this error, at least one."""
        if self.findings:
            return self.findings
        return (
            Finding(
                code=self.code,
                severity=Severity.ERROR,
                message=self.message,
                hint=self.hint,
                where=self.where,
                detail=tuple(f"{key}: {value}" for key, value in self.context.items()),
            ),
        )


class ConfigError(SglforgeError):
    """A recipe, profile or command line is wrong."""

    exit_code = 2


class LockError(SglforgeError):
    """A lock is missing, stale or cannot be made."""

    exit_code = 3


class DoctorError(SglforgeError):
    """This machine cannot do what was asked."""

    exit_code = 4


class FetchError(SglforgeError):
    """A source could not be had, or is not what the lock says."""

    exit_code = 5


class PatchError(SglforgeError):
    """A patch does not apply, or its contract does not hold."""

    exit_code = 6


class BuildError(SglforgeError):
    """A package did not build."""

    exit_code = 7


class CheckError(SglforgeError):
    """An artifact is not fit for its target."""

    exit_code = 8


class InstallError(SglforgeError):
    """The environment could not be made, or is not what its receipt says."""

    exit_code = 9


class RenderError(SglforgeError):
    """A profile cannot be rendered, or what it says cannot work."""

    exit_code = 10


class SmokeError(SglforgeError):
    """A server did not start, or did not decode well."""

    exit_code = 11
