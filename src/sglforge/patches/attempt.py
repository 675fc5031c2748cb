"""A topic applied as far as it goes: for a tree in which somebody will adapt it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from sglforge.base.ids import Sha256
from sglforge.errors import PatchError
from sglforge.patches import edits, gitapply, kinds
from sglforge.patches.draft import Draft
from sglforge.patches.faults import STATES
from sglforge.patches.model import AnyEdit, DiffEdit, ReplaceEdit
from sglforge.patches.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of it: the topic with the ``replaces`` that the tree asks for (``digests``, by the edit's index), the
    tree, and the edits or files of a diff that do not apply.
    """

    topic: Topic
    draft: Draft
    digests: Mapping[int, Sha256]
    faults: tuple[PatchError, ...]


def attempt(topic: Topic, draft: Draft, version: str) -> Attempt:
    """Make each edit of a topic that can be made; a text that is replaced is accepted as it is.

    Raises PatchError for what is not about the topic, such as ``git-missing``.
    """
    digests: dict[int, Sha256] = {}
    faults: list[PatchError] = []
    chosen = {id(edit): where for edit, where in topic.edits(version)}
    made: list[AnyEdit] = []
    for index, edit in enumerate(topic.file.edits):
        current: AnyEdit = edit
        if id(edit) in chosen:
            if isinstance(edit, ReplaceEdit) and (digest := _digest(topic, draft, edit)):
                digests[index] = digest
                current = edit.model_copy(update={"replaces": digest})
            draft, found = _made(topic, draft, current)
            faults += [dataclasses.replace(fault, where=fault.where or chosen[id(edit)]) for fault in found]
        made.append(current)
    file = topic.file.model_copy(update={"edits": made})
    return Attempt(topic=dataclasses.replace(topic, file=file), draft=draft, digests=digests, faults=tuple(faults))


def _digest(topic: Topic, draft: Draft, edit: ReplaceEdit) -> Sha256 | None:
    """Return the digest of what an edit would replace when it is another one than the topic names."""
    try:
        source = draft.python(draft.locate(edit.file))
        digest = edits.replaced_digest(source, edit, topic.payloads[edit.payload])
    except PatchError:
        return None
    return digest if digest != edit.replaces else None


def _made(topic: Topic, draft: Draft, edit: AnyEdit) -> tuple[Draft, list[PatchError]]:
    try:
        return kinds.apply_edit(draft, topic, edit), []
    except PatchError as error:
        if error.code not in STATES:
            raise
        if not isinstance(edit, DiffEdit):
            return draft, [error]
    diff, faults = topic.diff(edit), []
    for file in diff.files:
        others = frozenset(other.name for other in diff.files if other.name != file.name)
        try:
            draft = gitapply.apply_diff(draft, diff.without(others))
        except PatchError as error:
            faults.append(error)
    return draft, faults
