"""Unified diffs of edited files, as git prints them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from sglforge.patches.pytext import PythonText


def unified(file: str, before: PythonText, after: PythonText) -> str:
    """Return the diff of one file that git apply takes (in the file's own encoding)."""
    old, new = (source.raw.decode(source.encoding).split("\n") for source in (before, after))
    lines = "".join(_lines(file, _with_ends(old), _with_ends(new)))
    return f"diff --git a/{file} b/{file}\n{lines}" if lines else ""


def _lines(file: str, old: list[str], new: list[str]) -> Iterator[str]:
    for line in difflib.unified_diff(old, new, f"a/{file}", f"b/{file}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _with_ends(lines: list[str]) -> list[str]:
    *whole, last = lines
    return [f"{line}\n" for line in whole] + ([last] if last else [])
