"""Topics: one folder each, with what it edits and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.toml import Document, KeyPath
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError, PatchError
from sglforge.patches.faults import corrupt
from sglforge.patches.model import PatchFile, PythonEdit
from sglforge.patches.payload import Payload, read
from sglforge.patches.result import TopicState

TOPIC_FILE = "patch.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Why a topic is not applied to a version."""

    state: TopicState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its payloads by their names in the topic's folder."""

    name: str
    file: PatchFile
    document: Document
    payloads: Mapping[str, Payload]

    def standing(self, version: str) -> Standing | None:
        """Return why the topic is not applied to an upstream version, or None when it is.

        Raises PatchError ``tree-version-unknown`` when it is no version.
        """
        from sglforge.patches.versions import holds, parse_version

        number, file = parse_version(version), self.file
        if holds(file.versions, number):
            return None
        if file.superseded_from and holds(f">={file.superseded_from}", number):
            message = f"superseded from {file.superseded_from} on: {file.superseded}"
            return Standing(state=TopicState.SUPERSEDED, message=message)
        if file.upstreamed_from and holds(f">={file.upstreamed_from}", number):
            message = f"upstream has it from {file.upstreamed_from} on; it can be dropped there"
            return Standing(state=TopicState.UPSTREAMED, message=message)
        for case in file.unsupported:
            if holds(case.versions, number):
                message = f"is needed for {version} and does not support it: {case.reason}"
                return Standing(state=TopicState.UNSUPPORTED, message=message)
        return Standing(state=TopicState.NOT_FOR_VERSION, message=f"is for {file.versions}, this is {version}")

    def edits(self, version: str) -> Iterator[tuple[PythonEdit, Payload, str]]:
        """Yield each edit for an upstream version with its payload and the ``file:line`` that it stands on."""
        from sglforge.patches.versions import holds

        for index, edit in enumerate(self.file.edits):
            if edit.versions is None or holds(edit.versions, version):
                yield edit, self.payloads[edit.payload], self.document.where(("edits", index))

    def identity(self, version: str) -> list[object]:
        """Return what decides about the patched tree: edits and payloads, not the words around them."""
        chosen = list(self.edits(version))
        edits = [
            edit.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"versions"})
            for edit, _, _ in chosen
        ]
        return [self.name, self.file.evidence, edits, [payload.sha256 for _, payload, _ in chosen]]


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
    faults = [finding for fault in _contradictions(file, document) for finding in fault.as_findings()]
    for index, edit in enumerate(file.edits):
        try:
            payloads[edit.payload] = _payload(folder, edit.payload, document.where(("edits", index, "payload")))
        except PatchError as error:
            faults += error.as_findings()
    if faults:
        raise PatchError(code="patch-corrupt", message=f"topic `{folder.name}` is corrupt", findings=tuple(faults))
    return Topic(name=folder.name, file=file, document=document, payloads=payloads)


def _contradictions(file: PatchFile, document: Document) -> Iterator[PatchError]:
    """Yield what a topic says about versions that cannot all be true."""
    from sglforge.patches.versions import common

    for index, edit in enumerate(file.edits):
        if edit.versions and common(file.versions, edit.versions) is None:
            message = f"the edit for {edit.versions} is never made: the topic is for {file.versions}"
            yield corrupt(message, where=document.where(("edits", index, "versions")))
    if file.superseded_from and file.upstreamed_from:
        message = "the topic has both `superseded-from` and `upstreamed-from`"
        yield corrupt(message, where=document.where(("upstreamed-from",)), hint="keep the earlier one")
        return
    if file.superseded_from and not file.superseded:
        message = "`superseded-from` without `superseded`"
        yield corrupt(message, where=document.where(("superseded-from",)), hint="say what supersedes the topic")
    claims: list[tuple[str, str, KeyPath]] = [("`versions`", file.versions, ("versions",))]
    for name, start in (("superseded-from", file.superseded_from), ("upstreamed-from", file.upstreamed_from)):
        if start:
            claims.append((f"`{name}`", f">={start}", (name,)))
    for index, case in enumerate(file.unsupported):
        claims.append((f"`unsupported` {case.versions}", case.versions, ("unsupported", index)))
    for number, (name, versions, key) in enumerate(claims):
        for other, theirs, _ in claims[:number]:
            if both := common(versions, theirs):
                yield corrupt(
                    f"{name} and {other} both hold {both}",
                    where=document.where(key),
                    hint="a topic is one thing for a version: applied, superseded, upstream or unsupported",
                )


def _payload(folder: Path, name: str, where: str) -> Payload:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise corrupt(f"the payload {name} lies outside the topic's folder", where=where)
    try:
        return read(path.read_bytes(), str(path))
    except OSError as error:
        raise corrupt(f"cannot read the payload {name}: {error.strerror}", where=where) from error
