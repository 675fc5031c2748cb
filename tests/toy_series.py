"""A catalog with one package, `toy`, whose topics tests write, and a small tree of it."""

from __future__ import annotations

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
"""
WORKER = '''\
"""A worker."""


class Worker:
    def __init__(self, size):
        self.size = size

    def run(self, batch):
        return batch[: self.size]
'''


def edit(operation: str, payload: str, anchor: str = "", file: str = "pkg/worker.py", **more: str) -> str:
    fields = {"kind": "python", "file": file, "operation": operation, "payload": f"payload/{payload}.py", **more}
    if anchor:
        fields["anchor"] = anchor
    return "\n[[edits]]\n" + "".join(f'{key} = "{value}"\n' for key, value in fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A catalog with the series of one package, `toy`, and a tree of it."""

    root: Path
    tree: Path

    @property
    def folder(self) -> Path:
        return self.root / "patches" / "toy"

    def topic(self, name: str, edits: str, *, versions: str = ">=1", words: str = WORDS, **payloads: str) -> None:
        """Add a topic to the series: its edits as TOML, its payloads by stem."""
        (self.folder / name / "payload").mkdir(parents=True)
        (self.folder / name / "patch.toml").write_text(f'{words}versions = "{versions}"\n{edits}')
        for stem, code in payloads.items():
            (self.folder / name / "payload" / f"{stem}.py").write_text(code)
        self.series(*sorted(path.parent.name for path in self.folder.glob("*/patch.toml")))

    def series(self, *names: str) -> None:
        words = ", ".join(f'"{name}"' for name in names)
        (self.folder / "series.toml").write_text(f"topics = [{words}]\n")

    def load(self) -> Series:
        series = load_series(self.root, "toy")
        assert series is not None
        return series

    def apply(self, version: str = "1.0", topic: str | None = None) -> PatchResult:
        return apply_series(self.load(), self.tree, version=version, topic=topic)

    def fill(self, files: Mapping[str, bytes | str]) -> None:
        for name, content in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def contents(self) -> dict[str, bytes]:
        found = sorted(path for path in self.tree.rglob("*") if path.is_file() and not path.is_symlink())
        return {path.relative_to(self.tree).as_posix(): path.read_bytes() for path in found}
