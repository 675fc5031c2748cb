"""Faults of topics: each code with the state that it leaves a topic in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sglforge.errors import PatchError
from sglforge.patches.result import TopicState

STATES: Mapping[str, TopicState] = MappingProxyType(
    {
        "patch-drifted": TopicState.DRIFTED,
        "patch-neither-applied-nor-applicable": TopicState.DRIFTED,
        "patch-target-moved": TopicState.DRIFTED,
        "patch-target-ambiguous": TopicState.DRIFTED,
        "patch-anchor-ambiguous": TopicState.DRIFTED,
        "patch-target-unreadable": TopicState.DRIFTED,
        "patch-already-there": TopicState.CONFLICT,
        "patch-conflict": TopicState.CONFLICT,
        "patch-corrupt": TopicState.CORRUPT,
        "patch-without-edits": TopicState.CORRUPT,
        "patch-path-unsafe": TopicState.CORRUPT,
        "patch-no-effect": TopicState.REJECTED,
        "patch-changes-flow": TopicState.REJECTED,
        "patch-misplaced": TopicState.REJECTED,
        "patch-does-not-compile": TopicState.REJECTED,
        "patch-undefined-name": TopicState.REJECTED,
        "patch-attribute-unset": TopicState.REJECTED,
        "patch-attribute-unassigned-in-subclass": TopicState.REJECTED,
        "patch-refusal-missing": TopicState.REJECTED,
        "patch-declaration-unknown": TopicState.REJECTED,
        "patch-flag-missing": TopicState.REJECTED,
        "patch-evidence-missing": TopicState.REJECTED,
    }
)
"""The state that each fault of a topic means."""


def corrupt(message: str, *, where: str | None = None, hint: str = "correct the topic") -> PatchError:
    """Return the fault of a topic that is broken in itself."""
    return PatchError(code="patch-corrupt", message=message, where=where, hint=hint)


def drifted(message: str, *, hint: str = "") -> PatchError:
    """Return the fault of a topic whose anchor is gone."""
    return PatchError(
        code="patch-drifted",
        message=message,
        hint=hint or "adapt the anchor to this version, or narrow the topic's `versions`",
    )


def already_there(file: str, what: str, line: int) -> PatchError:
    """Return the fault of an edit that the tree holds already."""
    return PatchError(
        code="patch-already-there",
        message=f"{file} holds what {what} would add already, on line {line}",
        hint="patch a fresh tree; if the tree is fresh, upstream has the change and the topic can be dropped",
    )


def unsafe(message: str, *, where: str | None = None) -> PatchError:
    """Return the fault of a path that leads out of the tree."""
    return PatchError(
        code="patch-path-unsafe",
        message=message,
        where=where,
        hint="a topic edits files of the tree, by relative paths, and no others",
    )
