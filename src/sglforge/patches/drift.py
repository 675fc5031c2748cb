"""The drift matrix: what becomes of each topic on each upstream version, and what was expected to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from packaging.version import parse
from pydantic import Field, ValidationError

from sglforge.base.ids import Sha256, TreeId
from sglforge.config.model import FileModel, Name, Version
from sglforge.errors import Finding, PatchError, Severity
from sglforge.patches.result import PatchResult, TopicState

EXPECTATION_FILE = "drift.json"

LETTERS: Mapping[TopicState, str] = MappingProxyType(
    {
        TopicState.APPLIED: "A",
        TopicState.NOT_FOR_VERSION: "-",
        TopicState.SUPERSEDED: "S",
        TopicState.UPSTREAMED: "U",
        TopicState.UNSUPPORTED: "N",
        TopicState.DRIFTED: "D",
        TopicState.CONFLICT: "C",
        TopicState.CORRUPT: "X",
        TopicState.REJECTED: "R",
    }
)
"""A letter for each state, for tables and for eyes that do not tell colours apart."""
FAULTS = frozenset({TopicState.DRIFTED, TopicState.CONFLICT, TopicState.CORRUPT, TopicState.REJECTED})
"""States with which a series is not applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One topic on one version."""

    topic: str
    version: str
    state: TopicState
    message: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One version: the file that stands for it, the id of the patched tree (None: the series does not apply)."""

    version: str
    file: str
    sha256: Sha256
    tree_id: TreeId | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Topics by versions, the oldest first."""

    package: str
    topics: tuple[str, ...]
    columns: tuple[Column, ...]

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, version by version."""
        for column in self.columns:
            yield from column.cells

    def to_json(self) -> dict[str, object]:
        """Return the matrix as a document; a cell has the tree id of its version's whole series."""
        return {
            "package": self.package,
            "topics": list(self.topics),
            "versions": [
                {"version": column.version, "file": column.file, "sha256": column.sha256, "tree_id": column.tree_id}
                for column in self.columns
            ],
            "cells": [
                {
                    "topic": cell.topic,
                    "version": cell.version,
                    "state": cell.state.value,
                    "message": cell.message,
                    "tree_id": column.tree_id,
                    "findings": [finding.to_json() for finding in cell.findings],
                }
                for column in self.columns
                for cell in column.cells
            ],
        }


class Expectation(FileModel):
    """The states that are known and meant (`patches/<package>/drift.json`), topic by topic, version by version."""

    format: Annotated[Literal[1], Field(description="version of this format")]
    package: Annotated[Name, Field(description="package that it is about")]
    topics: Annotated[dict[Name, dict[Version, str]], Field(description="state by topic and version")]


def column(result: PatchResult, *, package: str, version: str, file: str, sha256: Sha256) -> Column:
    """Return what a series did to the tree of a version, topic by topic."""
    cells = []
    for topic in result.topics:
        own = tuple(finding for finding in result.findings if finding.subject == f"{package}/{topic.name}")
        cells.append(Cell(topic=topic.name, version=version, state=topic.state, message=topic.message, findings=own))
    return Column(version=version, file=file, sha256=sha256, tree_id=result.tree_id, cells=tuple(cells))


def read_expectation(path: Path) -> Expectation:
    """Read the states that are expected.

    Raises PatchError ``drift-file-invalid``.
    """
    try:
        return Expectation.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        problems = error.errors(include_url=False) if isinstance(error, ValidationError) else []
        told = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in problems[:3])
        raise PatchError(
            code="drift-file-invalid",
            message=f"{path.name} does not hold the states of topics: {told or error}",
            where=str(path),
            hint="it is generated: restore it from version control, or write it anew with --update",
        ) from error


def unexpected(
    matrix: Matrix, expectation: Expectation, *, where: Path, whole: bool, command: str = "nox -s drift -- --update"
) -> Iterator[Finding]:
    """Yield a finding for every cell that is not what is expected, and for every topic that came or went.

    Args:
        matrix: What was found.
        expectation: What is expected; versions that the matrix does not have do not count.
        where: The file that says it.
        whole: Whether the matrix has every topic of the series.
        command: What records the states that were found, for hints.
    """
    said = partial(_unexpected, command)
    if expectation.package != matrix.package:
        yield said(matrix.package, f"the file is about {expectation.package}", where, ())
        return
    for topic in matrix.topics:
        if topic not in expectation.topics:
            states = tuple(f"{cell.version}: {cell.state.value}" for cell in matrix.cells() if cell.topic == topic)
            yield said(f"{matrix.package}/{topic}", f"no states of {topic} are recorded", where, states)
    for cell in matrix.cells():
        recorded = expectation.topics.get(cell.topic)
        if recorded is None or recorded.get(cell.version) == cell.state.value:
            continue
        expected = recorded.get(cell.version)
        told = f"expected {expected}, it is" if expected else "nothing is recorded, it is"
        detail = tuple(finding.message for finding in cell.findings) or (cell.message,)
        subject = f"{matrix.package}/{cell.topic} {cell.version}"
        yield said(subject, f"{cell.topic} on {cell.version}: {told} {cell.state.value}", where, detail)
    for topic in sorted(expectation.topics.keys() - set(matrix.topics)) if whole else ():
        yield said(f"{matrix.package}/{topic}", f"states of {topic} are recorded, which is no topic", where, ())


