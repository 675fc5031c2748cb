"""The verb about pins: releases to hashes, refs to commits, requirements to files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sglforge import plan as plans
from sglforge.base.console import Console
from sglforge.base.index_locations import IndexLocations
from sglforge.base.scratch import working_folder
from sglforge.config import suggest
from sglforge.config.lockfile import (
    Lock,
    LockedModules,
    LockedPython,
    LockedRequirement,
    LockedSource,
    LockedToolkit,
    dump_lock,
    lock_path,
    read_lock,
    write_lock,
)
from sglforge.config.model import GitSource, SdistSource, Toolkit, WheelSource
from sglforge.errors import ConfigError, FetchError, Finding, InstallError, LockError, PatchError, Severity
from sglforge.host import package_index
from sglforge.keys.modules import compiles_modules
from sglforge.pipeline.gitlocking import Moved, lock_git, updates_all
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.running import start_run
from sglforge.pipeline.select import Selection, select
from sglforge.provision.resolve import resolve, resolve_build, resolve_modules
from sglforge.provision.uv import Uv, open_uv
from sglforge.sources.pin import pin


def lock(request: Request, console: Console) -> Outcome:
    """Resolve a stack's sources and requirements for a target and write its lock.

    Pins that still hold are kept, commits of branches too; ``--update`` drops those that it names, or all of them.
    A repository without a commit is locked at its newest one, unless ``--update`` names others only: then it stays
    without, which is said, and nothing is asked of it.
    With ``--walk-back`` a branch is locked at its newest commit on which the patch series apply.

    Raises ConfigError ``usage`` and ``unknown-package``; LockError, whatever kept a pin from being made. The old lock
    stays as it is then.
    """
    selection = select(request, console)
    path = lock_path(selection.catalog.root, selection.stack.name, selection.target.name)
    previous, remarks = _previous(path)
    if request.option("walk_back", int) and request.options.get("update") is None:
        raise ConfigError(
            code="usage",
            message="--walk-back moves commits, and without --update they stay",
            hint="add --update, or --update PKG",
        )
    requirements = _requirement_names(selection, previous)
    _require_names(request.words("update"), selection, requirements)
    record = start_run(request, console)
    locations = package_index.read()
    uv = open_uv(locations)
    names = plans.packages(selection.stack, selection.target)
    gits = {name: source for name in names if isinstance(source := _source(selection, name), GitSource)}
    kept = previous.sources if previous else {}
    with _as_lock_errors(), working_folder(request.workspace, "lock") as folder:
        toolkit = _toolkit(request, selection, previous, uv, folder, console)
        with _telling_the_rest(request, selection, gits, kept):
            moved = lock_git(gits, kept, request=request, selection=selection, console=console)
        remarks = (*remarks, *_without_commit(moved, request))
        sources = {**_releases(selection, names, locations, console), **moved.sources}
        build_requires = _build_requires(request, selection, previous, names, uv, folder, console)
        modules = _modules(request, selection, previous, names, uv, folder, console)
        pythons, findings = _pythons(request, selection, previous, requirements, toolkit, uv, folder, console)
    findings = [*remarks, *findings]
    made = Lock(
        format=1,
        stack=selection.stack.name,
        target=selection.target.name,
        sources=sources,
        build_requires=build_requires,
        toolkit=toolkit,
        modules=modules,
        pythons=pythons,
    )
    changed = write_lock(path, dump_lock(made))
    document = {
        **opening(findings, console),
        **selection.to_json(),
        "lock": str(path),
        "changed": changed,
        "commits": [move.to_json() for move in moved.moves],
        "run": record.id,
    }
    lines = [line for move in moved.moves for line in move.lines()]
    return Outcome(document=document, text="\n".join([*lines, f"{path} {'written' if changed else 'unchanged'}"]))


@contextmanager
def _as_lock_errors() -> Iterator[None]:
    """Let whatever a network, an index, git, uv or a patch series says be the failure of this stage."""
    try:
        yield
    except (FetchError, PatchError, InstallError) as error:
        raise LockError(
            code=error.code,
            message=error.message,
            where=error.where,
            context=error.context,
            hint=error.hint,
            findings=error.findings,
            log=error.log,
        ) from error


@contextmanager
def _telling_the_rest(
    request: Request, selection: Selection, gits: Mapping[str, GitSource], kept: Mapping[str, LockedSource]
) -> Iterator[None]:
    """Say with the failure of a repository that has no commit yet how to lock everything but such repositories."""
    try:
        yield
    except (FetchError, LockError) as error:
        names = plans.packages(selection.stack, selection.target)
        others = [name for name in names if name not in gits] + [name for name in gits if name in kept]
        if request.words("update") or not others or all(name in kept for name in gits):
            raise
        rest = request.command("lock", "--update", others[0])
        raise replace(error, context={**error.context, "to lock the rest without it": rest}) from error


def _previous(path: Path) -> tuple[Lock | None, tuple[Finding, ...]]:
    """Return the lock whose pins are kept; one that is damaged has none, and that is said.

    Raises LockError ``lock-invalid`` for one that may not be read: what is in it is not known.
    """
    if not path.is_file():
        return None, ()
    try:
        return read_lock(path), ()
    except LockError as error:
        if not os.access(path, os.R_OK):
            raise
        fault = error.as_findings()[0]
        return None, (
            Finding(
                code="lock-invalid",
                severity=Severity.WARNING,
                subject=path.name,
                message=f"the old lock was none, so that everything is pinned anew: {fault.message}",
                where=fault.where,
                hint="git diff locks   # shows what moved",
            ),
        )


def _source(selection: Selection, name: str) -> object:
    return selection.stack.packages[name].source


def _releases(
    selection: Selection, names: Sequence[str], locations: IndexLocations, console: Console
) -> dict[str, LockedSource]:
    """Pin what is released on an index."""
    found: dict[str, LockedSource] = {}
    for name in names:
        source = selection.stack.packages[name].source
        if isinstance(source, WheelSource | SdistSource):
            with console.step(f"pin {name}") as step:
                found[name] = pinned = pin(source, selection.environment.pythons, locations)
                step.say(f"{source.project} {source.version}, {len(pinned.files)} files")
    return found


def _build_requires(
    request: Request,
    selection: Selection,
    previous: Lock | None,
    names: Sequence[str],
    uv: Uv,
    folder: Path,
    console: Console,
) -> dict[str, list[LockedRequirement]]:
    """Pin the build environment of what is built from source; what is not updated stays."""
    kept = previous.build_requires if previous and not updates_all(request) else {}
    found = {}
    for name in names:
        requires = selection.catalog.packages[name].build_requires
        if requires and selection.stack.packages[name].source.method == "pep517":
            with console.step(f"resolve build of {name}"):
                found[name] = resolve_build(
                    requires,
                    selection.environment.pythons,
                    uv=uv,
                    scratch=folder,
                    previous=kept.get(name, ()),
                    update=request.words("update"),
                )
    return found


def _toolkit(
    request: Request,
    selection: Selection,
    previous: Lock | None,
    uv: Uv,
    folder: Path,
    console: Console,
) -> LockedToolkit | None:
    """Pin the wheels of the target's CUDA toolkit; what is not updated stays."""
    recipe = selection.catalog.toolkit(selection.target)
    if recipe is None:
        return None
    kept = previous.toolkit if previous and not _moves_toolkit(request, recipe) else None
    with console.step("resolve toolkit") as step:
        pins = resolve_build(
            recipe.requires,
            selection.environment.pythons,
            uv=uv,
            scratch=folder,
            previous=kept.requirements if kept else (),
            update=request.words("update"),
        )
        step.say(f"CUDA {recipe.release}, {len(pins)} wheels")
    return LockedToolkit(name=recipe.name, release=recipe.release, requires=recipe.requires, requirements=pins)


