"""Series: the topics of a package in their order, and what becomes of a tree that they are applied to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import digest
from sglforge.base.ids import Sha256
from sglforge.config.parse import load_model
from sglforge.config.suggest import hint
from sglforge.errors import ConfigError, Finding, PatchError, Severity
from sglforge.patches.checkout import Checkout, open_checkout
from sglforge.patches.diff import unified
from sglforge.patches.faults import STATES, corrupt
from sglforge.patches.model import SeriesFile
from sglforge.patches.pytext import PythonText
from sglforge.patches.result import PatchResult, TopicResult, TopicState
from sglforge.patches.topic import TOPIC_FILE, Standing, Topic, load_topic
from sglforge.patches.treeid import tree_id

SERIES_FILE = "series.toml"
FORMAT = 1
"""Counted up when the engine makes another tree of the same series."""

Texts = Mapping[str, PythonText]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The topics of one package, in the order in which they are applied."""

    package: str
    topics: tuple[Topic, ...]

    def digest(self, version: str) -> Sha256:
        """Return one hash over the edits and payloads of the topics that are for an upstream version."""
        chosen = [topic.identity(version) for topic in self.topics if topic.standing(version) is None]
        return digest([FORMAT, self.package, chosen])

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

    Raises PatchError ``patch-corrupt`` with a finding for every fault of every topic.
    """
    folder = root / "patches" / package
    if not (folder / SERIES_FILE).is_file():
        if forgotten := _unlisted(folder, []):
            raise _broken(package, tuple(forgotten))
        return None
    try:
        names = load_model(folder / SERIES_FILE, SeriesFile)[0].topics
    except ConfigError as error:
        raise _broken(package, error.as_findings()) from error
    faults = list(_unlisted(folder, names))
    topics: list[Topic] = []
    for name in dict.fromkeys(names):
        try:
            topics.append(load_topic(folder / name))
        except PatchError as error:
            faults += error.as_findings()
    if faults:
        raise _broken(package, tuple(faults))
    return Series(package=package, topics=tuple(topics))


def apply_series(series: Series, tree: Path, *, version: str, topic: str | None = None) -> PatchResult:
    """Apply a series, or one topic of it, to a tree of an upstream version, in place.

    Edits and contracts work in memory. The tree is written when every topic that is for the version applied,
    and is left byte for byte as it was otherwise. Each fault is a finding of the result.

    Raises ConfigError ``unknown-topic``; PatchError ``tree-missing``, ``tree-unreadable`` and
    ``patch-not-written``.
    """
    topics = (series.named(topic),) if topic else series.topics
    checkout = open_checkout(tree)
    texts: Texts = {}
    results: list[TopicResult] = []
    findings: list[Finding] = []
    for current in topics:
        if standing := current.standing(version):
            results.append(TopicResult(name=current.name, state=standing.state, message=standing.message))
            findings += _remark(series, current, standing)
            continue
        try:
            texts = _apply(current, checkout, texts, version)
        except PatchError as error:
            results.append(_failed(current, error, _files(current, checkout, version)))
            findings.append(_finding(series, current, error))
        else:
            results.append(_applied(current, _files(current, checkout, version)))
    for position, current in enumerate(topics):
        fault = _undone(current, checkout, texts, version) if results[position].state is TopicState.APPLIED else None
        if fault:
            results[position] = _failed(current, fault, _files(current, checkout, version))
            findings.append(_finding(series, current, fault))
    if any(finding.severity is Severity.ERROR for finding in findings):
        return PatchResult(topics=tuple(results), tree_id=None, diff="", findings=tuple(findings))
    checkout.write({file: text.raw for file, text in texts.items()})
    return PatchResult(
        topics=tuple(results),
        tree_id=tree_id(checkout.root),
        diff="".join(unified(file, checkout.original(file), text) for file, text in sorted(texts.items())),
        findings=tuple(findings),
    )


def _apply(topic: Topic, checkout: Checkout, texts: Texts, version: str) -> Texts:
    """Return the texts with a topic's edits, held to the contracts."""
    from sglforge.patches import contracts, edits

    after = dict(texts)
    chosen = list(topic.edits(version))
    if not chosen:
        raise PatchError(
            code="patch-without-edits",
            message=f"is for {topic.file.versions}, and none of its edits is for {version}",
            hint="write the edit for this version, or take the version out of the topic's `versions`",
        )
    for edit, payload, where in chosen:
        try:
            file = checkout.locate(edit.file)
            before = after.get(file) or checkout.original(file)
            after[file] = edits.apply_edit(before, edit, payload)
        except PatchError as error:
            raise _placed(error, where, checkout, edit.anchor) from error
    for file, text in after.items():
        before = texts.get(file) or checkout.original(file)
        if text is not before:
            contracts.check(file, before, text)
    return after


