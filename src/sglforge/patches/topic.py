"""Topics: one folder each, with what it edits and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.toml import Document
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError, Finding, PatchError
from sglforge.patches.faults import corrupt
from sglforge.patches.model import PatchFile, PythonEdit
from sglforge.patches.payload import Payload, read

TOPIC_FILE = "patch.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its payloads by their names in the topic's folder."""

    name: str
    file: PatchFile
    document: Document
    payloads: Mapping[str, Payload]

    def is_for(self, version: str) -> bool:
        """Tell whether the topic is for an upstream version (PEP 440; a pre-release counts as itself).

        Raises PatchError ``tree-version-unknown`` when it is no version.
        """
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        try:
            return SpecifierSet(self.file.versions).contains(Version(version), prereleases=True)
        except InvalidVersion as error:
            raise PatchError(
                code="tree-version-unknown",
                message=f"{version!r} is not a version, so that no topic can be chosen for it",
                hint="correct the version that the stack or the tree names",
            ) from error

    def edits(self) -> Iterator[tuple[PythonEdit, Payload, str]]:
        """Yield each edit with its payload and the ``file:line`` that it stands on."""
        for index, edit in enumerate(self.file.edits):
            yield edit, self.payloads[edit.payload], self.document.where(("edits", index))

    def identity(self) -> list[object]:
        """Return what decides about the patched tree: edits and payloads, not the words around them."""
        edits = [edit.model_dump(mode="json", by_alias=True, exclude_none=True) for edit in self.file.edits]
        return [
            self.name,
            self.file.evidence,
            edits,
            [self.payloads[edit.payload].sha256 for edit in self.file.edits],
        ]


def load_topic(folder: Path) -> Topic:
    """Read a topic's folder.

    Raises PatchError ``patch-corrupt`` with every fault of it.
    """
    path = folder / TOPIC_FILE
    if not path.is_file():
        raise corrupt(
            f"topic `{folder.name}` has no {TOPIC_FILE}",
            where=str(path),
            hint="add it, or take the topic out",
        )
    try:
        file, document = load_model(path, PatchFile)
    except ConfigError as error:
        raise PatchError(
            code="patch-corrupt",
            message=f"topic `{folder.name}` is corrupt",
            where=error.where,
            hint=error.hint,
            findings=error.as_findings(),
        ) from error
    payloads: dict[str, Payload] = {}
    faults: list[Finding] = []
    for index, edit in enumerate(file.edits):
        try:
            payloads[edit.payload] = _payload(folder, edit.payload, document.where(("edits", index, "payload")))
        except PatchError as error:
            faults += error.as_findings()
    if faults:
        raise PatchError(code="patch-corrupt", message=f"topic `{folder.name}` is corrupt", findings=tuple(faults))
    return Topic(name=folder.name, file=file, document=document, payloads=payloads)


def _payload(folder: Path, name: str, where: str) -> Payload:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise corrupt(f"the payload {name} lies outside the topic's folder", where=where)
    try:
        return read(path.read_bytes(), str(path))
    except OSError as error:
        raise corrupt(f"cannot read the payload {name}: {error.strerror}", where=where) from error