def faults(matrix: Matrix) -> Iterator[Finding]:
    """Yield the findings of every cell whose topic is not applied through a fault, with its version."""
    for cell in matrix.cells():
        if cell.state in FAULTS:
            for finding in cell.findings:
                yield Finding(
                    code=finding.code,
                    severity=finding.severity,
                    subject=f"{finding.subject} {cell.version}",
                    message=f"{cell.version}: {finding.message}",
                    hint=finding.hint,
                    where=finding.where,
                    detail=finding.detail,
                )


def updated(matrix: Matrix, before: Expectation | None, *, topics: Sequence[str]) -> str:
    """Return the text of an expectation with the states of a matrix in it.

    Args:
        matrix: What was found.
        before: What was expected; versions and topics that the matrix does not have are kept.
        topics: The topics of the series, in its order; others are dropped.
    """
    known = dict(before.topics) if before and before.package == matrix.package else {}
    for cell in matrix.cells():
        known[cell.topic] = {**known.get(cell.topic, {}), cell.version: cell.state.value}
    document = {
        "format": 1,
        "package": matrix.package,
        "topics": {
            topic: dict(sorted(known[topic].items(), key=lambda entry: parse(entry[0])))
            for topic in topics
            if topic in known
        },
    }
    return json.dumps(document, indent=1) + "\n"


def text_of(matrix: Matrix) -> str:
    """Return the matrix for people: a row for each topic, a letter for each version, and what went wrong."""
    versions = [entry.version for entry in matrix.columns]
    prefix = _common(versions)
    heads = [version.removeprefix(prefix).replace(".post", "p") for version in versions]
    corner = f"{matrix.package} {prefix}x" if prefix else matrix.package
    first = max(len(corner), *(len(topic) for topic in matrix.topics))
    lines = ["  ".join([corner.ljust(first), *heads])]
    states = {(cell.topic, cell.version): cell for cell in matrix.cells()}
    for topic in matrix.topics:
        letters = [LETTERS[states[topic, version].state] for version in versions]
        marks = [letter.rjust(len(head)) for letter, head in zip(letters, heads, strict=True)]
        lines.append("  ".join([topic.ljust(first), *marks]))
    met = {cell.state for cell in matrix.cells()}
    lines += ["", "  ".join(f"{letter} {state.value}" for state, letter in LETTERS.items() if state in met)]
    lines += _explained(matrix)
    return "\n".join(line.rstrip() for line in lines)


def _explained(matrix: Matrix) -> Iterator[str]:
    """Yield what each topic says where it is not applied, once for the versions that it says it on."""
    versions = [column.version for column in matrix.columns]
    said: dict[tuple[str, TopicState, str], list[Cell]] = {}
    for cell in matrix.cells():
        if cell.state not in {TopicState.APPLIED, TopicState.NOT_FOR_VERSION}:
            told = cell.message.replace(f" for {cell.version} ", " for each ")
            said.setdefault((cell.topic, cell.state, told), []).append(cell)
    for (topic, state, told), cells in said.items():
        message = told if len(cells) > 1 else cells[0].message
        yield f"{state.value:<16} {topic} on {_runs([cell.version for cell in cells], versions)}: {message}"


def _runs(some: Sequence[str], versions: Sequence[str]) -> str:
    """Return some of the versions, three or more in a row as `first to last`."""
    runs: list[list[str]] = []
    for version in some:
        follows = runs and versions.index(version) == versions.index(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _unexpected(command: str, subject: str, message: str, where: Path, detail: tuple[str, ...]) -> Finding:
    return Finding(
        code="drift-unexpected",
        severity=Severity.ERROR,
        subject=subject,
        message=message,
        hint=f"correct the topic; or record what is meant: {command}",
        where=str(where),
        detail=detail,
    )


def _common(versions: Sequence[str]) -> str:
    """Return the leading numbers that all versions share, with the dot behind them."""
    shared = []
    for numbers in zip(*(version.split(".")[:2] for version in versions), strict=False):
        if len(set(numbers)) > 1:
            break
        shared.append(numbers[0])
    return "".join(f"{number}." for number in shared) if len(versions) > 1 else ""
