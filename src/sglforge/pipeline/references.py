"""Who refers to what is in a store: environments by their receipts, stacks by their plans."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from sglforge import plan as plans
from sglforge.base.console import Console
from sglforge.base.ids import BuildKey
from sglforge.base.index_locations import IndexLocations
from sglforge.config.load import Catalog, load_catalog
from sglforge.config.lockfile import lock_path
from sglforge.errors import DoctorError, SglforgeError
from sglforge.host.facts import HostFacts
from sglforge.host.probe import probe
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Selection, plan
from sglforge.plan import Step
from sglforge.provision.python import Interpreter, find_interpreter, running_interpreter
from sglforge.provision.retire import Inhabited, environments
from sglforge.provision.uv import open_uv

PLANS_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A step of a plan of this catalog: ``label`` is its stack, target and Python."""

    label: str
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Environments of the workspace, steps of all plans, and packages whose plan could not be made, with the reason."""

    environments: tuple[Inhabited, ...]
    wanted: tuple[Wanted, ...]
    unplanned: Mapping[str, str]

    def of(self, key: BuildKey) -> tuple[str, ...]:
        """Return who refers to a key, in words."""
        return (
            *(f"environment {found.label}" for found in self.environments if key in found.keys),
            *(f"plan of {found.label}" for found in self.wanted if found.step.key == key),
        )

    def keys(self) -> dict[BuildKey, str]:
        """Return every key that something refers to, with the first reason."""
        kept = {found.step.key: f"the plan of {found.label} wants it" for found in self.wanted}
        for found in self.environments:
            kept |= dict.fromkeys(found.keys, f"environment {found.label} was made from it")
        return kept


def references(request: Request, console: Console) -> References:
    """Plan every stack of the catalog for each of its targets and Pythons that has a lock, and read all receipts.

    A Python that this machine does not have makes no plan here. Where a plan cannot be made for another reason, its
    packages are named with it: nothing is known of what it wants.
    """
    catalog, facts = load_catalog(request.catalog_root), probe(request.workspace.root)
    wanted: list[Wanted] = []
    unplanned: dict[str, str] = {}
    with console.step("plan every stack") as step, ThreadPoolExecutor(max_workers=PLANS_AT_ONCE) as pool:
        plannings = [_Planning(selection=selection) for selection in _selections(catalog, facts)]
        here = _interpreters({minor for planning in plannings for minor in planning.minors})
        for planning, steps in zip(plannings, pool.map(lambda one: one.steps(request, here), plannings), strict=True):
            wanted += steps
            if error := planning.error:
                reason = f"the plan of {planning.label} cannot be made ({error.code}): it may want it"
                names = plans.packages(planning.selection.stack, planning.selection.target)
                unplanned |= dict.fromkeys(names, reason)
                console.line(f"  ..  {planning.label}: {error.message} [{error.code}]")
        step.say(f"{len({found.label for found in wanted})} plans")
    return References(environments=environments(request.workspace), wanted=tuple(wanted), unplanned=unplanned)


class _Planning:
    """The plans of a stack for a target, one for each Python of its lock that is here; what hinders them."""

    def __init__(self, *, selection: Selection) -> None:
        self.selection = selection
        self.label = f"{selection.stack.name} on {selection.target.name}"
        self.error: SglforgeError | None = None
        self.minors: tuple[str, ...] = ()
        try:
            self.minors = tuple(locked.minor for locked in selection.lock().pythons)
        except SglforgeError as error:
            self.error = error

    def steps(self, request: Request, here: Mapping[str, Interpreter]) -> list[Wanted]:
        """Return the steps of all plans."""
        found: list[Wanted] = []
        for minor in self.minors:
            if minor in here:
                try:
                    planned = plan(replace(request, python=str(here[minor].path)), self.selection)
                except SglforgeError as error:
                    self.error = error
                    break
                label = f"{self.label}, Python {minor}"
                found += [Wanted(label=label, step=step) for step in planned.plan.steps]
        return found


def _interpreters(minors: Iterable[str]) -> dict[str, Interpreter]:
    """Return the interpreters that this machine has."""
    running, found = running_interpreter(), {}
    uv = open_uv(IndexLocations(), offline=True)
    for minor in sorted(minors):
        if minor == running.minor:
            found[minor] = running
            continue
        with contextlib.suppress(DoctorError):
            found[minor] = find_interpreter(uv, minor)
    return found


def _selections(catalog: Catalog, facts: HostFacts) -> Iterator[Selection]:
    for stack in catalog.stacks.values():
        for name in stack.environments:
            target = catalog.target(name)
            if not lock_path(catalog.root, stack.name, name).exists():
                continue
            yield Selection(
                catalog=catalog,
                facts=facts,
                stack=stack,
                target=target,
                because="every target is planned",
                environment_name=f"{stack.name}.{name}",
            )
