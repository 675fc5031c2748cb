"""Series: the topics of a package in their order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglforge.base.files import digest
from sglforge.base.ids import Sha256
from sglforge.config.parse import load_model
from sglforge.config.suggest import hint
from sglforge.errors import ConfigError, Finding, PatchError, Severity
from sglforge.patches.contracts.waivers import remark, waivers
from sglforge.patches.faults import corrupt
from sglforge.patches.load import TOPIC_FILE, load_topic
from sglforge.patches.model import SeriesFile
from sglforge.patches.quilt import Entry, load_patch, read_series, unlisted
from sglforge.patches.result import Fate, TopicState
from sglforge.patches.topic import Topic

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
        chosen = [topic.identity(version) for topic in self._applied(version)]
        return digest([FORMAT, self.package, chosen])

    def topic_digests(self, version: str) -> dict[str, Sha256]:
        """Return a hash over edits and payloads for each topic that is for an upstream version, in their order."""
        return {topic.name: digest([FORMAT, self.package, topic.identity(version)]) for topic in self._applied(version)}

    def _applied(self, version: str) -> Iterator[Topic]:
        return (topic for topic in self.topics if topic.standing(version) is None)

    def remarks(self, version: str) -> tuple[Finding, ...]:
        """Return what people should know about the topics for an upstream version, without looking at a tree.

        That is which ones are not applied, and which contracts are switched off for those that are.
        """
        fates = [(topic, topic.standing(version)) for topic in self.topics]
        found = [finding for topic, fate in fates for finding in fate_findings(self.package, topic, fate)]
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


def fate_findings(package: str, topic: Topic, fate: Fate | None) -> Iterator[Finding]:
    """Yield what people should know about a topic that was not applied."""
    if fate is None:
        return
    subject, where = f"{package}/{topic.name}", topic.document.where(())
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
