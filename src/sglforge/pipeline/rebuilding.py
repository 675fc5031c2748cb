"""The verb that builds again what is in the store, and compares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console
from sglforge.base.runrecord import RunRecord
from sglforge.base.sandbox.step import Isolation, weakest
from sglforge.build import store
from sglforge.build.again import Rebuilt, build_again
from sglforge.build.compiling.jobserver import Jobserver, serving
from sglforge.build.store import StoredWheel
from sglforge.build.uses import using
from sglforge.errors import BuildError, Finding, InstallError, Severity
from sglforge.host import isolation, package_index
from sglforge.host.cuda.model import CudaToolkit
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.running import start_run
from sglforge.pipeline.select import Planned, plan, require_packages, select
from sglforge.pipeline.sources import bring
from sglforge.pipeline.tidying import works_with
from sglforge.pipeline.toolkits import bring_toolkit, compiles
from sglforge.pipeline.wheels import builder, say_modules, toolkit_for
from sglforge.plan import Step

FILES_TOLD = 20
CHANGES_TOLD = 5


def rebuild(request: Request, console: Console) -> Outcome:
    """Build stored packages again from their plan, elsewhere, and tell whether the wheels are the same.

    Raises BuildError ``wheels-not-built`` for what the store does not have, InstallError ``store-damaged``.
    """
    selection = select(request, console)
    require_packages(request, selection)
    selection.require_buildable(request.words("packages"))
    planned = plan(request, selection)
    wanted = request.words("packages") or tuple(step.package for step in planned.plan.steps)
    record = start_run(request, console)
    with using(request.workspace, works_with(planned, record), mark=False):
        wheels = _stored(planned, wanted, request)
        chosen = [step for step in planned.plan.steps if step.package in wanted]
        console.expect(tuple(f"rebuild {step.package}" for step in chosen))
        toolkit = _toolkit(chosen, planned, request, record, console)
        with serving(request.workspace, selection.facts.cores or 1) as server:
            found = [
                _again(step, wheels, planned, request, record, console, toolkit=toolkit, server=server)
                for step in chosen
            ]
    document = {
        **opening((*_findings(found), *_remarks(found)), console),
        **selection.to_json(),
        "packages": [rebuilt.to_json() for rebuilt in found],
        "run": record.id,
    }
    return Outcome(
        document=document,
        text="\n".join(map(_line, found)),
        exit_code=0 if all(rebuilt.same for rebuilt in found) else BuildError.exit_code,
    )


def _stored(planned: Planned, wanted: Sequence[str], request: Request) -> dict[str, StoredWheel]:
    """Return the wheels of the packages in the store, and of those that they are built with; they are hashed."""
    steps = {step.package: step for step in planned.plan.steps}
    names = dict.fromkeys([*wanted, *(before for name in wanted for before in steps[name].depends)])
    wheels = {name: wheel for name in names if (wheel := store.lookup(request.workspace, steps[name].key))}
    if missing := [name for name in names if name not in wheels]:
        raise BuildError(
            code="wheels-not-built",
            message=f"there is nothing to compare with: not built yet: {', '.join(missing)}",
            hint=request.command("build", *missing),
        )
    if damaged := [finding for wheel in wheels.values() for finding in store.verify(wheel)]:
        raise InstallError(
            code=damaged[0].code, message=damaged[0].message, where=damaged[0].where, findings=tuple(damaged)
        )
    return wheels


def _toolkit(
    steps: Sequence[Step], planned: Planned, request: Request, record: RunRecord, console: Console
) -> CudaToolkit | None:
    """Return the CUDA toolkit that some of the steps are compiled with, brought where it is not there."""
    if not (wanted := toolkit_for(steps, planned)):
        return None
    return bring_toolkit(wanted, planned.python.interpreter, request, console, record, package_index.read())


def _again(
    step: Step,
    wheels: dict[str, StoredWheel],
    planned: Planned,
    request: Request,
    record: RunRecord,
    console: Console,
    *,
    toolkit: CudaToolkit | None,
    server: Jobserver,
) -> Rebuilt:
    """Build one package again; show it as a step."""
    locations, cancellation = package_index.read(), Cancellation()
    source = bring(step, planned, request, console, locations, cancellation=cancellation)
    build = builder(
        step,
        source,
        [wheels[name] for name in step.depends],
        planned,
        request,
        record,
        locations,
        cancellation,
        toolkit=toolkit if compiles(step.recipe) else None,
        server=server,
    )
    with console.step(f"rebuild {step.package}") as shown:
        rebuilt = build_again(
            step,
            wheels[step.package],
            build=partial(build, told=partial(say_modules, shown, record, step.package)),
            python=planned.python.interpreter.path,
            workspace=request.workspace,
        )
        shown.failed = not rebuilt.same
        shown.say(f"{'the same' if rebuilt.same else 'other'} bytes ({rebuilt.user})")
    return rebuilt


def _findings(found: Sequence[Rebuilt]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            code="not-reproducible",
            severity=Severity.ERROR,
            subject=rebuilt.package,
            message=f"the same plan made another wheel of {rebuilt.package}: "
            f"{len(rebuilt.differences)} {'file differs' if len(rebuilt.differences) == 1 else 'files differ'}",
            where=rebuilt.wheel,
            hint="sglforge explain not-reproducible",
            detail=_detail(rebuilt),
        )
        for rebuilt in found
        if not rebuilt.same
    )


def _detail(rebuilt: Rebuilt) -> tuple[str, ...]:
    told = [line for file in rebuilt.differences[:FILES_TOLD] for line in file.lines(changes=CHANGES_TOLD)]
    left = len(rebuilt.differences) - FILES_TOLD
    return (*told, *([f"and {left} more files"] if left > 0 else []))


def _remarks(found: Sequence[Rebuilt]) -> tuple[Finding, ...]:
    """Return what the second builds could not be kept from, once for all of them."""
    held = [Isolation.from_words(rebuilt.sandbox) for rebuilt in found if rebuilt.sandbox]
    return isolation.judge(weakest(held)) if held else ()


def _line(rebuilt: Rebuilt) -> str:
    place = f", {rebuilt.sandbox['place']} place" if rebuilt.sandbox else ""
    hashes = rebuilt.rebuilt if rebuilt.same else f"{rebuilt.rebuilt}, in the store {rebuilt.stored}"
    return f"{'same' if rebuilt.same else 'differs'}  {rebuilt.wheel}  {hashes}  ({rebuilt.user}{place})"
