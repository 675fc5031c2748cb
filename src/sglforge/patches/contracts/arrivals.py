"""Arrivals: where the payloads and diffs of topics stand in the Python files of a patched tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglforge.errors import PatchError
from sglforge.patches import edits
from sglforge.patches.contracts.origins import Brought, Origins, origins_of
from sglforge.patches.diffs import Diff, FileDiff, Hunk
from sglforge.patches.draft import Draft
from sglforge.patches.model import AnyEdit, DiffEdit, TextEdit, TomlEdit
from sglforge.patches.payload import Payload
from sglforge.patches.textlines import TextLines, read_lines
from sglforge.patches.topic import Topic


def arrivals(topics: Sequence[Topic], draft: Draft, version: str) -> Origins:
    """Return which lines of the edited Python files come from which payload or diff.

    What stands there no longer, or not as it was written, has no origin.
    """
    modules = draft.texts()
    brought: list[Brought] = []
    for topic in topics:
        for edit, _ in topic.edits(version):
            try:
                brought += [one for one in _brought(topic, draft, edit) if one.file in modules]
            except PatchError:
                continue
    return origins_of(brought)


def _brought(topic: Topic, draft: Draft, edit: AnyEdit) -> Iterator[Brought]:
    match edit:
        case TomlEdit():
            return
        case DiffEdit():
            diff = topic.diff(edit)
            for one in diff.files:
                if one.new:
                    yield from _of_diff(topic, draft, diff, one, draft.place(one.new))
        case TextEdit():
            file, payload = draft.locate(edit.file), topic.payloads[edit.payload]
            yield from _of_text(topic, draft, payload, file)
        case _:
            file, payload = draft.locate(edit.file), topic.payloads[edit.payload]
            shift = edits.shift(draft.python(file), edit, payload)
            if shift is not None:
                yield _whole(topic, payload, file, 1 + shift)


def _of_text(topic: Topic, draft: Draft, payload: Payload, file: str) -> Iterator[Brought]:
    lines = tuple(payload.text.encode().removesuffix(b"\n").split(b"\n"))
    for index in _lines(draft, file).positions(lines):
        yield _whole(topic, payload, file, index + 1)


def _whole(topic: Topic, payload: Payload, file: str, first: int) -> Brought:
    last = first + payload.text.count("\n") - 1
    return Brought(topic=topic.name, file=file, first=first, last=last, payload=payload.where, line=1)


def _of_diff(topic: Topic, draft: Draft, diff: Diff, file: FileDiff, place: str) -> Iterator[Brought]:
    """Yield the added lines of a diff; where a hunk fits several places, the one nearest to its own counts."""
    source = _lines(draft, place)
    for hunk in file.hunks:
        whole = source.positions(hunk.new)
        start = min(whole, key=lambda index: abs(index + 1 - hunk.start), default=None)
        for written, offset, run in _added(file, hunk):
            found = source.positions(run) if start is None else [start + offset]
            at = min(found, key=lambda index: abs(index + 1 - hunk.start), default=None)
            if at is not None:
                last = at + len(run)
                yield Brought(topic=topic.name, file=place, first=at + 1, last=last, payload=diff.where, line=written)


def _added(file: FileDiff, hunk: Hunk) -> Iterator[tuple[int, int, tuple[bytes, ...]]]:
    """Yield each run of added lines: its line in the diff, its index in the hunk's new lines, the lines."""
    text = file.text.split(b"\n")[hunk.line - file.line + 1 :]
    index, previous = 0, b""
    runs = iter(hunk.added)
    for number, line in enumerate(text, start=hunk.line + 1):
        if index >= len(hunk.new):
            return
        kind = line[:1]
        if kind == b"+" and previous != b"+":
            yield number, index, next(runs)
        index += kind not in {b"-", b"\\"}
        previous = kind


def _lines(draft: Draft, file: str) -> TextLines:
    state = draft.read(file)
    return read_lines(state.raw if state else b"", file)
