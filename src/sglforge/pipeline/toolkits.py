"""The CUDA toolkit of a plan: chosen without a download, brought when something is compiled with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sglforge.base import proc
from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console
from sglforge.base.index_locations import IndexLocations
from sglforge.base.runrecord import RunRecord
from sglforge.base.workspace import Workspace
from sglforge.config.load import Catalog, load_catalog
from sglforge.config.lockfile import Lock, LockedToolkit, lock_path, read_lock
from sglforge.config.model import CudaNeeds, PackageRecipe, Stack, Target, Toolkit
from sglforge.errors import Finding, InstallError, LockError, Severity
from sglforge.host.cuda import choose
from sglforge.host.cuda.choose import Chosen, Judged
from sglforge.host.cuda.fingerprint import fingerprint
from sglforge.host.cuda.model import CudaToolkit
from sglforge.host.facts import FoundToolkit
from sglforge.plan import packages
from sglforge.provision.toolkit import is_installed, locked_toolkit, provide

if TYPE_CHECKING:
    from sglforge.pipeline.request import Request
    from sglforge.pipeline.select import Selection
    from sglforge.provision.python import Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedToolkit:
    """What is compiled with, why that one, what the machine has, and what is needed to bring the lock's."""

    chosen: Chosen
    judged: tuple[Judged, ...]
    recipe: Toolkit
    locked: LockedToolkit
    needs: tuple[CudaNeeds, ...]

    def to_json(self) -> dict[str, object]:
        """Return it for a document."""
        toolkit = self.chosen.toolkit
        return {
            "home": str(toolkit.home),
            "origin": toolkit.origin,
            "version": toolkit.version,
            "fingerprint": toolkit.fingerprint,
            "why": self.chosen.why,
        }

    @property
    def rests_on_files(self) -> bool:
        """Whether files of this machine's toolkits decide which one is taken: facts alone do not tell."""
        return not self.chosen.toolkit.locked or any(one.incomplete for one in self.judged)

    @property
    def line(self) -> str:
        """The toolkit in a line."""
        toolkit = self.chosen.toolkit
        where = "" if toolkit.locked else f" in {toolkit.home}"
        return f"CUDA {toolkit.version}{where} ({self.chosen.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the doctor sees of toolkits; ``planned`` is None where the lock does not say which one builds take."""

    judged: tuple[Judged, ...]
    planned: PlannedToolkit | None
    installed: bool

    @property
    def findings(self) -> tuple[Finding, ...]:
        """A remark for each toolkit of the right release that builds do not take, with all that it lacks."""
        return tuple(
            Finding(
                code="toolkit-incomplete",
                severity=Severity.INFO,
                subject=one.found.home,
                message=f"CUDA {one.found.nvcc} in {one.found.home} is not taken by builds: {one.why_not}",
                hint="nothing is to be done: builds bring the lock's; or install what it lacks",
            )
            for one in self.judged
            if one.incomplete
        )

    def to_json(self) -> dict[str, object]:
        """Return it for a document."""
        taken = self.planned and {**self.planned.to_json(), "installed": self.installed}
        return {"found": [one.to_json() for one in self.judged], "taken": taken}

    def lines(self) -> list[str]:
        """Return the toolkits for people, the one that builds take last."""
        lines = [f"{'toolkit':<12}{one}" for one in self.judged]
        if self.planned:
            toolkit = self.planned.chosen.toolkit
            there = "" if not toolkit.locked else "; it is here" if self.installed else "; fetch or build brings it"
            lines.append(f"{'builds take':<12}{self.planned.line}{there}")
        return lines


def look(selection: Selection, workspace: Workspace) -> Looked | None:
    """Judge the toolkits of this machine; None for a target that names none."""
    catalog, stack, target = selection.catalog, selection.stack, selection.target
    recipe = catalog.toolkit(target)
    if recipe is None:
        return None
    found = selection.facts.toolkits
    try:
        planned = plan_toolkit(catalog, stack, target, selection.lock(), found=found, workspace=workspace)
    except LockError:  # the doctor judges machines, plan and build say what is wrong with locks
        planned = None
    here = judged(found, recipe, needs_of(catalog, stack, target) or ())
    installed = bool(planned and (not planned.chosen.toolkit.locked or is_installed(planned.chosen.toolkit)))
    return Looked(judged=here, planned=planned, installed=installed)


def compiles(recipe: PackageRecipe) -> bool:
    """Say whether a package is compiled with a CUDA toolkit."""
    return "nvcc" in recipe.toolchain


