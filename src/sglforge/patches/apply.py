"""What becomes of a tree that a series is applied to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from sglforge.base.collector import put_off
from sglforge.base.treeid import Blobs, blob, blobs, tree_id, tree_id_of
from sglforge.errors import Finding, PatchError, Severity
from sglforge.patches.checkout import open_checkout
from sglforge.patches.diff import unified
from sglforge.patches.draft import Draft
from sglforge.patches.fate import edited, fate_of, files_of, is_applied
from sglforge.patches.faults import STATES
from sglforge.patches.result import Fate, PatchResult, TopicResult, TopicState
from sglforge.patches.series import Series, fate_findings
from sglforge.patches.topic import Topic


@put_off()
def apply_series(
    series: Series,
    tree: Path,
    *,
    version: str,
    topic: str | None = None,
    origin: Path | None = None,
    write: bool = True,
    known: Blobs | None = None,
) -> PatchResult:
    """Apply a series, or one topic of it, to a tree of an upstream version, in place.

    ``origin`` is the folder that the tree is a copy of: its git history, if it has one, says what took an anchor away.
    Edits and contracts work in memory. The tree is written when every topic that is for the version applied or is
    upstream already, and is left byte for byte as it was otherwise. Each fault is a finding of the result.

    Args:
        series: The topics.
        tree: The tree's root.
        version: The upstream version that it is.
        topic: The one topic to apply; None for all.
        origin: The folder that the tree is a copy of.
        write: False leaves the tree alone; the result is the same, its tree id that of the tree as it would be.
        known: The blobs of the tree, where somebody has them already and nothing is written.

    Raises ConfigError ``unknown-topic``; PatchError ``tree-missing``, ``tree-unreadable``, ``git-missing`` and
    ``patch-not-written``.
    """
    topics = (series.named(topic),) if topic else series.topics
    draft = upstream = Draft(checkout=open_checkout(tree, origin))
    results: list[TopicResult] = []
    findings: list[Finding] = []
    for current in topics:
        fate = current.standing(version)
        if fate is None:
            try:
                draft = _apply(current, draft, version)
            except PatchError as error:
                fate = fate_of(current, error, upstream, version, [entry for entry in results if is_applied(entry)])
        files = files_of(current, draft, version) if fate is None or fate.error else ()
        results.append(_result(current, fate, files))
        findings += fate_findings(series.package, current, fate)
    for position, current in enumerate(topics):
        if is_applied(results[position]) and (fault := _undone(current, draft, version)):
            results[position] = _result(current, fault, results[position].files)
            findings += fate_findings(series.package, current, fault)
    findings += _judge(series, topics, results, draft, version)
    if any(finding.severity is Severity.ERROR for finding in findings):
        return PatchResult(topics=tuple(results), tree_id=None, diff="", findings=tuple(findings))
    changed = {file: draft.changed[file] for file in draft.since(upstream)}
    diff = "".join(unified(file, upstream.read(file), state) for file, state in changed.items())
    if write:
        draft.checkout.write(changed)
        made = tree_id(draft.checkout.root)
    else:
        after = {name: blob(file.raw, executable=file.executable) if file else None for name, file in changed.items()}
        made = tree_id_of(known or blobs(draft.checkout.root), changed=after)
    return PatchResult(topics=tuple(results), tree_id=made, diff=diff, findings=tuple(findings))


def _apply(topic: Topic, draft: Draft, version: str) -> Draft:
    """Return the tree with a topic's edits, held to the contracts."""
    from sglforge.patches.contracts import names
    from sglforge.patches.contracts.arrivals import arrivals

    after = edited(topic, draft, version)
    for file in after.modules(draft):
        names.check(file, draft.python(file), after.python(file), partial(arrivals, [topic], after, version))
    return after


def _judge(
    series: Series, topics: Sequence[Topic], results: list[TopicResult], draft: Draft, version: str
) -> Iterator[Finding]:
    """Yield what the contracts find in the topics that applied; the results of those that break one are changed."""
    from sglforge.patches.contracts.judge import judge

    applied = [topic for topic, result in zip(topics, results, strict=True) if is_applied(result)]
    judged = judge(applied, draft, version)
    for position, current in enumerate(topics):
        found = judged.get(current.name, ())
        faults = [finding for finding in found if finding.severity is Severity.ERROR]
        if faults:
            first = faults[0]
            results[position] = dataclasses.replace(
                results[position], state=STATES[first.code], message=first.message, evidence=""
            )
        yield from (dataclasses.replace(finding, subject=f"{series.package}/{current.name}") for finding in found)


def _undone(topic: Topic, draft: Draft, version: str) -> Fate | None:
    """Return the fate of a topic that applied and of which a later one left something out."""
    from sglforge.patches import kinds

    for edit, where in topic.edits(version):
        try:
            kept = kinds.is_kept(draft, topic, edit)
        except PatchError:
            kept = False
        if not kept:
            error = PatchError(
                code="patch-conflict",
                message=f"what {kinds.source_of(edit)} put into the tree is not there after the whole series",
                where=where,
                hint="a later edit replaces or hides it: change the order, or make one topic of both",
            )
            return Fate(state=STATES[error.code], message=error.message, error=error)
    return None


def _result(topic: Topic, fate: Fate | None, files: tuple[str, ...]) -> TopicResult:
    if fate is None:
        return TopicResult(
            name=topic.name,
            state=TopicState.APPLIED,
            message=topic.file.description,
            files=files,
            evidence=topic.file.evidence,
        )
    return TopicResult(name=topic.name, state=fate.state, message=fate.message, files=files)
