"""Edits of text files: an anchor of whole lines that must be there exactly once."""

from __future__ import annotations

from sglforge.errors import PatchError
from sglforge.patches.faults import already_there, drifted
from sglforge.patches.model import TextEdit
from sglforge.patches.payload import Payload
from sglforge.patches.textlines import TextLines, lines_for, read_lines


def apply_text(raw: bytes, file: str, edit: TextEdit, payload: Payload) -> bytes:
    """Return the edited bytes; every byte outside the inserted or replaced lines is the one it was.

    Raises PatchError ``patch-drifted``, ``patch-anchor-ambiguous``, ``patch-already-there``, ``patch-corrupt`` and
    ``patch-target-unreadable``.
    """
    source = read_lines(raw, file)
    new = lines_for(payload.text, source, "the payload")
    if (line := _there(source, edit, new)) is not None:
        raise already_there(file, edit.payload, line)
    anchor = lines_for(edit.anchor, source, "the anchor")
    places = source.positions(anchor)
    if len(places) != 1:
        raise _not_once(source, anchor, places)
    start, end = places[0], places[0] + len(anchor)
    match edit.operation:
        case "insert-before":
            return source.spliced(start, start, new).raw
        case "insert-after":
            return source.spliced(end, end, new).raw
        case "replace":
            return source.spliced(start, end, new).raw


def has_text(raw: bytes, file: str, edit: TextEdit, payload: Payload) -> bool:
    """Tell whether a text holds an edit's payload where the edit puts it."""
    try:
        source = read_lines(raw, file)
        return _there(source, edit, lines_for(payload.text, source, "the payload")) is not None
    except PatchError:
        return False


def holds_text(raw: bytes, file: str, payload: Payload) -> bool:
    """Tell whether the lines of a payload stand in a text, wherever that is."""
    try:
        source = read_lines(raw, file)
        return bool(source.positions(lines_for(payload.text, source, "the payload")))
    except PatchError:
        return False


def _there(source: TextLines, edit: TextEdit, new: tuple[bytes, ...]) -> int | None:
    """Return the line where the payload stands beside its anchor, or in its place."""
    anchor = lines_for(edit.anchor, source, "the anchor")
    found = source.positions(new)
    if edit.operation == "replace" and len(found) > 1:  # nothing tells which of them the edit would have made
        return None
    anchors = source.positions(anchor)
    for index in found:
        inside = range(index, index + len(new))
        there = {
            "insert-before": index + len(new) in anchors,
            "insert-after": index - len(anchor) in anchors,
            "replace": all(place in inside for place in anchors),
        }
        if there[edit.operation]:
            return index + 1
    return None


def _not_once(source: TextLines, anchor: tuple[bytes, ...], places: list[int]) -> PatchError:
    first = anchor[0].decode(errors="replace")
    if places:
        lines = ", ".join(str(place + 1) for place in places)
        return PatchError(
            code="patch-anchor-ambiguous",
            message=f"{source.file} has the anchor `{first}` {len(places)} times, on lines {lines}",
            hint="an anchor must name one thing: add lines before or after it to the anchor",
        )
    alike = [number for number, line in enumerate(source.bare, start=1) if line.strip() == anchor[0].strip()]
    near = f"; its first line, differently indented or followed, is on line {alike[0]}" if alike else ""
    return drifted(f"{source.file} has no lines `{first}`{' ...' if len(anchor) > 1 else ''}{near}")
