"""Limits that control groups put on this process, version 1 and 2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

GIB = 2**30

# version 1 writes "no limit" as the largest number of pages
UNLIMITED_BYTES = 2**60

_MEMORY_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The tightest limits from this process's group up to the root, and the files that say so.

    None: no limit, or none that can be read.
    """

    memory_gib: float | None
    memory_source: str
    cpus: float | None
    cpus_source: str


def read(root: Path = Path("/")) -> Limits:
    """Return the limits of this process; ``root`` holds proc/ and sys/, here or of a recorded machine."""
    hierarchies = tuple(_hierarchies(root))
    memory = min(_memory(hierarchies), default=None)
    cpus = min(_cpus(hierarchies), default=None)
    none = "no limit" if hierarchies else "no control group is mounted"
    return Limits(
        memory_gib=memory[0] if memory else None,
        memory_source=f"/{memory[1].relative_to(root)}" if memory else none,
        cpus=cpus[0] if cpus else None,
        cpus_source=f"/{cpus[1].relative_to(root)}" if cpus else none,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """A control group that accounts for our memory: its version, 1 or 2, and its folder."""

    version: int
    folder: Path


def memory_groups(root: Path = Path("/")) -> tuple[MemoryGroup, ...]:
    """Return this process's memory group and those above it, limited or not, as far as they can be seen."""
    return tuple(
        MemoryGroup(version=hierarchy.version, folder=folder)
        for hierarchy in _hierarchies(root)
        for folder in hierarchy.folders
        if (folder / _MEMORY_LIMIT[hierarchy.version]).is_file()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hierarchy:
    """One mounted hierarchy: its controllers, and the folders from this process's group up to the mount."""

    version: int
    controllers: frozenset[str]
    folders: tuple[Path, ...]


def _memory(hierarchies: tuple[_Hierarchy, ...]) -> Iterator[tuple[float, Path]]:
    for hierarchy in hierarchies:
        if hierarchy.version == 1 and "memory" not in hierarchy.controllers:
            continue
        for folder in hierarchy.folders:
            file = folder / _MEMORY_LIMIT[hierarchy.version]
            limit = _text(file)
            if limit.isdigit() and int(limit) < UNLIMITED_BYTES:
                yield round(int(limit) / GIB, 2), file


def _cpus(hierarchies: tuple[_Hierarchy, ...]) -> Iterator[tuple[float, Path]]:
    for hierarchy in hierarchies:
        if hierarchy.version == 1 and "cpu" not in hierarchy.controllers:
            continue
        for folder in hierarchy.folders:
            if hierarchy.version == 2:
                file = folder / "cpu.max"
                quota, _, period = _text(file).partition(" ")
            else:
                file = folder / "cpu.cfs_quota_us"
                quota, period = _text(file), _text(folder / "cpu.cfs_period_us")
            # "max" and -1 mean no quota
            if quota.isdigit() and period.isdigit() and int(period):
                yield int(quota) / int(period), file


def _hierarchies(root: Path) -> Iterator[_Hierarchy]:
    groups = dict(_groups(_text(root / "proc/self/cgroup")))
    for line in _text(root / "proc/self/mountinfo").splitlines():
        # proc(5): id parent device root mount-point options [optional ...] - type source super-options
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        controllers = frozenset(kind[2].split(",")) if version == 1 else frozenset({""})
        if mine := sorted(controllers & groups.keys()):
            folders = _folders(root, PurePosixPath(fields[4]), mounted=fields[3], group=groups[mine[0]])
            yield _Hierarchy(version=version, controllers=controllers, folders=tuple(folders))


def _groups(text: str) -> Iterator[tuple[str, str]]:
    """Yield this process's group by controller; version 2 has none, its controller is empty."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _folders(root: Path, mount: PurePosixPath, *, mounted: str, group: str) -> Iterator[Path]:
    """Yield the folders of a group and of its parents, as far as they are visible below the mount."""
    inside = PurePosixPath(group)
    visible = PurePosixPath(".")
    # a container sees its own group as the mount's root, whatever the kernel calls it
    if ".." not in inside.parts and inside.is_relative_to(mounted):
        visible = inside.relative_to(mounted)
    top = root / mount.relative_to("/")
    for folder in (visible, *visible.parents):
        if (top / folder).is_dir():
            yield top / folder


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
