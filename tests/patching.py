"""One topic on a small tree of ours, applied by the real series."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.patches.apply import apply_series
from sglforge.patches.result import PatchResult
from sglforge.patches.series import Series, load_series

WORDS = """
description = "d"
origin = "sglforge"
reason = "r"
reference = "x"
forwarded = "no"
versions = ">=0.1"
"""


@dataclass(frozen=True, slots=True)
class Put:
    """An edit: the code goes to an anchor of a file; of the kind `diff`, it is a unified diff."""

    operation: str
    anchor: str
    code: str
    file: str = "pkg/worker.py"
    kind: str = "python"

    def table(self, payload: str) -> str:
        """Return the edit as TOML."""
        fields = {"kind": self.kind, "payload": payload}
        if self.kind != "diff":
            fields |= {"operation": self.operation, "anchor": self.anchor, "file": self.file}
        return "\n".join(["[[edits]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items() if value)])


def series_of(root: Path, *edits: Put, more: str = "") -> Series:
    """Write a catalog with the topic `one` of the package `toy`, and read its series."""
    folder = root / "patches/toy/one"
    (folder / "payload").mkdir(parents=True)
    for number, put in enumerate(edits):
        (folder / f"payload/{number}.py").write_text(put.code)
    tables = [put.table(f"payload/{number}.py") for number, put in enumerate(edits)]
    (folder / "patch.toml").write_text("\n".join([WORDS, more, *tables, ""]))
    (folder.parent / "series.toml").write_text('topics = ["one"]\n')
    series = load_series(root, "toy")
    assert series is not None
    return series


def patch(root: Path, files: Mapping[str, str], *edits: Put, more: str = "") -> PatchResult:
    """Write a tree, and apply a topic of these edits to it."""
    for name, content in files.items():
        path = root / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return apply_series(series_of(root / "catalog", *edits, more=more), root / "tree", version="1.0")
