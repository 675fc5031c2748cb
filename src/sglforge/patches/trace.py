"""Which upstream commit took away what a topic is anchored on, where the tree has a git history."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sglforge.errors import PatchError
from sglforge.patches.anchors import find
from sglforge.patches.draft import Draft
from sglforge.patches.history import History
from sglforge.patches.layout import first_line, last_line
from sglforge.patches.model import AnyEdit, DiffEdit, InsertEdit, PythonEdit, ReplaceEdit, TextEdit, TomlEdit
from sglforge.patches.topic import Topic
from sglforge.trees.layout import either_layout

_SPECIAL = re.compile(r"([.^$*+?()\[\]{}|\\])")


def last_change(draft: Draft, topic: Topic, edit: AnyEdit) -> str:
    """Return the commit that most likely made a topic drift, or an empty text when nothing tells.

    It is the last one that deleted the file, changed how often the anchor is in it, or rewrote what is replaced.
    """
    history = draft.checkout.history
    if history is None:
        return ""
    names = [file.old for file in topic.diff(edit).files if file.old] if isinstance(edit, DiffEdit) else edit.file
    places = [place for name in names for place in either_layout(draft.checkout.root, name)]
    there = [place for place in places if draft.has(place)]
    if len(there) < len(names) and (isinstance(edit, DiffEdit) or not there):
        return history.departure([place for place in places if not draft.has(place)])
    match edit:
        case DiffEdit():
            return _hunk_change(history, draft, topic, edit, there)
        case TextEdit():
            return _line_change(history, draft, edit.anchor.encode().split(b"\n"), there)
        case TomlEdit():
            return history.removal(_literal(edit.key.rpartition(".")[2].strip("\"'")), there)
        case _:
            return _anchor_change(history, draft, edit, there[0])


def _anchor_change(history: History, draft: Draft, edit: PythonEdit, file: str) -> str:
    if edit.anchor is None:
        spot = None
    else:
        try:
            spot = find(draft.python(file).module, edit.anchor, file)
        except PatchError:
            name = _literal(edit.anchor.rpartition(".")[2])
            return history.removal(f"(def|class)[[:space:]]+{name}[^A-Za-z0-9_]", [file])
    if isinstance(edit, InsertEdit) and edit.statement:
        word = edit.statement.literal or (edit.statement.name or "").rpartition(".")[2]
        return history.removal(_literal(word), [file]) if word else ""
    if isinstance(edit, ReplaceEdit) and spot is not None:
        source = draft.python(file)
        node = spot.node(source.module)
        return history.rewrite(file, first_line(source, node), last_line(source, node))
    return ""


def _hunk_change(history: History, draft: Draft, topic: Topic, edit: DiffEdit, places: Sequence[str]) -> str:
    """Return the last commit about a line that a hunk expects and that is gone."""
    lines = [line for file in topic.diff(edit).files for hunk in file.hunks for line in hunk.old]
    return _line_change(history, draft, lines, places)


def _line_change(history: History, draft: Draft, lines: Sequence[bytes], places: Sequence[str]) -> str:
    there = {line.rstrip(b"\r") for place in places if (file := draft.read(place)) for line in file.raw.split(b"\n")}
    gone = [line for line in lines if line.strip() and line.rstrip(b"\r") not in there]
    longest = max(gone, key=len, default=b"").decode(errors="replace").strip()
    return history.removal(_literal(longest), places) if longest else ""


def _literal(text: str) -> str:
    """Return the POSIX regular expression for a text."""
    return _SPECIAL.sub(r"\\\1", text)
