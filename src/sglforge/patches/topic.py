"""Topics: one folder each, with what it edits and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sglforge.base.ids import Sha256
from sglforge.base.toml import Document
from sglforge.patches.diffs import Diff
from sglforge.patches.model import AnyEdit, DiffEdit, PatchFile, TomlEdit
from sglforge.patches.payload import Payload
from sglforge.patches.result import Fate, TopicState

DiffKey = tuple[str, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its payloads and diffs, by their names in the topic's folder."""

    name: str
    file: PatchFile
    document: Document
    payloads: Mapping[str, Payload]
    diffs: Mapping[DiffKey, Diff]

    def standing(self, version: str) -> Fate | None:
        """Return why the topic is not applied to an upstream version, or None when it is.

        Raises PatchError ``tree-version-unknown`` when it is no version.
        """
        from sglforge.patches.versions import holds, parse_version

        number, file = parse_version(version), self.file
        if holds(file.versions, number):
            return None
        if file.superseded_from and holds(f">={file.superseded_from}", number):
            message = f"superseded from {file.superseded_from} on: {file.superseded}"
            return Fate(state=TopicState.SUPERSEDED, message=message)
        if file.upstreamed_from and holds(f">={file.upstreamed_from}", number):
            message = f"upstream has it from {file.upstreamed_from} on; it can be dropped there"
            return Fate(state=TopicState.UPSTREAMED, message=message)
        for case in file.unsupported:
            if holds(case.versions, number):
                message = f"is needed for {version} and does not support it: {case.reason}"
                return Fate(state=TopicState.UNSUPPORTED, message=message)
        return Fate(state=TopicState.NOT_FOR_VERSION, message=f"is for {file.versions}, this is {version}")

    def edits(self, version: str) -> Iterator[tuple[AnyEdit, str]]:
        """Yield each edit for an upstream version with the ``file:line`` that it stands on."""
        from sglforge.patches.versions import holds

        for index, edit in enumerate(self.file.edits):
            if edit.versions is None or holds(edit.versions, version):
                yield edit, self.document.where(("edits", index))

    def diff(self, edit: DiffEdit) -> Diff:
        """Return the diff of an edit, without the files that the edit leaves out."""
        return self.diffs[key_of(edit)]

    def identity(self, version: str) -> list[object]:
        """Return what decides about the patched tree: edits and payloads, not the words around them."""
        chosen = [edit for edit, _ in self.edits(version)]
        edits = [
            edit.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"versions"}) for edit in chosen
        ]
        hashes = [self._sha256(edit) for edit in chosen]
        return [self.name, self.file.evidence, edits, [hash_ for hash_ in hashes if hash_]]

    def _sha256(self, edit: AnyEdit) -> Sha256 | None:
        match edit:
            case TomlEdit():
                return None
            case DiffEdit():
                return self.diff(edit).sha256
            case _:
                return self.payloads[edit.payload].sha256


def key_of(edit: DiffEdit) -> DiffKey:
    """Return what tells the diffs of a topic apart: the file, and how it is read."""
    return edit.payload, edit.strip, tuple(edit.exclude)
