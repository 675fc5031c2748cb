"""Series: the topics of a package in their order, and what becomes of a tree that they are applied to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglforge.base.collector import put_off
from sglforge.base.files import digest
from sglforge.base.ids import Sha256
from sglforge.config.parse import load_model
from sglforge.config.suggest import hint
from sglforge.errors import ConfigError, Finding, PatchError, Severity
from sglforge.patches.checkout import open_checkout
from sglforge.patches.contracts.waivers import remark, waivers
from sglforge.patches.diff import unified
from sglforge.patches.draft import Draft
from sglforge.patches.fate import edited, fate_of, files_of, is_applied
from sglforge.patches.faults import STATES, corrupt
from sglforge.patches.load import TOPIC_FILE, load_topic
from sglforge.patches.model import SeriesFile
from sglforge.patches.quilt import Entry, load_patch, read_series, unlisted
from sglforge.patches.result import Fate, PatchResult, TopicResult, TopicState
from sglforge.patches.topic import Topic
from sglforge.patches.treeid import Blobs, blob, blobs, tree_id, tree_id_of

SERIES_FILE = "series.toml"
FORMAT = 1
"""Counted up when the engine makes another tree of the same series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The topics of one package, in the order in which they are applied."""

    package: str
    topics: tuple[Topic, ...]

    def digest(self, version: str) -> Sha256:
        """Return one hash over the edits and payloads of the topics that are for an upstream version."""
        chosen = [topic.identity(version) for topic in self.topics if topic.standing(version) is None]
        return digest([FORMAT, self.package, chosen])

    def remarks(self, version: str) -> tuple[Finding, ...]:
        """Return what people should know about the topics for an upstream version, without looking at a tree.

        That is which ones are not applied, and which contracts are switched off for those that are.
        """
        fates = [(topic, topic.standing(version)) for topic in self.topics]
        found = [finding for topic, fate in fates for finding in _findings(self, topic, fate)]
        for topic in (topic for topic, fate in fates if fate is None):
            subject = f"{self.package}/{topic.name}"
            found += [dataclasses.replace(remark(*waiver), subject=subject) for waiver in waivers(topic)]
        return tuple(found)

    def named(self, name: str) -> Topic:
        """Return one topic.

        Raises ConfigError ``unknown-topic``.
        """
        for topic in self.topics:
            if topic.name == name:
                return topic
        raise ConfigError(
            code="unknown-topic",
            message=f"the series of {self.package} has no topic `{name}`",
            hint=hint(name, [topic.name for topic in self.topics]),
        )


def load_series(root: Path, package: str) -> Series | None:
    """Read the series of a package from a catalog, or return None when it has none.

    The patches of a plain quilt `series` come first, then the topics of `series.toml`.

    Raises PatchError ``patch-corrupt`` with a finding for every fault of every topic.
    """
    folder = root / "patches" / package
    faults: list[Finding] = []
    topics: list[Topic] = []
    entries: list[Entry] = []
    for entry in read_series(folder):
        if isinstance(entry, PatchError):
            faults += entry.as_findings()
        else:
            entries.append(entry)
    faults += unlisted(folder, entries)
    names: list[str] = []
    if os.path.lexists(folder / SERIES_FILE):  # also what is no file, which reading it tells
        try:
            names = load_model(folder / SERIES_FILE, SeriesFile)[0].topics
        except ConfigError as error:
            raise _broken(package, error.as_findings()) from error
    faults += _unlisted(folder, names, {entry.name for entry in entries})
    loads = [partial(load_patch, folder, entry) for entry in entries]
    loads += [partial(load_topic, folder / name) for name in dict.fromkeys(names)]
    for load in loads:
        try:
            topics.append(load())
        except PatchError as error:
            faults += error.as_findings()
    if faults:
        raise _broken(package, tuple(faults))
    return Series(package=package, topics=tuple(topics)) if topics else None


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
        findings += _findings(series, current, fate)
    for position, current in enumerate(topics):
        if is_applied(results[position]) and (fault := _undone(current, draft, version)):
            results[position] = _result(current, fault, results[position].files)
            findings += _findings(series, current, fault)
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


def _findings(series: Series, topic: Topic, fate: Fate | None) -> Iterator[Finding]:
    """Yield what people should know about a topic that was not applied."""
    if fate is None:
        return
    subject, where = f"{series.package}/{topic.name}", topic.document.where(())
    if fate.error:
        for finding in fate.error.as_findings():
            yield dataclasses.replace(finding, subject=subject, where=finding.where or where)
    elif fate.state is TopicState.UNSUPPORTED:
        yield Finding(
            code="patch-unsupported",
            severity=Severity.WARNING,
            subject=subject,
            message=fate.message,
            hint="use a version that the topic is for, or do without what it does",
            where=where,
        )
    elif fate.state is TopicState.UPSTREAMED:
        yield Finding(
            code="patch-upstreamed", severity=Severity.INFO, subject=subject, message=fate.message, where=where
        )


def _unlisted(folder: Path, names: list[str], patches: set[str]) -> list[Finding]:
    found = sorted(path.parent.name for path in folder.glob(f"*/{TOPIC_FILE}") if path.parent.name not in names)
    twice = sorted({name for name in names if names.count(name) > 1 or name in patches})
    where = str(folder / SERIES_FILE)
    faults = [
        corrupt(f"topic `{name}` is not in the series", where=where, hint="list it, or remove it") for name in found
    ]
    faults += [corrupt(f"topic `{name}` is listed twice", where=where, hint="list it once") for name in twice]
    return [finding for fault in faults for finding in fault.as_findings()]


def _broken(package: str, findings: tuple[Finding, ...]) -> PatchError:
    return PatchError(
        code="patch-corrupt",
        message=f"the patch series of {package} is corrupt",
        where=findings[0].where,
        hint=findings[0].hint if len(findings) == 1 else "correct each of them; all faults are listed",
        findings=findings,
    )