def _moves_toolkit(request: Request, recipe: Toolkit) -> bool:
    return updates_all(request) or recipe.name in request.words("update")


def _without_commit(moved: Moved, request: Request) -> tuple[Finding, ...]:
    """Return a warning for repositories that have no commit yet and that were not asked for."""
    if not moved.left_out:
        return ()
    names = ", ".join(moved.left_out)
    return (
        Finding(
            code="git-not-pinned",
            severity=Severity.WARNING,
            subject=names,
            message=f"{names}: no commit is locked, for only {', '.join(request.words('update'))} was asked for; "
            "it can be planned, not fetched or built",
            hint=request.command("lock") + "   # locks it too",
        ),
    )


def _modules(
    request: Request,
    selection: Selection,
    previous: Lock | None,
    names: Sequence[str],
    uv: Uv,
    folder: Path,
    console: Console,
) -> dict[str, LockedModules]:
    """Pin the environment in which packages write the statements of their modules; what is not updated stays."""
    kept = previous.modules if previous and not updates_all(request) else {}
    found = {}
    for name in names:
        recipe, method = selection.catalog.packages[name], selection.stack.packages[name].source.method
        if recipe.modules and compiles_modules(recipe, method=method, target=selection.target):
            with console.step(f"resolve modules of {name}"):
                found[name] = resolve_modules(
                    recipe.modules,
                    selection.environment.pythons,
                    uv=uv,
                    scratch=folder,
                    previous=kept.get(name),
                    update=request.words("update"),
                )
    return found