def needs_of(catalog: Catalog, stack: Stack, target: Target) -> tuple[CudaNeeds, ...] | None:
    """Return what the packages of a stack take of a toolkit; None where none of them is compiled with one."""
    recipes = [
        catalog.packages[name] for name in packages(stack, target) if stack.packages[name].source.method == "pep517"
    ]
    compiled = [recipe for recipe in recipes if compiles(recipe)]
    return tuple(recipe.cuda for recipe in compiled if recipe.cuda) if compiled else None


def judged(found: Sequence[FoundToolkit] | None, recipe: Toolkit, needs: Sequence[CudaNeeds]) -> tuple[Judged, ...]:
    """Hold every toolkit of the machine to what builds need."""
    return tuple(choose.judge(one, recipe, needs) for one in found or ())


def plan_toolkit(
    catalog: Catalog,
    stack: Stack,
    target: Target,
    lock: Lock,
    *,
    found: Sequence[FoundToolkit] | None,
    workspace: Workspace,
) -> PlannedToolkit | None:
    """Return the toolkit that a stack is compiled with; None where nothing is, or the target names none.

    ``found`` are the toolkits of this machine, None where it is another one whose files nobody can look at.

    Raises LockError ``lock-stale`` where the lock has no toolkit, or another one than the recipe asks for.
    """
    recipe, needs = catalog.toolkit(target), needs_of(catalog, stack, target)
    if recipe is None or needs is None:
        return None
    locked = lock.toolkit
    if locked is None or (locked.name, locked.release, locked.requires) != (
        recipe.name,
        recipe.release,
        recipe.requires,
    ):
        raise LockError(
            code="lock-stale",
            message=f"stack {lock.stack} is compiled with {recipe.name}, its lock "
            + ("has another one" if locked else "does not have it"),
            hint=f"nox -s lock -- --stack {lock.stack} --target {lock.target} --update {recipe.name}",
        )
    here = judged(found, recipe, needs)
    chosen = choose.choose(here, locked_toolkit(locked, recipe, workspace), workspace)
    return PlannedToolkit(chosen=chosen, judged=here, recipe=recipe, locked=locked, needs=needs)


def bring_toolkit(
    planned: PlannedToolkit,
    interpreter: Interpreter,
    request: Request,
    console: Console,
    record: RunRecord,
    locations: IndexLocations,
    *,
    cancellation: Cancellation | None = None,
) -> CudaToolkit:
    """Return the toolkit of a plan, there and unchanged; the lock's is installed where it is not.

    Raises InstallError ``toolkit-changed`` for one of the machine that is not the one that was planned with, and what
    :func:`sglforge.provision.toolkit.provide` raises.
    """
    toolkit = planned.chosen.toolkit
    with console.step("fetch toolkit") as step:
        if not toolkit.locked:
            _require_unchanged(toolkit, request.workspace)
            step.say(f"CUDA {toolkit.version} in {toolkit.home} ({toolkit.origin})")
            return toolkit
        there = is_installed(toolkit)

        def progress(done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
            if cancellation:
                cancellation.check()
            step.progress(done, total, note=note)

        provide(
            toolkit,
            recipe=planned.recipe,
            locked=planned.locked,
            needs=planned.needs,
            interpreter=interpreter,
            workspace=request.workspace,
            locations=locations,
            offline=request.offline,
            log=record.log("toolkit", "fetch"),
            progress=progress,
            run=partial(proc.run, cancellation=cancellation),
            pause=cancellation.sleep if cancellation else time.sleep,
        )
        step.say(f"CUDA {toolkit.version} of the lock, {'as it was' if there else 'installed'}")
    return toolkit


def locked_toolkits(request: Request) -> frozenset[str] | None:
    """Return the fingerprints of the toolkits that locks of the catalog name; None where one of them cannot be read."""
    catalog, found = load_catalog(request.catalog_root), set()
    for stack in catalog.stacks.values():
        for name in stack.environments:
            target, path = catalog.target(name), lock_path(catalog.root, stack.name, name)
            recipe = catalog.toolkit(target)
            if recipe is None or not path.exists():
                continue
            try:
                lock = read_lock(path)
            except LockError:
                return None
            if lock.toolkit:
                found.add(locked_toolkit(lock.toolkit, recipe, request.workspace).fingerprint)
    return frozenset(found)


def _require_unchanged(toolkit: CudaToolkit, workspace: Workspace) -> None:
    try:
        same = fingerprint(toolkit.home, workspace) == toolkit.fingerprint
    except OSError:
        same = False
    if not same:
        raise InstallError(
            code="toolkit-changed",
            message=f"the CUDA toolkit in {toolkit.home} was changed after its part of the build keys was worked out",
            hint="repeat the command when nobody installs or removes parts of it",
        )
