"""The last build of each package here: what a plan compares with, and what it took.

One small document for each target, Python and package, replaced as a whole, so that a plan reads just those that it
asks for, however large the store is. It stays when the wheel goes. It is a remark, not a record: a run that is killed
between the store and here leaves the build before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from sglforge.base.files import write_json
from sglforge.base.workspace import Workspace
from sglforge.keys.parts import Parts
from sglforge.plan import Estimate, LastBuild

SCHEMA = 1
KEPT = ("build-key", "key-parts", "started", "seconds", "resources")


def remember(workspace: Workspace, provenance: Mapping[str, object]) -> None:
    """Write down the build that a provenance tells of, which has just ended well."""
    match provenance:
        case {"package": str(package), "python": str(minor), "key-parts": {"target": {"name": str(target)}}}:
            kept = {name: provenance[name] for name in KEPT if name in provenance}
            write_json(_path(workspace, package, target, minor), {"schema": SCHEMA, **kept})
        case _:
            raise TypeError("a provenance names package, Python and target")


def last_build(workspace: Workspace, *, package: str, target: str, python_minor: str) -> LastBuild | None:
    """Return the last build of a package for a target and a Python; None where none is known or can be read."""
    try:
        document = json.loads(_path(workspace, package, target, python_minor).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    match document:
        case {"schema": 1, "key-parts": dict(parts)}:
            return LastBuild(key_parts=parts, took=_took(document))
        case _:
            return None


def _took(document: Parts) -> Estimate:
    resources = document.get("resources")
    peak = resources.get("peak_rss_mib") if isinstance(resources, Mapping) else None
    return Estimate(seconds=_number(document.get("seconds")), peak_rss_mib=_number(peak))


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    return None


def _path(workspace: Workspace, package: str, target: str, python_minor: str) -> Path:
    return workspace.history / target / python_minor / f"{package}.json"