def _pythons(
    request: Request,
    selection: Selection,
    previous: Lock | None,
    known: Mapping[str, str],
    toolkit: LockedToolkit | None,
    uv: Uv,
    folder: Path,
    console: Console,
) -> tuple[list[LockedPython], list[Finding]]:
    """Pin the environment of each Python; what is not updated stays, and the toolkit's versions hold there too."""
    from packaging.utils import canonicalize_name

    update = [name for name in request.words("update") if canonicalize_name(name) in known]
    pythons: list[LockedPython] = []
    findings: list[Finding] = []
    for minor in selection.environment.pythons:
        kept = next((entry for entry in previous.pythons if entry.minor == minor), None) if previous else None
        if kept and request.python not in {None, minor}:
            pythons.append(kept)
            continue
        with console.step(f"resolve Python {minor}") as step:
            resolution = resolve(
                selection.environment,
                minor,
                uv=uv,
                scratch=folder,
                previous=None if updates_all(request) else kept,
                update=update,
                constraints=toolkit.requirements if toolkit else (),
            )
            pythons.append(resolution.locked)
            findings += resolution.findings
            step.say(f"{len(resolution.locked.requirements)} distributions")
    return pythons, findings


def _requirement_names(selection: Selection, previous: Lock | None) -> dict[str, str]:
    """Return the requirements of stack and lock, by their normalised names."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    recipe = selection.catalog.toolkit(selection.target)
    wanted = [*selection.environment.requirements, *(recipe.requires if recipe else ())]
    names = [Requirement(line).name for line in wanted]
    if previous:
        locked = [*(entry.requirements for entry in previous.pythons), *previous.build_requires.values()]
        locked += [previous.toolkit.requirements] if previous.toolkit else []
        locked += [entry.requirements for entry in previous.modules.values()]
        names += [pinned.name for requirements in locked for pinned in requirements]
    return {canonicalize_name(name): name for name in names}


def _require_names(names: Sequence[str], selection: Selection, requirements: Mapping[str, str]) -> None:
    """Refuse names that neither stack nor lock has: a typing error would keep every pin.

    Raises ConfigError ``unknown-package``.
    """
    from packaging.utils import canonicalize_name

    known = {*requirements, *plans.packages(selection.stack, selection.target)}
    known |= {recipe.name} if (recipe := selection.catalog.toolkit(selection.target)) else set()
    if unknown := [name for name in names if not {name, canonicalize_name(name)} & known]:
        raise ConfigError(
            code="unknown-package",
            message=f"neither stack {selection.stack.name} nor its lock has a package or requirement "
            f"{', '.join(unknown)}",
            hint=suggest.hint(unknown[0], known),
        )
