"""Cases of kind tree: a patch against a source tree, both made from the few words of the case and really applied.

A case may hold the diff (``patch``) and the file that it meets (``base``: ``name: 'text'``); the place that it is for
(``patch_target``) and the files that there are (``tree``); or only how `git apply --check` went forward and in reverse
(``forward_check``, ``reverse_check``), for which a small tree is made that gives just these answers.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from cases.model import CaseError, Judgement
from sglforge.errors import Finding, PatchError, verdict_of
from sglforge.patches.apply import apply_series
from sglforge.patches.series import load_series

_TOPIC = """
description = "The patch of a public report."
origin = "sglforge"
reason = "It was reported."
reference = "the case file"
forwarded = "not-needed"
versions = ">=0"
"""
_BEFORE, _AFTER, _OTHER = "one\ntwo\nthree\n", "one\n2\nthree\n", "one\nzwei\nthree\n"
_HUNK = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


def judge(given: Mapping[str, Any]) -> Judgement | None:
    """Apply what a case describes to the tree that it describes; None when it describes none."""
    made = _made(given)
    if made is None:
        return None
    patch, files = made
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        root = Path(folder)
        for name, text in files.items():
            _put(root / "tree", name, text)
        (root / "tree").mkdir(exist_ok=True)
        topic = root / "patches" / "case" / "reported"
        _write(topic / "patch.toml", _TOPIC + '\n[[edits]]\nkind = "diff"\npayload = "reported.patch"\n')
        _write(topic / "reported.patch", patch)
        _write(topic.parent / "series.toml", 'topics = ["reported"]\n')
        findings = _findings(root)
    return Judgement(verdict=verdict_of(findings), findings=findings)


def _findings(root: Path) -> tuple[Finding, ...]:
    try:
        series = load_series(root, "case")
        assert series is not None
        return apply_series(series, root / "tree", version="1.0").findings
    except PatchError as error:
        return error.as_findings()


def _made(given: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """Return the diff and the files of the tree that a case is about."""
    files = _files(given.get("tree"))
    if isinstance(base := given.get("base"), str):
        name, text = _named(base)
        files[name] = text
        return _with_names(_unescaped(str(given.get("patch", ""))), name), files
    if isinstance(patch := given.get("patch"), str):
        return _unescaped(patch), files
    if isinstance(target := given.get("patch_target"), str):
        return _with_names(_HUNK, target), files
    if "forward_check" in given or "reverse_check" in given:
        forward, reverse = (given.get(f"{way}_check") == "ok" for way in ("forward", "reverse"))
        files["carried.txt"] = _BEFORE if forward else _AFTER if reverse else _OTHER
        return _with_names(_HUNK, "carried.txt"), files
    return None


def _files(tree: object) -> dict[str, str]:
    if isinstance(tree, Mapping):
        return {str(name): str(text) for name, text in tree.items()}
    return {str(name): _BEFORE for name in tree} if isinstance(tree, list) else {}


def _named(base: str) -> tuple[str, str]:
    name, _, quoted = base.partition(":")
    text = quoted.strip()
    if text[:1] in {"'", '"'}:
        try:
            text = str(ast.literal_eval(text.replace("\n", "\\n")))
        except (SyntaxError, ValueError) as error:
            raise CaseError(f"`input.base` must be `name: 'text'`: {name} has a text that does not end") from error
    return name.strip(), text if text.endswith("\n") else f"{text}\n"


def _unescaped(patch: str) -> str:
    text = patch.replace("\\n", "\n") if "\n" not in patch else patch
    return text if text.endswith("\n") else f"{text}\n"


def _with_names(patch: str, name: str) -> str:
    return patch if "+++ " in patch else f"--- a/{name}\n+++ b/{name}\n{patch}"


def _put(tree: Path, name: str, text: str) -> None:
    """Write a file of a case's tree, and never one beside it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise CaseError(f"`input` names {name!r}, which is no file inside a tree")
    try:
        _write(tree / path, text)
    except (OSError, ValueError) as error:
        raise CaseError(f"`input` names {name!r}, which a tree cannot have: {error}") from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
