"""Verdicts that were reached before, so that a build with nothing to do can cite them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sglforge.base.files import digest, sha256_file, write_json
from sglforge.base.workspace import Workspace
from sglforge.launch.written import TEMPLATE, rules_path, templates_path

if TYPE_CHECKING:
    from sglforge.config.model import Profile
    from sglforge.smoke.verdict import SmokeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A stored report that passed, and its age in seconds."""

    report: Mapping[str, object]
    age_s: float

    def describe(self) -> str:
        """Return the words that cite it."""
        return f"proven {_ago(self.age_s)} ago, verdict {self.report['verdict']}, scope {self.report['scope']}"


def key(profile: Profile, *, receipt_sha256: str, catalog_root: Path, host: Mapping[str, str]) -> str:
    """Return what a verdict holds for: environment, profile, launch rules and template, model files, machine."""
    from sglforge.launch.options import server_options

    models = {
        str(path.relative_to(folder)): sha256_file(path)
        for folder in server_options(profile, catalog_root=catalog_root).model_folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    rules = rules_path(catalog_root, profile.target)
    return digest(
        {
            "receipt": receipt_sha256,
            "profile": profile.model_dump(mode="json"),
            "rules": sha256_file(rules) if rules.is_file() else None,
            "template": sha256_file(templates_path(catalog_root) / TEMPLATE),
            "models": models,
            "host": dict(host),
        }
    )


def write(workspace: Workspace, name: str, report: SmokeReport, *, run: str) -> None:
    """Store a report under its key; a later one replaces it, whatever its verdict."""
    write_json(workspace.verdicts / f"{name}.json", {"time": time.time(), "run": run, "report": report.to_json()})


def read(workspace: Workspace, name: str) -> Proof | None:
    """Return the stored report of a key if it passed; anything else proves nothing."""
    try:
        document = json.loads((workspace.verdicts / f"{name}.json").read_text(encoding="utf-8"))
        report, age_s = document["report"], max(0.0, time.time() - document["time"])
        if report["verdict"] not in {"pass", "warn"}:
            return None
        return Proof(report={**report, "run": document["run"]}, age_s=age_s)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{int(seconds)} s"
