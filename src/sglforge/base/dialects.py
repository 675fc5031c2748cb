"""How a log is written for who shows it: as it is, or with the marks of GitHub Actions and GitLab CI.

Sources: docs.github.com, "Workflow commands for GitHub Actions" (and the runner's ActionCommand, which takes a command
after white space, and one that begins with ``##[`` anywhere); docs.gitlab.com, "CI/CD job logs", collapsible sections.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.errors import Finding, Severity

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_PLACE = re.compile(r"(?P<file>[^\n]+?):(?P<line>[0-9]+)")
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def without_control(text: str) -> str:
    """Return a text without colours, other control characters and Unicode's line ends, which it may have from a log."""
    return _CONTROL.sub("", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Nothing is folded."""

    folds = False

    def harmless(self, text: str) -> str:
        """Return a text that the one who shows it takes as text, whatever it says."""
        return without_control(text)

    def block(self, title: str, lines: Sequence[str], *, started: float, ended: float) -> str:
        """Return a line with others below it; ``started`` and ``ended`` are seconds since the epoch."""
        del started, ended
        return "\n".join(self.harmless(line) for line in (title, *lines))

    def headline(self, finding: Finding) -> str:
        """Return the first line of a finding."""
        place = f"{finding.where}: " if finding.where else ""
        return self.harmless(f"{finding.severity.value}: {place}{finding.message} [{finding.code}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHub(Plain):
    """Groups and annotations of GitHub Actions; ``root`` is the checkout that annotations are relative to."""

    folds = True
    root: Path | None = None

    def harmless(self, text: str) -> str:
        """Return a text without commands to the runner."""
        lines = without_control(text).replace("##[", "# #[").split("\n")
        return "\n".join(f"| {line}" if line.lstrip().startswith("::") else line for line in lines)

    def block(self, title: str, lines: Sequence[str], *, started: float, ended: float) -> str:
        """Return a group, whole."""
        del started, ended
        if not lines:
            return self.harmless(title)
        inside = "\n".join(self.harmless(line) for line in lines)
        return f"::group::{_data(without_control(title))}\n{inside}\n::endgroup::"

    def headline(self, finding: Finding) -> str:
        """Return an annotation, which is shown in the log as well."""
        properties = {"title": finding.code}
        message = finding.message
        if finding.where:
            place = _PLACE.fullmatch(finding.where)
            if place:
                properties |= {"file": self._relative(place["file"]), "line": place["line"]}
            elif "://" not in finding.where:
                properties["file"] = self._relative(finding.where)
            message = f"{finding.where}: {message}"
        told = ",".join(f"{name}={_property(without_control(value))}" for name, value in properties.items())
        return f"::{_LEVELS[finding.severity]} {told}::{_data(without_control(f'{message} [{finding.code}]'))}"

    def _relative(self, file: str) -> str:
        return os.path.relpath(file, self.root) if self.root and Path(file).is_relative_to(self.root) else file


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLab(Plain):
    """Collapsible sections of GitLab CI."""

    folds = True

    def block(self, title: str, lines: Sequence[str], *, started: float, ended: float) -> str:
        """Return a section, whole, with the times that it was open."""
        if not lines:
            return self.harmless(title)
        name = f"sglforge_{os.urandom(4).hex()}"
        first = f"\x1b[0Ksection_start:{started:.0f}:{name}[collapsed=true]\r\x1b[0K{self.harmless(title)}"
        inside = "\n".join(self.harmless(line) for line in lines)
        return f"{first}\n{inside}\n\x1b[0Ksection_end:{ended:.0f}:{name}\r\x1b[0K"


Dialect = Plain | GitHub | GitLab


def dialect_of(environment: Mapping[str, str]) -> Dialect:
    """Return the dialect of the CI system that the environment is of."""
    if environment.get("GITHUB_ACTIONS") == "true":
        root = environment.get("GITHUB_WORKSPACE")
        return GitHub(root=Path(root) if root else None)
    return GitLab() if environment.get("GITLAB_CI") == "true" else Plain()


def markdown(text: str) -> str:
    """Return a text as one cell of a Markdown table, every mark of Markdown and HTML in it taken literally."""
    one_line = " ".join(without_control(text).split())
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", ":": "&#58;"}
    escaped = (entities.get(char) or (f"\\{char}" if char in "\\`*_{}[]()#+-.!|~$" else char) for char in one_line)
    return "".join(escaped)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
