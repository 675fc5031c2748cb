"""Turning an edited tree back into its topic: a diff is made again, payloads and `replaces` are brought up to date.

Whatever is returned has been applied first, in memory, and gave the edited tree byte for byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglforge.base.ids import Sha256
from sglforge.errors import PatchError
from sglforge.patches.attempt import Attempt, attempt
from sglforge.patches.draft import Draft
from sglforge.patches.load import TOPIC_FILE
from sglforge.patches.model import AnyEdit, DiffEdit, PythonEdit, TextEdit
from sglforge.patches.remake import remade
from sglforge.patches.reread import reread
from sglforge.patches.topic import Topic


def refresh(topic: Topic, base: Draft, goal: Draft, version: str) -> Mapping[Path, bytes]:
    """Return the files of a topic that need another content for a tree to become an edited one; often none.

    ``base`` is the tree before the topic, ``goal`` the edited one.

    Raises PatchError ``patch-not-expressible`` when no change of diffs, payloads and hashes does it.
    """
    trial = attempt(topic, base, version)
    if not trial.faults and _equal(trial.draft, goal):
        return _with_digests(topic, trial.digests)
    chosen = [edit for edit, _ in topic.edits(version)]
    match chosen:
        case [DiffEdit() as edit]:
            diff = topic.diff(edit)
            return {Path(diff.where): remade(diff, base, trial.draft, goal)}
        case _ if trial.faults:
            raise _inexpressible(topic, [f"{fault.where}: {fault.message}" for fault in trial.faults])
        case _:
            pass
    try:
        return _with_payloads(topic, trial, goal, chosen, base, version, lower=False)
    except PatchError as error:
        if error.code != "patch-not-expressible":
            raise
    return _with_payloads(topic, trial, goal, chosen, base, version, lower=True)


def _with_payloads(
    topic: Topic, trial: Attempt, goal: Draft, chosen: Sequence[AnyEdit], base: Draft, version: str, *, lower: bool
) -> Mapping[Path, bytes]:
    """Return the payloads that were edited, and the topic's file if its hashes change."""
    edits = [edit for edit in chosen if isinstance(edit, PythonEdit | TextEdit)]
    reading = reread(trial.topic, edits, trial.draft, goal, lower=lower)
    if reading.faults:
        raise _inexpressible(topic, reading.faults)
    again = attempt(dataclasses.replace(topic, payloads={**topic.payloads, **reading.payloads}), base, version)
    if again.faults:
        raise _inexpressible(topic, [f"{fault.where}: {fault.message}" for fault in again.faults])
    if not _equal(again.draft, goal):
        raise _inexpressible(topic, ["the payloads, as they are in the tree, do not give that tree"])
    files = {Path(payload.where): payload.text.encode() for payload in reading.payloads.values()}
    return {**files, **_with_digests(topic, again.digests)}


def _equal(one: Draft, other: Draft) -> bool:
    return not one.since(other) and not other.since(one)


def _with_digests(topic: Topic, digests: Mapping[int, Sha256]) -> dict[Path, bytes]:
    """Return the topic's file with other `replaces`, or nothing where none changes."""
    if not digests:
        return {}
    import tomlkit

    document = tomlkit.parse(topic.document.text)
    edits = document["edits"]
    for index, digest in digests.items():
        edits[index]["replaces"] = digest
    return {topic.document.path: document.as_string().encode()}


def _inexpressible(topic: Topic, places: Sequence[str]) -> PatchError:
    more = f", and {len(places) - 1} more" if len(places) > 1 else ""
    return PatchError(
        code="patch-not-expressible",
        message=f"what was edited does not fit into the edits of `{topic.name}`: {places[0]}{more}",
        where=str(topic.document.path),
        hint=f"edit {TOPIC_FILE} or the payloads by hand, or carry the change as a diff",
        context={str(number): place for number, place in enumerate(places, start=1)},
    )
