"""Locks: names, versions and hashes of everything that a stack takes from outside, never a URL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sglforge.base.files import write_text
from sglforge.config.model import (
    FOLDER_OR_ALL,
    GIT_ID,
    GIT_REF,
    GIT_URL,
    INNER_PATH,
    LINE,
    RELEASE,
    VARIANT,
    FileModel,
    HexSha256,
    Name,
    PythonMinor,
    Version,
)
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError, LockError

GitId = Annotated[str, Field(pattern=GIT_ID)]
FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._+!-]*$"


class LockedFile(FileModel):
    """One file that is accepted: its name on any index, and its hash."""

    name: Annotated[str, Field(description="file name, the same on every index", pattern=FILE_NAME)]
    sha256: Annotated[HexSha256, Field(description="hash of the file's bytes")]


class LockedArchive(FileModel):
    """The archives of one package: one for each Python minor, or one for all (sdist, pure wheel)."""

    kind: Annotated[Literal["wheel", "sdist"], Field(description="kind of the stack's source")]
    project: Annotated[str, Field(description="project name on the package index", min_length=1)]
    version: Annotated[Version, Field(description="exact version")]
    files: Annotated[list[LockedFile], Field(description="accepted files", min_length=1)]


class LockedPath(FileModel):
    """A file or folder of a commit that the build sees."""

    path: Annotated[str, Field(description="where it is; `.` for the whole repository", pattern=FOLDER_OR_ALL)]
    id: Annotated[GitId, Field(description="id of its tree or blob")]


class LockedSubmodule(FileModel):
    """Another repository inside the paths that the build sees."""

    path: Annotated[str, Field(description="where it is checked out", pattern=INNER_PATH)]
    url: Annotated[str, Field(description="where it comes from, as `.gitmodules` says, made absolute", pattern=GIT_URL)]
    commit: Annotated[GitId, Field(description="its commit")]


class LockedGit(FileModel):
    """A commit of a git repository, and what a build sees of it."""

    kind: Annotated[Literal["git"], Field(description="kind of the stack's source")]
    url: Annotated[str, Field(description="where it comes from", pattern=GIT_URL)]
    ref: Annotated[str, Field(description="what was asked for", pattern=GIT_REF)]
    commit: Annotated[GitId, Field(description="what it was at the time")]
    described: Annotated[str, Field(description="the commit by its nearest tag", pattern=LINE)]
    version: Annotated[
        Version,
        Field(description="version that the package is built as: the same for all commits after a tag"),
    ]
    paths: Annotated[list[LockedPath], Field(description="what the build sees", min_length=1)]
    submodules: Annotated[
        list[LockedSubmodule], Field(description="repositories inside these paths", default_factory=list)
    ]

    def seen_by_build(self, subdirectory: str | None) -> dict[str, object]:
        """Return what decides the build key, as JSON: trees, submodules, place and version, whatever the commit is."""
        return {
            "paths": {entry.path: entry.id for entry in self.paths},
            "submodules": {entry.path: entry.commit for entry in self.submodules},
            "subdirectory": subdirectory,
            "version": self.version,
        }


LockedSource = Annotated[LockedArchive | LockedGit, Field(discriminator="kind")]


class LockedRequirement(FileModel):
    """One distribution, with every file of it that fits the platform."""

    name: Annotated[str, Field(description="distribution name, normalised", min_length=1)]
    version: Annotated[str, Field(description="exact version", min_length=1)]
    files: Annotated[list[LockedFile], Field(description="accepted files", min_length=1)]


class LockedToolkit(FileModel):
    """The CUDA toolkit that is installed where a machine has none that fits: wheels, and what they were chosen by."""

    name: Annotated[Name, Field(description="name of its recipe")]
    release: Annotated[str, Field(description="release of its nvcc", pattern=RELEASE)]
    requires: Annotated[list[str], Field(description="what the recipe asked for", min_length=1)]
    requirements: Annotated[list[LockedRequirement], Field(description="its wheels, complete", min_length=1)]


class LockedTorch(FileModel):
    """torch, with the hashes that are accepted."""

    version: Annotated[Version, Field(description="exact version without its local part")]
    variant: Annotated[str, Field(description="local version that names the build", pattern=VARIANT)]
    sha256: Annotated[
        list[HexSha256], Field(description="hashes of accepted wheels; empty: none is proven for this Python")
    ]


class LockedModules(FileModel):
    """The environment in which a package writes the statements of its modules."""

    torch: Annotated[LockedTorch, Field(description="the torch that is imported; wheels for every locked Python")]
    requirements: Annotated[list[LockedRequirement], Field(description="everything else, complete")]


class LockedPython(FileModel):
    """The environment of one Python minor."""

    minor: Annotated[PythonMinor, Field(description="the Python minor")]
    torch: Annotated[LockedTorch, Field(description="installed first, never replaced")]
    requirements: Annotated[list[LockedRequirement], Field(description="everything else, complete")]


class Lock(FileModel):
    """What a stack takes from outside on one target (`locks/<stack>.<target>.lock.toml`), generated."""

    format: Annotated[Literal[1], Field(description="version of this format")]
    stack: Annotated[Name, Field(description="stack that it belongs to")]
    target: Annotated[Name, Field(description="target that it belongs to")]
    sources: Annotated[
        dict[Name, LockedSource],
        Field(description="archives and commits of the stack's packages", default_factory=dict),
    ]
    build_requires: Annotated[
        dict[Name, Annotated[list[LockedRequirement], Field(min_length=1)]],
        Field(description="build environment of each package that is built from source", default_factory=dict),
    ]
    toolkit: Annotated[
        LockedToolkit | None, Field(description="CUDA toolkit of the target; its versions hold for environments too")
    ] = None
    modules: Annotated[
        dict[Name, LockedModules], Field(description="environment of the modules of each package that has them")
    ] = {}  # noqa: RUF012 - a pydantic default
    pythons: Annotated[list[LockedPython], Field(description="environments, one for each Python minor", min_length=1)]


def lock_path(root: Path, stack: str, target: str) -> Path:
    """Return where the lock of a stack and a target lies in a catalog."""
    return root / "locks" / f"{stack}.{target}.lock.toml"


def read_lock(path: Path) -> Lock:
    """Read a lock.

    Raises LockError ``lock-missing``, or ``lock-invalid`` with a finding for every fault.
    """
    if not os.path.lexists(path):
        stack, _, target = path.name.removesuffix(".lock.toml").rpartition(".")
        raise LockError(
            code="lock-missing",
            message=f"stack `{stack}` has no lock for target `{target}`",
            where=str(path),
            hint=f"nox -s lock -- --stack {stack} --target {target}",
        )
    try:
        return load_model(path, Lock)[0]
    except ConfigError as error:
        hint = "locks are generated: restore it from version control, or make it again: nox -s lock"
        raise LockError(
            code="lock-invalid",
            message=f"{path.name} is not a lock",
            where=error.where,
            hint=hint,
            findings=tuple(replace(finding, hint=hint) for finding in error.as_findings()),
        ) from error


def write_lock(path: Path, text: str) -> bool:
    """Write a lock where its text is another one, and tell whether it was.

    Raises LockError ``lock-not-written``.
    """
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    try:
        write_text(path, text)
    except OSError as error:
        raise LockError(
            code="lock-not-written",
            message=f"cannot write the lock: {error.strerror}",
            where=str(path),
            hint="run it in a checkout that you may write to",
        ) from error
    return True


def dump_lock(lock: Lock) -> str:
    """Return a lock as TOML: the same lock gives the same text, every file has a line of its own.

    Names and versions are sorted where their order means nothing.
    """
    return "\n".join(_document(lock)) + "\n"


def _document(lock: Lock) -> Iterator[str]:
    yield "# Generated by `nox -s lock`; never edited by hand."
    yield f"format = {lock.format}"
    yield f"stack = {_text(lock.stack)}"
    yield f"target = {_text(lock.target)}"
    for name, source in sorted(lock.sources.items()):
        yield f"\n[sources.{_text(name)}]"
        yield f"kind = {_text(source.kind)}"
        yield from _archive(source) if isinstance(source, LockedArchive) else _git(source)
    for name, requirements in sorted(lock.build_requires.items()):
        yield from _requirements(f"build-requires.{_text(name)}", requirements)
    if lock.toolkit:
        yield "\n[toolkit]"
        yield f"name = {_text(lock.toolkit.name)}"
        yield f"release = {_text(lock.toolkit.release)}"
        yield from _array("requires", [_text(requirement) for requirement in lock.toolkit.requires])
        yield from _requirements("toolkit.requirements", lock.toolkit.requirements)
    for name, modules in sorted(lock.modules.items()):
        yield f"\n[modules.{_text(name)}]"
        yield from _with_torch(f"modules.{_text(name)}", modules.torch, modules.requirements)
    for python in lock.pythons:
        yield "\n[[pythons]]"
        yield f"minor = {_text(python.minor)}"
        yield from _with_torch("pythons", python.torch, python.requirements)


def _with_torch(table: str, torch: LockedTorch, requirements: Sequence[LockedRequirement]) -> Iterator[str]:
    if not requirements:
        yield "requirements = []"
    yield f"\n[{table}.torch]"
    yield f"version = {_text(torch.version)}"
    yield f"variant = {_text(torch.variant)}"
    yield from _array("sha256", [_text(digest) for digest in sorted(torch.sha256)])
    yield from _requirements(f"{table}.requirements", requirements)


def _archive(source: LockedArchive) -> Iterator[str]:
    yield f"project = {_text(source.project)}"
    yield f"version = {_text(source.version)}"
    yield from _files(source.files)


def _git(source: LockedGit) -> Iterator[str]:
    for key in ("url", "ref", "commit", "described", "version"):
        yield f"{key} = {_text(getattr(source, key))}"
    paths = [f"{{ path = {_text(item.path)}, id = {_text(item.id)} }}" for item in source.paths]
    yield from _array("paths", sorted(paths))
    submodules = [
        f"{{ path = {_text(item.path)}, url = {_text(item.url)}, commit = {_text(item.commit)} }}"
        for item in source.submodules
    ]
    if submodules:
        yield from _array("submodules", sorted(submodules))


def _requirements(table: str, requirements: Sequence[LockedRequirement]) -> Iterator[str]:
    for requirement in sorted(requirements, key=lambda item: item.name):
        yield f"\n[[{table}]]"
        yield f"name = {_text(requirement.name)}"
        yield f"version = {_text(requirement.version)}"
        yield from _files(requirement.files)


def _files(files: Sequence[LockedFile]) -> Iterator[str]:
    lines = sorted(f"{{ name = {_text(file.name)}, sha256 = {_text(file.sha256)} }}" for file in files)
    yield from _array("files", lines)


def _array(key: str, values: Sequence[str]) -> Iterator[str]:
    if not values:
        yield f"{key} = []"
        return
    yield f"{key} = ["
    yield from (f"  {value}," for value in values)
    yield "]"


def _text(value: str) -> str:
    # a JSON string is a TOML basic string, but for DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
