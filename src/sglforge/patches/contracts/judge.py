"""Hold the topics of a series to their contracts, on the tree as the whole series leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sglforge.base.toml import KeyPath
from sglforge.errors import Finding, Severity
from sglforge.patches.contracts.arrivals import arrivals
from sglforge.patches.contracts.attributes import attribute_set
from sglforge.patches.contracts.evidence import evidence_exists
from sglforge.patches.contracts.flags import flag_exists
from sglforge.patches.contracts.model import Contracts, Default, Refusal, Waivable
from sglforge.patches.contracts.refusals import Declared, subclass_assigned
from sglforge.patches.contracts.subject import Patched, patched
from sglforge.patches.contracts.tree import PatchedTree
from sglforge.patches.contracts.waivers import remark, waivers
from sglforge.patches.draft import Draft
from sglforge.patches.topic import Topic
from sglforge.patches.versions import holds


def judge(topics: Sequence[Topic], draft: Draft, version: str) -> Mapping[str, tuple[Finding, ...]]:
    """Return the findings of each topic that applied, by its name; their ``subject`` is left empty.

    ``draft`` is the tree as the whole series leaves it. What this cannot see is in docs/reference/contracts.md.

    Raises PatchError ``tree-unreadable``.
    """
    gone = frozenset(file for file in draft.changed if not draft.has(file))
    texts = {file: text for file, text in draft.texts().items() if file.endswith(".py")}
    tree = PatchedTree(root=draft.checkout.root, texts=texts, gone=gone)
    subject = patched(tree, arrivals(topics, draft, version))
    return {topic.name: tuple(_judged(topic, subject, version)) for topic in topics}


def _judged(topic: Topic, subject: Patched, version: str) -> Iterator[Finding]:
    waived = {waiver.contract: (waiver, where) for waiver, where in waivers(topic)}
    for contract, findings in _contracts(topic, subject, version):
        if contract in waived:
            hidden = [finding for finding in findings if finding.severity is Severity.ERROR]
            yield remark(*waived[contract], hidden)
        else:
            yield from findings


def _declarations(declared: Contracts, where: Callable[[KeyPath], str], version: str) -> tuple[Declared, ...]:
    """Return what a topic declares about subclasses of a version, with the places."""
    entries: list[tuple[str, int, Refusal | Default]] = []
    entries += [("refused", index, entry) for index, entry in enumerate(declared.refused)]
    entries += [("defaulted", index, entry) for index, entry in enumerate(declared.defaulted)]
    return tuple(
        Declared(entry=entry, where=where(("contracts", kind, index)))
        for kind, index, entry in entries
        if entry.versions is None or holds(entry.versions, version)
    )


def _contracts(topic: Topic, subject: Patched, version: str) -> Iterator[tuple[Waivable, Iterator[Finding]]]:
    """Yield each contract with its findings."""
    declared, where = topic.file.contracts, topic.document.where
    yield "attribute-set", attribute_set(subject, topic.name)
    yield "subclass-assigned", subclass_assigned(subject, topic.name, _declarations(declared, where, version))
    flags = [(flag, where(("contracts", "flags"))) for flag in declared.flags]
    yield "flag-exists", flag_exists(subject.tree, flags)
    yield "evidence-exists", evidence_exists(subject, topic.name, topic.file.evidence, where(("evidence",)))
