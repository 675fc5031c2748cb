"""Reading topics from a catalog: every fault of what people wrote is found in one pass."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from sglforge.base.toml import Document, KeyPath
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError, PatchError
from sglforge.patches.diffs import Diff, parse_diff
from sglforge.patches.faults import corrupt
from sglforge.patches.model import DiffEdit, PatchFile, TomlEdit
from sglforge.patches.payload import Payload, read
from sglforge.patches.topic import DiffKey, Topic, key_of

TOPIC_FILE = "patch.toml"


def load_topic(folder: Path) -> Topic:
    """Read a topic's folder.

    Raises PatchError ``patch-corrupt`` with every fault of it.
    """
    path = folder / TOPIC_FILE
    if not os.path.lexists(path):
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
    return assemble(folder.name, folder, file, document)


def assemble(name: str, folder: Path, file: PatchFile, document: Document) -> Topic:
    """Return a topic with the payloads and diffs that its edits name.

    Raises PatchError ``patch-corrupt`` with every fault of it.
    """
    payloads: dict[str, Payload] = {}
    diffs: dict[DiffKey, Diff] = {}
    wrong = [*_contradictions(file, document), *_twice(file, document)]
    faults = [finding for fault in wrong for finding in fault.as_findings()]
    for index, edit in enumerate(file.edits):
        where = document.where(("edits", index, "payload"))
        try:
            match edit:
                case TomlEdit():
                    pass
                case DiffEdit():
                    diffs[key_of(edit)] = _diff(folder, edit, where)
                case _:
                    payloads[edit.payload] = read(_bytes(folder, edit.payload, where), str(folder / edit.payload))
        except PatchError as error:
            faults += error.as_findings()
    if faults:
        raise PatchError(
            code=faults[0].code if len(faults) == 1 else "patch-corrupt",
            message=f"topic `{name}` is corrupt",
            findings=tuple(faults),
        )
    return Topic(name=name, file=file, document=document, payloads=payloads, diffs=diffs)


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


def _twice(file: PatchFile, document: Document) -> Iterator[PatchError]:
    """Yield what a topic declares twice about its contracts: of two reasons one is not true, or none is needed."""
    contracts = file.contracts
    declared: list[tuple[str, KeyPath]] = [(f"the flag {flag}", ("contracts", "flags")) for flag in contracts.flags]
    for index, waiver in enumerate(contracts.waive):
        declared.append((f"the waiver of `{waiver.contract}`", ("contracts", "waive", index)))
    for index, refusal in enumerate(contracts.refused):
        what = f"the refusal of `{refusal.setting}` with {refusal.message!r}"
        declared += [
            (f"{what} for `{refusal.attribute}` of `{name}`", ("contracts", "refused", index))
            for name in refusal.classes
        ]
    for index, default in enumerate(contracts.defaulted):
        declared += [
            (f"the default of `{default.attribute}` in `{name}`", ("contracts", "defaulted", index))
            for name in default.classes
        ]
    seen: set[str] = set()
    for what, key in declared:
        if what in seen:
            yield corrupt(f"{what} is declared twice", where=document.where(key), hint="keep one of them")
        seen.add(what)


def _diff(folder: Path, edit: DiffEdit, where: str) -> Diff:
    """Read a diff, without the files that are left out; a glob that fits none of them is a fault."""
    diff = parse_diff(_bytes(folder, edit.payload, where), str(folder / edit.payload), strip=edit.strip)
    names = [file.name for file in diff.files]
    for glob in edit.exclude:
        if not fnmatch.filter(names, glob):
            raise corrupt(f"no file of the diff fits the glob `{glob}`", where=where, hint=f"it has {', '.join(names)}")
    kept = diff.without(frozenset(name for glob in edit.exclude for name in fnmatch.filter(names, glob)))
    if not kept.files:
        raise corrupt("every file of the diff is excluded", where=where)
    return kept


def _bytes(folder: Path, name: str, where: str) -> bytes:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise corrupt(f"the payload {name} lies outside the topic's folder", where=where)
    try:
        return path.read_bytes()
    except OSError as error:
        raise corrupt(f"cannot read the payload {name}: {error.strerror}", where=where) from error