def _undone(topic: Topic, checkout: Checkout, texts: Texts, version: str) -> PatchError | None:
    """Return the fault of a topic that applied and of which a later one left something out."""
    from sglforge.patches import edits

    for edit, payload, where in topic.edits(version):
        file = checkout.locate(edit.file)
        if not edits.is_there(texts[file], edit, payload):
            return PatchError(
                code="patch-conflict",
                message=f"what {edit.payload} put into {file} is not there after the whole series",
                where=where,
                hint="a later edit replaces or hides it: change the order, or make one topic of both",
            )
    return None


def _placed(error: PatchError, where: str, checkout: Checkout, anchor: str | None) -> PatchError:
    """Return an error with the place of its edit and, for an anchor that is gone, where it may be."""
    context = dict(error.context)
    if error.code == "patch-drifted" and anchor:
        elsewhere = checkout.defining(anchor.rpartition(".")[2])
        if elsewhere:
            context["defined in"] = ", ".join(elsewhere)
    return PatchError(
        code=error.code, message=error.message, where=error.where or where, hint=error.hint, context=context
    )


def _applied(topic: Topic, files: tuple[str, ...]) -> TopicResult:
    return TopicResult(
        name=topic.name,
        state=TopicState.APPLIED,
        message=topic.file.description,
        files=files,
        evidence=topic.file.evidence,
    )


def _failed(topic: Topic, error: PatchError, files: tuple[str, ...]) -> TopicResult:
    return TopicResult(name=topic.name, state=STATES[error.code], message=error.message, files=files)


def _files(topic: Topic, checkout: Checkout, version: str) -> tuple[str, ...]:
    """Return the files that a topic edits, as the tree calls them; where one is not there, as the topic does."""
    names: list[str] = []
    for edit, _, _ in topic.edits(version):
        try:
            names.append(checkout.locate(edit.file))
        except PatchError:
            names += edit.file
    return tuple(dict.fromkeys(names))


def _remark(series: Series, topic: Topic, standing: Standing) -> Iterator[Finding]:
    """Yield what people should know about a topic that is not applied."""
    subject, where = f"{series.package}/{topic.name}", topic.document.where(())
    match standing.state:
        case TopicState.UNSUPPORTED:
            yield Finding(
                code="patch-unsupported",
                severity=Severity.WARNING,
                subject=subject,
                message=standing.message,
                hint="use a version that the topic is for, or do without what it does",
                where=where,
            )
        case TopicState.UPSTREAMED:
            yield Finding(
                code="patch-upstreamed", severity=Severity.INFO, subject=subject, message=standing.message, where=where
            )
        case _:
            pass


def _finding(series: Series, topic: Topic, error: PatchError) -> Finding:
    return Finding(
        code=error.code,
        severity=Severity.ERROR,
        subject=f"{series.package}/{topic.name}",
        message=error.message,
        hint=error.hint,
        where=error.where or topic.document.where(()),
        detail=tuple(f"{key}: {value}" for key, value in error.context.items()),
    )


def _unlisted(folder: Path, names: list[str]) -> list[Finding]:
    found = sorted(path.parent.name for path in folder.glob(f"*/{TOPIC_FILE}") if path.parent.name not in names)
    twice = sorted({name for name in names if names.count(name) > 1})
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
