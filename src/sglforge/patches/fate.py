"""What becomes of a topic that does not apply: drifted, in conflict with another, or upstream already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglforge.errors import PatchError
from sglforge.patches.draft import Draft
from sglforge.patches.faults import STATES
from sglforge.patches.model import AnyEdit, DiffEdit, PythonEdit, TomlEdit
from sglforge.patches.result import Fate, TopicResult, TopicState
from sglforge.patches.topic import Topic


class EditError(PatchError):
    """What keeps an edit from being made, and the edit."""

    def __init__(self, error: PatchError, edit: AnyEdit, where: str) -> None:
        super().__init__(
            code=error.code,
            message=error.message,
            where=error.where or where,
            hint=error.hint,
            context=error.context,
        )
        self.edit = edit


def edited(topic: Topic, draft: Draft, version: str) -> Draft:
    """Return a tree with a topic's edits for a version.

    Raises PatchError ``patch-without-edits``, and what keeps an edit from being made, with its place.
    """
    from sglforge.patches import kinds

    chosen = list(topic.edits(version))
    if not chosen:
        raise PatchError(
            code="patch-without-edits",
            message=f"is for {topic.file.versions}, and none of its edits is for {version}",
            hint="write the edit for this version, or take the version out of the topic's `versions`",
        )
    after = draft
    for edit, where in chosen:
        try:
            after = kinds.apply_edit(after, topic, edit)
        except PatchError as error:
            raise EditError(error, edit, where) from error
    for file in after.modules(draft):
        draft.python(file)
        try:
            after.python(file)
        except PatchError as error:
            raise PatchError(
                code="patch-does-not-compile",
                message=error.message,
                where=topic.document.where(("edits",)),
                hint="the edits do not fit the place that they go to",
            ) from error
    return after


def fate_of(topic: Topic, error: PatchError, upstream: Draft, version: str, earlier: Sequence[TopicResult]) -> Fate:
    """Return what the fault of a topic means, given the tree before the series and the topics that applied.

    Raises the error when it is not about the topic.
    """
    if error.code not in STATES:
        raise error
    if error.code == "patch-already-there":
        there = [_is_upstream(upstream, topic, edit) for edit, _ in topic.edits(version)]
        if all(there) and not any(_is_ours(upstream, topic, edit) for edit, _ in topic.edits(version)):
            message = "upstream has every edit of it; it can be dropped, unless this tree was patched before"
            return Fate(state=TopicState.UPSTREAMED, message=message)
        if any(there) and not all(there):
            message = f"{error.message}; {sum(there)} of {len(there)} edits are in the tree, the rest is not"
            error = PatchError(code=error.code, message=message, where=error.where, hint=error.hint)
    if STATES[error.code] in {TopicState.DRIFTED, TopicState.CONFLICT} and _applies(topic, upstream, version):
        names = ", ".join(entry.name for entry in earlier if {*entry.files} & {*files_of(topic, upstream, version)})
        error = PatchError(
            code="patch-conflict",
            message=f"applies alone, and not after {names or 'the topics before it'}: {error.message}",
            where=error.where,
            hint="change the order, or make one topic of both",
            context=error.context,
        )
    if isinstance(error, EditError) and STATES[error.code] is TopicState.DRIFTED:
        error = _explained(error, topic, upstream)
    return Fate(state=STATES[error.code], message=error.message, error=error)


def is_applied(result: TopicResult) -> bool:
    """Tell whether a topic is in the tree because of us."""
    return result.state is TopicState.APPLIED


def files_of(topic: Topic, draft: Draft, version: str) -> tuple[str, ...]:
    """Return the files that a topic edits, as the tree calls them; where one is not there, as the topic does."""
    return tuple(dict.fromkeys(name for edit, _ in topic.edits(version) for name in _names(topic, draft, edit)))


def _names(topic: Topic, draft: Draft, edit: AnyEdit) -> Iterator[str]:
    from sglforge.patches import kinds

    try:
        yield from kinds.files_of(draft, topic, edit)
    except PatchError:
        yield from (file.name for file in topic.diff(edit).files) if isinstance(edit, DiffEdit) else edit.file


def _applies(topic: Topic, draft: Draft, version: str) -> bool:
    try:
        edited(topic, draft, version)
    except PatchError:
        return False
    return True


def _is_upstream(upstream: Draft, topic: Topic, edit: AnyEdit) -> bool:
    from sglforge.patches import kinds

    try:
        return kinds.is_made(upstream, topic, edit)
    except PatchError:
        return False


def _is_ours(upstream: Draft, topic: Topic, edit: AnyEdit) -> bool:
    """Tell whether a tree holds an edit because it was patched before: with our comments, or in a changed file."""
    if not isinstance(edit, DiffEdit | TomlEdit):
        comments = topic.payloads[edit.payload].comments
        for file in _names(topic, upstream, edit):
            state = upstream.read(file)
            lines = {line.strip() for line in state.raw.decode(errors="replace").splitlines()} if state else set()
            if comments and comments <= lines:
                return True
    return any(upstream.checkout.is_altered(file) for file in _names(topic, upstream, edit))


def _explained(error: EditError, topic: Topic, upstream: Draft) -> PatchError:
    """Return the error of an edit that has drifted with where its anchor may be now, and what took it away."""
    from sglforge.patches.trace import last_change

    context = dict(error.context)
    anchor = error.edit.anchor if isinstance(error.edit, PythonEdit) else None
    if error.code == "patch-drifted" and anchor:
        elsewhere = upstream.checkout.defining(anchor.rpartition(".")[2])
        if elsewhere:
            context["defined in"] = ", ".join(elsewhere)
    if commit := last_change(upstream, topic, error.edit):
        context["last changed by"] = commit
    return PatchError(code=error.code, message=error.message, where=error.where, hint=error.hint, context=context)
