"""The wheels of a plan: what the store lacks is fetched and built, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sglforge.base import proc
from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console, Verbosity
from sglforge.base.console import Step as ConsoleStep
from sglforge.base.runrecord import RunRecord
from sglforge.base.sandbox.step import Resources
from sglforge.build import store
from sglforge.build.compiling.jobserver import Jobserver, serving
from sglforge.build.modules.make import News
from sglforge.build.store import StoredWheel
from sglforge.host import package_index
from sglforge.host.cuda.model import CudaToolkit
from sglforge.pipeline.modules import module_tools
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned
from sglforge.pipeline.sharing import borrowed, places, say_waiting
from sglforge.pipeline.tasks import Failure, Task, carry_out, fault_of
from sglforge.pipeline.toolkits import PlannedToolkit, bring_toolkit, compiles
from sglforge.plan import Step
from sglforge.provision.uv import open_uv

if TYPE_CHECKING:
    from sglforge.base.index_locations import IndexLocations
    from sglforge.sources.model import BroughtSource

FETCHES_AT_ONCE = 4
BUILDS_AT_ONCE = 4
TOOLKIT = "fetch toolkit"
"""The name of the task that brings the CUDA toolkit."""


def make_wheels(
    steps: Sequence[Step], planned: Planned, request: Request, record: RunRecord, console: Console
) -> list[StoredWheel]:
    """Return the wheel of each step, in their order; where the store lacks it, it is built.

    Sources are fetched side by side, packages built side by side as far as their ``depends`` allow. When one fails,
    nothing new starts, what runs comes to its end and is stored, and the error speaks for all that failed.
    """
    wheels: dict[str, StoredWheel] = {}
    for step in steps:
        if step.state == "hit" and (found := store.lookup(request.workspace, step.key)):
            console.passed(f"build {step.package}", step.why)
            wheels[step.package] = found
    missing = [step for step in steps if step.package not in wheels]
    if missing:
        _make(missing, wheels, planned, request, record, console)
    return [wheels[step.package] for step in steps]


def _make(
    missing: Sequence[Step],
    wheels: dict[str, StoredWheel],
    planned: Planned,
    request: Request,
    record: RunRecord,
    console: Console,
) -> None:
    """Add the wheels that are missing."""
    from sglforge.pipeline.sources import bring

    locations, cancellation = package_index.read(), Cancellation()
    sources: dict[str, BroughtSource | None] = {}
    toolkits: list[CudaToolkit] = []
    others = places(request)

    def fetch_toolkit(wanted: PlannedToolkit) -> None:
        if all(step.package in wheels for step in missing if compiles(step.recipe)):
            console.passed(TOOLKIT, "what it is for came from another store or run")
            return
        interpreter = planned.python.interpreter
        toolkits.append(
            bring_toolkit(wanted, interpreter, request, console, record, locations, cancellation=cancellation)
        )

    def fetch(step: Step) -> None:
        if taken := borrowed(step, planned, request, record, console, others, cancellation=cancellation):
            wheels[step.package] = taken
            for name in {f"fetch {step.package}", f"build {step.package}"}.intersection(console.expected):
                console.passed(name, "its wheel came from another store or run")
            return
        sources[step.package] = bring(step, planned, request, console, locations, cancellation=cancellation)

    def build(step: Step) -> None:
        if step.package in wheels:  # taken from another store
            return
        wheels[step.package] = _build(
            step,
            sources[step.package],
            [wheels[name] for name in step.depends if name in wheels],
            planned,
            request,
            record,
            console,
            locations,
            cancellation,
            toolkit=toolkits[0] if compiles(step.recipe) and toolkits else None,
            server=server,
        )

    names = {step.package for step in missing}
    tasks = []
    if wanted := toolkit_for(missing, planned):
        after = tuple(f"fetch {step.package}" for step in missing if compiles(step.recipe))
        tasks.append(Task(name=TOOLKIT, kind="fetch", work=partial(fetch_toolkit, wanted), needs=after))
    for step in missing:
        before = tuple(f"build {name}" for name in step.depends if name in names)
        before += (TOOLKIT,) if wanted and compiles(step.recipe) else ()
        tasks.append(Task(name=f"fetch {step.package}", kind="fetch", work=partial(fetch, step)))
        tasks.append(
            Task(
                name=f"build {step.package}",
                kind="build",
                work=partial(build, step),
                needs=(f"fetch {step.package}", *before),
            )
        )
    slots = {"fetch": FETCHES_AT_ONCE, "build": builds_at_once(request, planned.selection.facts.cores)}
    cores = planned.selection.facts.cores or 1
    with serving(request.workspace, request.option("jobs", int) or cores) as server:
        failures = carry_out(tasks, slots=slots, cancellation=cancellation, failing=partial(say_failure, console))
    if failures:
        raise fault_of(failures)


def toolkit_for(steps: Sequence[Step], planned: Planned) -> PlannedToolkit | None:
    """Return the CUDA toolkit that is needed to build steps; None where none of them is compiled with one."""
    return planned.toolkit if any(compiles(step.recipe) for step in steps) else None


def builds_at_once(request: Request, cores: int | None) -> int:
    """Return how many packages are built at once: as many as there are cores, at most 4, at most ``--jobs``."""
    return min(BUILDS_AT_ONCE, cores or 1, request.option("jobs", int) or BUILDS_AT_ONCE)


def say_failure(console: Console, failure: Failure, running: Sequence[str]) -> None:
    """Say at once what failed where something else still runs; the whole error comes at the end."""
    if running:
        console.error(f"error: {failure.error}")
        console.line(f"  ..  nothing new starts; {', '.join(running)} may end first (Ctrl-C ends it now)")


def _build(
    step: Step,
    source: BroughtSource | None,
    depends: Sequence[StoredWheel],
    planned: Planned,
    request: Request,
    record: RunRecord,
    console: Console,
    locations: IndexLocations,
    cancellation: Cancellation,
    *,
    toolkit: CudaToolkit | None,
    server: Jobserver,
) -> StoredWheel:
    execute = builder(
        step, source, depends, planned, request, record, locations, cancellation, toolkit=toolkit, server=server
    )
    with console.step(f"build {step.package}") as shown:
        shown.progress(note=step.why)
        wheel = execute(
            workspace=request.workspace,
            told=partial(say_modules, shown, record, step.package),
            keep=request.flag("keep"),
            waiting=partial(say_waiting, console, step.package),
            pause=cancellation.sleep,
        )
        took = _took(wheel) if console.verbosity is Verbosity.VERBOSE else ""
        if isinstance(numbers := wheel.provenance.get("resources"), dict):
            shown.took(cpu_s=numbers.get("cpu_seconds"), peak_mib=numbers.get("peak_rss_mib"))
        shown.say(f"{wheel.path.name} ({step.why}){took}")
    return wheel


def builder(
    step: Step,
    source: BroughtSource | None,
    depends: Sequence[StoredWheel],
    planned: Planned,
    request: Request,
    record: RunRecord,
    locations: IndexLocations,
    cancellation: Cancellation,
    *,
    toolkit: CudaToolkit | None,
    server: Jobserver,
) -> Callable[..., StoredWheel]:
    """Return what builds a step: `execute`, with all that decides what it makes, in whatever ``workspace``."""
    from sglforge.build.execute import BuildPython, execute
    from sglforge.pipeline.fitness import binary_rules

    interpreter, run = planned.python.interpreter, partial(proc.run, cancellation=cancellation)
    return partial(
        execute,
        step,
        catalog_root=request.catalog_root,
        archive=source,
        series=planned.series.get(step.package),
        python=BuildPython(path=interpreter.path, minor=interpreter.minor),
        record=record,
        uv=open_uv(locations, offline=request.offline, run=run),
        depends=depends,
        toolkit=toolkit,
        modules=module_tools(step, planned, request, locations, server=server, run=run, pause=cancellation.sleep),
        rules=binary_rules(planned, toolkit),
        run=run,
    )


def say_modules(shown: ConsoleStep, record: RunRecord, package: str, news: News) -> None:
    """Show how far the modules of a package are, and write down each one that is there."""
    state = "compiled" if news.compiled else "kept"
    for name in news.new:
        record.event("module-ready", package=package, module=name, state=state)
    for remark in news.remarks:
        shown.console.line(f"  ..  {remark}")
    note = f"{news.there} of {news.wanted} modules, step {news.done} of {news.total}"
    shown.progress(news.done, news.total or None, note=note)


def _took(wheel: StoredWheel) -> str:
    """Return the words for what the build of a wheel took; nothing for one that was only packed again."""
    numbers = wheel.provenance.get("resources")
    return f", {Resources.from_numbers(numbers).describe()}" if isinstance(numbers, dict) else ""
