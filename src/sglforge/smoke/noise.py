"""By how much equal scores differ in an environment: what a run has seen, for the runs after it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from sglforge.base.files import write_json
from sglforge.base.workspace import Workspace
from sglforge.smoke.equality import spread_of
from sglforge.smoke.transcript import Observed

LIMIT = 0.5
"""The most, in nats, that is taken for noise: what differs more from one repeat to the next is a fault itself."""


def known(workspace: Workspace, receipt_sha256: str) -> float | None:
    """Return the largest spread of equal scores that an environment has shown, in nats; None before the first."""
    try:
        document = json.loads(_file(workspace, receipt_sha256).read_text(encoding="utf-8"))
        return min(float(document["spread"]), LIMIT)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(workspace: Workspace, receipt_sha256: str, observed: Iterable[Observed]) -> None:
    """Keep the largest spread that a run has seen, if it has scored anything and it is larger than what is known."""
    spreads = [spread for one in observed if (spread := spread_of(one)) is not None]
    before = known(workspace, receipt_sha256)
    if spreads and (before is None or max(spreads) > before):
        write_json(_file(workspace, receipt_sha256), {"schema": 1, "spread": min(max(spreads), LIMIT)})


def _file(workspace: Workspace, receipt_sha256: str) -> Path:
    return workspace.noise / f"{receipt_sha256}.json"
