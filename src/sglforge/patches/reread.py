"""Payloads read back from a tree in which somebody edited them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sglforge.errors import PatchError
from sglforge.patches.draft import Draft
from sglforge.patches.layout import file_unit
from sglforge.patches.model import PythonEdit, TextEdit
from sglforge.patches.parameters import fitted, renamed, upstream_names
from sglforge.patches.payload import Payload
from sglforge.patches.regions import Region, as_payload, changes, find_region, indentation, moved, owners
from sglforge.patches.topic import Topic

PayloadEdit = PythonEdit | TextEdit
_LONE = re.compile("[\\ud800-\\udfff]")
"""What bytes that are not UTF-8 become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Payloads by their names in the topic, and the places that are in none of them."""

    payloads: dict[str, Payload] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def reread(topic: Topic, edits: Sequence[PayloadEdit], applied: Draft, goal: Draft, *, lower: bool) -> Reading:
    """Return the payloads that were edited between two states of a tree, the topic applied and the edited one.

    ``lower``: what was added where two payloads meet belongs to the lower one.

    Raises PatchError ``patch-target-unreadable`` when an edited Python file is none any more.
    """
    reading = Reading()
    for file in sorted({*applied.since(goal), *goal.since(applied)}):
        before, after = applied.read(file), goal.read(file)
        if before is None or after is None or before.executable != after.executable:
            reading.faults.append(f"{file} came, went or got another mode")
            continue
        own = [edit for edit in edits if file in _places(edit, applied)]
        for edit, text in _texts(
            _File(topic=topic, name=file, applied=applied, goal=goal), own, reading.faults, lower=lower
        ):
            payload = Payload(text=text, where=topic.payloads[edit.payload].where)
            if reading.payloads.setdefault(edit.payload, payload) != payload:
                reading.faults.append(f"{edit.payload} stands in two places, which were edited differently")
    return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file with the topic applied and as it was edited."""

    topic: Topic
    name: str
    applied: Draft
    goal: Draft

    def standing(self, edit: PayloadEdit) -> Payload:
        """Return an edit's payload as it stands in the file, but for its indentation."""
        payload = self.topic.payloads[edit.payload]
        return payload if isinstance(edit, TextEdit) else fitted(payload, self.applied.python(self.name), edit)

    def lines(self, draft: Draft) -> list[str]:
        """Return the lines of a state of the file, without their ends."""
        state = draft.read(self.name)
        if self.name.endswith((".py", ".pyi")):
            text = draft.python(self.name).text
        else:
            text = state.raw.decode(errors="surrogateescape") if state else ""
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _texts(
    file: _File, edits: Sequence[PayloadEdit], faults: list[str], *, lower: bool
) -> Iterator[tuple[PayloadEdit, str]]:
    """Yield the edits whose payloads were edited with the new text; add the other places to the faults."""
    before = file.lines(file.applied)
    differences = list(changes(before, file.lines(file.goal)))
    regions: list[tuple[PayloadEdit, Region]] = []
    for edit in edits:
        region = find_region(before, file.standing(edit), exact=isinstance(edit, TextEdit))
        if region is not None:
            regions.append((edit, region))
    owned_by = owners([region for _, region in regions], differences, lower=lower)
    faults += [
        f"{file.name}:{change.new_start + 1} is in no payload of the topic"
        for change, owner in zip(differences, owned_by, strict=True)
        if owner is None
    ]
    for edit, region in regions:
        if region in owned_by:
            text = _text(file, edit, region, moved(region, differences, owned_by))
            if text is None:
                faults.append(f"{file.name}:{region.start + 1}: {edit.payload} cannot be read back")
            else:
                yield edit, text


def _text(file: _File, edit: PayloadEdit, region: Region, lines: tuple[int, int]) -> str | None:
    """Return the payload that stands on some lines of the edited file."""
    start, end = lines
    after = file.lines(file.goal)
    if isinstance(edit, TextEdit):
        text = "\n".join(after[start:end]) + "\n"
        return None if _LONE.search(text) else text
    source = file.applied.python(file.name)
    prefix, unit = indentation(file.lines(file.applied), region, file.standing(edit), file_unit(source))
    code = as_payload(after, start, end, prefix, unit)
    theirs = {name: our for our, name in upstream_names(source, edit).items()}
    return _in_our_words(code, theirs, signature=edit.operation == "replace-function") if code else None


def _in_our_words(code: str, theirs: Mapping[str, str], *, signature: bool) -> str | None:
    """Return a payload with our names of parameters in the place of upstream's."""
    if not theirs:
        return code
    try:
        return renamed(Payload(text=code, where=""), theirs, signature=signature).text
    except PatchError:
        return None


def _places(edit: PayloadEdit, draft: Draft) -> tuple[str, ...]:
    try:
        return (draft.locate(edit.file),)
    except PatchError:
        return ()
