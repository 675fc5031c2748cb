"""The build plan: which packages, with which keys, hit or miss and why. Touches neither network nor disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256
from sglforge.config.lockfile import Lock, LockedGit, LockedPython, LockedRequirement, LockedSource
from sglforge.config.model import GitSource, PackageRecipe, PathSource, SdistSource, Source, Stack, Target, WheelSource
from sglforge.errors import LockError

KEY_FORMAT = 1
DAMAGED = "its wheel in the store is damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One package to build.

    ``key_parts`` is what the key was computed from, part by part; ``local_version`` labels the wheel.
    """

    package: str
    recipe: PackageRecipe
    source: Source
    locked: LockedSource | None
    build_requires: tuple[LockedRequirement, ...]
    key: BuildKey
    key_parts: Mapping[str, str]
    local_version: str
    state: Literal["hit", "miss"]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """Everything that a build will do, in order."""

    stack: Stack
    target: Target
    python: LockedPython
    steps: tuple[Step, ...]
    environment_key: BuildKey

    @property
    def misses(self) -> tuple[Step, ...]:
        """Return the steps that have to be built."""
        return tuple(step for step in self.steps if step.state == "miss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What this machine already knows, gathered before planning.

    ``sources`` holds the sha256 of each package's archive or source folder, ``series`` the digests of patch
    series, ``previous`` the key parts of the last build, all by package; ``toolchain`` the fingerprint's parts by
    name, ``stored`` the keys in the store, ``damaged`` those of them whose wheel cannot be used.
    """

    toolchain: Mapping[str, str]
    sources: Mapping[str, Sha256]
    series: Mapping[str, Sha256]
    stored: Collection[BuildKey]
    previous: Mapping[str, Mapping[str, str]]
    damaged: Collection[BuildKey] = ()


def make(
    *,
    stack: Stack,
    target: Target,
    recipes: Mapping[str, PackageRecipe],
    lock: Lock,
    python: LockedPython,
    known: Known,
) -> BuildPlan:
    """Return the plan of a stack on a target.

    Raises LockError ``lock-stale`` when the lock lacks a package of the stack or pins another version of it.
    """
    steps = tuple(
        _step(
            package,
            recipe=recipes[package],
            source=stack.packages[package].source,
            target=target,
            lock=lock,
            known=known,
        )
        for package in packages(stack, target)
    )
    environment = digest(
        {
            "format": KEY_FORMAT,
            "target": target.name,
            "python": python.model_dump(mode="json"),
            "wheels": [step.key for step in steps],
        }
    )
    return BuildPlan(stack=stack, target=target, python=python, steps=steps, environment_key=BuildKey(environment))


def packages(stack: Stack, target: Target) -> tuple[str, ...]:
    """Return the packages of a stack that a target needs, in the stack's order."""
    return tuple(name for name, entry in stack.packages.items() if not entry.targets or target.name in entry.targets)


def _step(
    package: str,
    *,
    recipe: PackageRecipe,
    source: Source,
    target: Target,
    lock: Lock,
    known: Known,
) -> Step:
    locked = _locked(package, source, lock)
    build_requires = tuple(lock.build_requires.get(package, ()))
    source_digest = known.sources.get(package) or digest(source.model_dump(mode="json"))
    series = known.series.get(package)
    parts = {
        "format": str(KEY_FORMAT),
        "recipe": digest(recipe.model_dump(mode="json", exclude={"description"})),
        "source": source_digest,
        "patches": series or "none",
        "target": digest([target.name, target.arch_list]),
        "build-requires": digest([[item.name, item.version] for item in build_requires]),
        **{f"toolchain.{name}": known.toolchain[name] for name in recipe.toolchain},
    }
    key = BuildKey(digest(parts))
    hit = key in known.stored and key not in known.damaged
    return Step(
        package=package,
        recipe=recipe,
        source=source,
        locked=locked,
        build_requires=build_requires,
        key=key,
        key_parts=parts,
        local_version=f"{target.name}.t{source_digest[:8]}" + (f".p{series[:8]}" if series else ""),
        state="hit" if hit else "miss",
        why=DAMAGED if key in known.damaged else _why(hit=hit, parts=parts, previous=known.previous.get(package)),
    )


def _locked(package: str, source: Source, lock: Lock) -> LockedSource | None:
    """Return what the lock pins for a source; None for a folder, and for a repository that it has no commit of.

    Raises LockError ``lock-stale``.
    """
    if isinstance(source, PathSource):
        return None
    locked = lock.sources.get(package)
    if locked is None and isinstance(source, GitSource):
        return None
    if locked is None or locked.kind != source.kind or _asked(locked) != _asked(source):
        has = f"pins {' '.join(_asked(locked))}" if locked else "does not have it"
        raise LockError(
            code="lock-stale",
            message=f"stack {lock.stack} wants {' '.join(_asked(source))}, its lock {has}",
            hint=f"nox -s lock -- --stack {lock.stack} --target {lock.target}",
        )
    return locked


def _asked(source: WheelSource | SdistSource | GitSource | LockedSource) -> tuple[str, str]:
    """Return what names a source: project and version, or repository and ref."""
    if isinstance(source, GitSource | LockedGit):
        return source.url, source.ref
    return source.project, source.version


def _why(*, hit: bool, parts: Mapping[str, str], previous: Mapping[str, str] | None) -> str:
    if hit:
        return "in the store"
    if previous is None:
        return "never built here"
    changed = sorted(name for name in parts.keys() | previous.keys() if parts.get(name) != previous.get(name))
    return f"changed since the last build: {', '.join(changed)}" if changed else "no longer in the store"
