"""The build plan: which packages, with which keys, hit or miss and why. Touches neither network nor disk.

Planning has two halves, so that only those entries of the store are looked at that a plan asks for: :func:`draft`
works out the keys, :func:`make` judges them by what was found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sglforge.base.download import redact
from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256
from sglforge.config.lockfile import Lock, LockedGit, LockedPython, LockedRequirement, LockedSource
from sglforge.config.model import (
    GitSource,
    PackageRecipe,
    PathSource,
    SdistSource,
    Source,
    Stack,
    Target,
    WheelSource,
)
from sglforge.errors import ConfigError, LockError
from sglforge.keys.changes import Change, changes
from sglforge.keys.modules import PlannedModules, compiles_modules, planned_modules
from sglforge.keys.parts import KEY_FORMAT, Parts, key_of, label, parts_of, source_parts, variables
from sglforge.keys.requirements import unpinned

DAMAGED = "its wheel in the store is damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What decides about keys on this machine, gathered before planning.

    ``toolchain`` holds the host's parts of the toolchain by their names in recipes, ``compilers`` the user's CC and
    CXX. By package: ``sources`` the sha256 of the archive or the digest of the source folder, ``series`` the digests
    of the patch topics that are applied, in their order, ``drivers`` the digest of the program that asks for the
    statements of its modules. ``module_set`` is the name of the set that is asked for, None for each recipe's default.
    """

    toolchain: Mapping[str, str]
    sources: Mapping[str, Sha256]
    series: Mapping[str, Mapping[str, Sha256]]
    compilers: Mapping[str, str] = field(default_factory=dict)
    drivers: Mapping[str, Sha256] = field(default_factory=dict)
    module_set: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A package with its key, before anybody looked whether it is built.

    ``key_parts`` is what the key was computed from; ``local_version`` labels the wheel; ``environment`` are the
    variables that the recipe and its compilers bring into the build; ``depends`` are the packages whose wheels are
    installed in the build environment; ``modules`` is what is compiled ahead of time into the wheel.
    """

    package: str
    recipe: PackageRecipe
    source: Source
    locked: LockedSource | None
    build_requires: tuple[LockedRequirement, ...]
    key: BuildKey
    key_parts: Parts
    local_version: str
    environment: Mapping[str, str] = field(default_factory=dict)
    depends: tuple[str, ...] = ()
    modules: PlannedModules | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a build took the last time: wall seconds, and peak memory in MiB; None where nobody measured it."""

    seconds: float | None = None
    peak_rss_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBuild:
    """The last build of a package here, for the same target and Python."""

    key_parts: Parts
    took: Estimate = Estimate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the workspace has: keys with a wheel, keys whose wheel cannot be used, last builds by package."""

    stored: Collection[BuildKey] = ()
    damaged: Collection[BuildKey] = ()
    last: Mapping[str, LastBuild] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Draft):
    """One package to build, or one that is there.

    ``changes`` is what differs from the last build, of a miss; ``estimate`` what that took, nothing for a hit.
    """

    state: Literal["hit", "miss"]
    why: str
    changes: tuple[Change, ...] = ()
    estimate: Estimate = Estimate()


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

    @property
    def estimate(self) -> Estimate:
        """Return the time of all misses one after the other and the memory of the largest, None if any is unknown."""
        taken = [step.estimate for step in self.misses]
        seconds = [took.seconds for took in taken if took.seconds is not None]
        memory = [took.peak_rss_mib for took in taken if took.peak_rss_mib is not None]
        return Estimate(
            seconds=sum(seconds) if len(seconds) == len(taken) else None,
            peak_rss_mib=max(memory, default=0.0) if len(memory) == len(taken) else None,
        )


def draft(
    *,
    stack: Stack,
    target: Target,
    recipes: Mapping[str, PackageRecipe],
    lock: Lock,
    python: LockedPython,
    known: Known,
) -> tuple[Draft, ...]:
    """Return the packages of a stack for a target with their keys, in the stack's order.

    Raises LockError ``lock-stale`` when the lock lacks a package of the stack, or a requirement of its build, or
    pins another version of it, ``foreign-package`` when it has a distribution that a recipe refuses; ConfigError
    ``unknown-module-set``.
    """
    names = packages(stack, target)
    _refuse_foreign(names, recipes, lock, python)
    made: dict[str, Draft] = {}
    toolchain = {
        **known.toolchain,
        "python-abi": f"cp{python.minor.replace('.', '')}",
        "torch": f"{python.torch.version}+{python.torch.variant}",
    }
    for package in names:
        recipe, source = recipes[package], stack.packages[package].source
        locked = _locked(package, source, lock)
        method = source.method
        depends = tuple(recipe.depends) if method == "pep517" else ()
        build_requires = _build_requires(recipe, source, lock)
        content, topics = source_parts(source, locked, known.sources.get(package)), known.series.get(package, {})
        environment = variables(recipe, method=method, version=_version(source, locked), compilers=known.compilers)
        modules = (
            planned_modules(
                recipe,
                wanted=known.module_set,
                target=target,
                locked=lock.modules.get(package),
                driver=known.drivers[package],
            )
            if compiles_modules(recipe, method=method, target=target)
            else None
        )
        parts = parts_of(
            recipe=recipe,
            target=target,
            python=python,
            source=content,
            method=method,
            topics=topics,
            build_requires=build_requires,
            toolchain=toolchain,
            environment=environment,
            depends={name: made[name].key for name in depends},
            modules=modules.parts() if modules else None,
        )
        made[package] = Draft(
            package=package,
            recipe=recipe,
            source=source,
            locked=locked,
            build_requires=build_requires,
            key=key_of(parts),
            key_parts=parts,
            local_version=label(
                target=target,
                python=python,
                source=content,
                topics=topics,
                modules=modules.name if modules else None,
            ),
            environment=environment,
            depends=depends,
            modules=modules,
        )
    if known.module_set and not any(draft.modules for draft in made.values()):
        raise ConfigError(
            code="unknown-module-set",
            message=f"no package of stack {stack.name} has modules for target {target.name}",
            hint="leave --modules out",
        )
    return tuple(made.values())


def make(
    drafts: Sequence[Draft], *, stack: Stack, target: Target, python: LockedPython, found: Found = Found()
) -> BuildPlan:
    """Return the plan of drafts: each one a hit or a miss, by what the workspace has."""
    steps = tuple(_step(each, found) for each in drafts)
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


def needed(steps: Sequence[Step], wanted: Collection[str], *, of_hits: bool = False) -> tuple[Step, ...]:
    """Return the steps of packages with those that they are built with, in the order of the plan.

    A package whose wheel is there needs no other one; ``of_hits`` also returns what it was built with.
    """
    names = set(wanted)
    for step in reversed(steps):
        if step.package in names and (of_hits or step.state == "miss"):
            names.update(step.depends)
    return tuple(step for step in steps if step.package in names)


def _refuse_foreign(
    names: Sequence[str], recipes: Mapping[str, PackageRecipe], lock: Lock, python: LockedPython
) -> None:
    """Refuse an environment that has what does not go with a package that we build.

    Raises LockError ``foreign-package``.
    """
    locked = {pinned.name for pinned in python.requirements}
    for name in names:
        for refused, reason in recipes[name].refuses.items():
            if refused in locked:
                raise LockError(
                    code="foreign-package",
                    message=f"the environment of stack {lock.stack} has {refused} beside {name}: {reason}",
                    hint=f"take {refused} out of the stack's requirements (where a package asks for it, add it to "
                    f"`relaxed`), then nox -s lock -- --stack {lock.stack} --target {lock.target}",
                )


def _step(draft: Draft, found: Found) -> Step:
    hit = draft.key in found.stored and draft.key not in found.damaged
    last = found.last.get(draft.package)
    changed = changes(last.key_parts, draft.key_parts) if last and not hit else ()
    return Step(
        **{name: getattr(draft, name) for name in Draft.__dataclass_fields__},
        state="hit" if hit else "miss",
        why=DAMAGED if draft.key in found.damaged else _why(hit=hit, changed=changed, last=last),
        changes=changed,
        estimate=last.took if last and not hit else Estimate(),
    )


def _why(*, hit: bool, changed: Sequence[Change], last: LastBuild | None) -> str:
    if hit:
        return "in the store"
    if last is None:
        return "never built here"
    parts = sorted({change.place[0] for change in changed})
    return f"changed since the last build: {', '.join(parts)}" if parts else "no longer in the store"


def _build_requires(recipe: PackageRecipe, source: Source, lock: Lock) -> tuple[LockedRequirement, ...]:
    """Return the pinned build environment of a package.

    Raises LockError ``lock-stale`` for a requirement that is not pinned: the recipe has moved on.
    """
    if source.method == "repack":
        return ()
    pinned = tuple(lock.build_requires.get(recipe.name, ()))
    # a repository without a commit can be planned all the same; it is built after it is locked
    locked = not isinstance(source, GitSource) or recipe.name in lock.sources
    if locked and (missing := unpinned(recipe.build_requires, pinned)):
        raise LockError(
            code="lock-stale",
            message=f"{recipe.name} needs {', '.join(missing)} for its build, "
            f"the lock of stack {lock.stack} does not pin that",
            hint=f"nox -s lock -- --stack {lock.stack} --target {lock.target}",
        )
    return pinned


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
    """Return what names a source, nothing secret in it: project and version, or repository and ref."""
    if isinstance(source, GitSource | LockedGit):
        return redact(source.url), source.ref
    return source.project, source.version


def _version(source: Source, locked: LockedSource | None) -> str | None:
    """Return the version that a source is built as; None where nobody knows it yet, and for a folder."""
    if locked is not None:
        return locked.version
    return source.version if isinstance(source, GitSource) else None
