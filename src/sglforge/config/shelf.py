"""Every file of one kind, by name: read, or known to be broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from sglforge.base.toml import Document, KeyPath
from sglforge.config.model import PackageRecipe, Profile, Stack, Target, Toolkit
from sglforge.config.parse import load_model
from sglforge.config.suggest import Kind
from sglforge.errors import ConfigError, Finding, Severity

N = TypeVar("N", PackageRecipe, Target, Toolkit, Stack, Profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[N]):
    """A model and the document that it was read from."""

    model: N
    document: Document

    def fault(self, code: str, key: KeyPath, message: str, *, hint: str = "") -> Finding:
        """Return an error finding about one key of the document."""
        return Finding(
            code=code,
            severity=Severity.ERROR,
            subject=self.model.name,
            message=message,
            hint=hint,
            where=self.document.where(key),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[N]):
    """The files of one kind; ``names`` also has those of broken files, ``faults`` says what is wrong."""

    kind: Kind
    written: dict[str, Written[N]]
    names: frozenset[str]
    faults: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Written[N]]:
        return iter(self.written.values())


def read_shelf(folder: Path, model: type[N], *, kind: Kind) -> Shelf[N]:
    """Read every ``*.toml`` of a folder in the order of their names; a missing folder is an empty shelf."""
    written: dict[str, Written[N]] = {}
    broken: set[str] = set()
    faults: list[Finding] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            read, document = load_model(path, model)
        except ConfigError as error:
            faults += error.as_findings()
            broken.add(path.stem)
            continue
        this = Written(model=read, document=document)
        if other := written.get(read.name):
            faults.append(
                this.fault(
                    "duplicate-name",
                    ("name",),
                    f"{kind} `{read.name}` is already written in {other.document.path.name}",
                    hint=f"call this one `{path.stem}`, as its file is called",
                )
            )
            continue
        if read.name != path.stem:
            faults.append(
                this.fault(
                    "name-differs-from-file",
                    ("name",),
                    f"{kind} `{read.name}` is written in {path.name}",
                    hint=f"rename the file to {read.name}.toml, or the {kind} to `{path.stem}`",
                )
            )
        written[read.name] = this
    return Shelf(kind=kind, written=written, names=frozenset(written) | frozenset(broken), faults=tuple(faults))
