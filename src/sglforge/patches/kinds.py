"""The kinds of edits, each with the same four questions."""

from __future__ import annotations

from sglforge.patches import edits, gitapply, textedits, tomledits
from sglforge.patches.draft import Draft
from sglforge.patches.model import AnyEdit, DiffEdit, TextEdit, TomlEdit
from sglforge.patches.topic import Topic


def apply_edit(draft: Draft, topic: Topic, edit: AnyEdit) -> Draft:
    """Return the tree with an edit made.

    Raises PatchError with what keeps it from being made.
    """
    match edit:
        case DiffEdit():
            return gitapply.apply_diff(draft, topic.diff(edit))
        case TextEdit():
            file = draft.locate(edit.file)
            payload = topic.payloads[edit.payload]
            return draft.with_bytes(file, textedits.apply_text(_raw(draft, file), file, edit, payload))
        case TomlEdit():
            file = draft.locate(edit.file)
            return draft.with_bytes(file, tomledits.apply_toml(_raw(draft, file), file, edit))
        case _:
            source = draft.python(draft.locate(edit.file))
            return draft.with_python(edits.apply_edit(source, edit, topic.payloads[edit.payload]))


def is_made(draft: Draft, topic: Topic, edit: AnyEdit) -> bool:
    """Tell whether a tree is as an edit would make it: with it in its place.

    Raises PatchError when the files of the edit are not there.
    """
    match edit:
        case DiffEdit():
            return gitapply.has_diff(draft, topic.diff(edit))
        case TextEdit():
            file = draft.locate(edit.file)
            return textedits.has_text(_raw(draft, file), file, edit, topic.payloads[edit.payload])
        case TomlEdit():
            file = draft.locate(edit.file)
            return tomledits.has_toml(_raw(draft, file), file, edit)
        case _:
            return edits.is_there(draft.python(draft.locate(edit.file)), edit, topic.payloads[edit.payload])


def is_kept(draft: Draft, topic: Topic, edit: AnyEdit) -> bool:
    """Tell whether what an edit put in is still there after other edits, which may stand between it and its anchor.

    Raises PatchError when the files of the edit are not there any more.
    """
    match edit:
        case DiffEdit():
            return gitapply.holds_diff(draft, topic.diff(edit))
        case TextEdit():
            file = draft.locate(edit.file)
            return textedits.holds_text(_raw(draft, file), file, topic.payloads[edit.payload])
        case _:
            return is_made(draft, topic, edit)


def files_of(draft: Draft, topic: Topic, edit: AnyEdit) -> tuple[str, ...]:
    """Return the files of an edit, as the tree calls them.

    Raises PatchError when they are not there, or several are.
    """
    if isinstance(edit, DiffEdit):
        return gitapply.touched(draft, topic.diff(edit))
    return (draft.locate(edit.file),)


def _raw(draft: Draft, file: str) -> bytes:
    state = draft.read(file)
    return state.raw if state else b""


def source_of(edit: AnyEdit) -> str:
    """Return what an edit takes its text from, for messages."""
    return f"`{edit.key}`" if isinstance(edit, TomlEdit) else edit.payload
