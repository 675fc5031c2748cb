"""Verbs about sources: archives, commits, patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglforge import plan as plans
from sglforge.base import proc
from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console
from sglforge.base.index_locations import IndexLocations
from sglforge.base.runrecord import RunRecord
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.config import suggest
from sglforge.config.lockfile import LockedArchive, LockedGit, LockedTorch, lock_path
from sglforge.config.model import GitSource, PathSource
from sglforge.errors import ConfigError, FetchError, LockError, PatchError, verdict_of
from sglforge.host import package_index
from sglforge.host.cuda.model import CudaToolkit
from sglforge.patches.apply import apply_series
from sglforge.patches.result import PatchResult
from sglforge.patches.series import load_series
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.running import start_run
from sglforge.pipeline.select import Planned, plan, require_packages, select
from sglforge.pipeline.sharing import borrowed, places
from sglforge.pipeline.tasks import Task, carry_out, fault_of
from sglforge.pipeline.toolkits import PlannedToolkit, bring_toolkit
from sglforge.pipeline.trees import given_version
from sglforge.pipeline.wheels import FETCHES_AT_ONCE, TOOLKIT, say_failure, toolkit_for
from sglforge.plan import Step
from sglforge.provision.prefetch import download_requirements, download_torch
from sglforge.provision.receipt import TorchReceipt
from sglforge.sources.fetch import fetch as fetch_archive
from sglforge.sources.git.export import export
from sglforge.sources.git.fetch import fetch as fetch_commit
from sglforge.sources.git.fetch import fetch_proven
from sglforge.sources.model import BroughtSource, SourceArchive, SourceCommit
from sglforge.sources.paths import copy_folder
from sglforge.sources.unpack import unpack


def fetch(request: Request, console: Console) -> Outcome:
    """Bring everything that a build of the stack needs, or of the packages that are named, verified."""
    selection = select(request, console)
    require_packages(request, selection)
    selection.require_buildable(request.words("packages"))
    planned = plan(request, selection)
    locations = package_index.read()
    record = start_run(request, console)
    fetched = _fetch_all(planned, request, record, console, locations)
    locked, torch = planned.python.locked, fetched.torch
    document = {
        "schema": 1,
        **selection.to_json(),
        "sources": [_source(source) for source in fetched.sources],
        "torch": torch and {"version": torch.version, "variant": torch.variant, "sha256": torch.sha256},
        "requirements": len(locked.requirements) if torch else 0,
        "toolkit": planned.toolkit.to_json() if planned.toolkit and fetched.toolkit else None,
        "run": record.id,
    }
    what = ", ".join(request.words("packages"))
    here = f"what building {what} takes is here" if what else "everything is here"
    return Outcome(document=document, text=f"{here}; --offline works now")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """What a fetch has brought: sources in the order of the plan, the torch of the environment, the CUDA toolkit."""

    sources: tuple[BroughtSource, ...]
    torch: TorchReceipt | None
    toolkit: CudaToolkit | None


def _fetch_all(
    planned: Planned, request: Request, record: RunRecord, console: Console, locations: IndexLocations
) -> _Fetched:
    """Fetch sources, toolkit, torch and requirements, several at once; of named packages what their builds take."""
    cancellation = Cancellation()
    wanted = request.words("packages")
    chosen = plans.needed(planned.plan.steps, wanted, of_hits=True) if wanted else planned.plan.steps
    toolkits: list[CudaToolkit] = []
    python, locked = planned.python.interpreter, planned.python.locked
    run = partial(proc.run, cancellation=cancellation)
    sources: dict[str, BroughtSource | None] = {}
    torch: list[TorchReceipt] = []
    others = places(request)

    def source(step: Step) -> None:
        if step.state == "miss":
            borrowed(step, planned, request, record, console, others, cancellation=cancellation)
        sources[step.package] = bring(
            step, planned, request, console, locations, proven=True, cancellation=cancellation
        )

    def fetch_torch(pin: LockedTorch, name: str, into: list[TorchReceipt]) -> None:
        with console.step(name) as shown:

            def progress(done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
                cancellation.check()
                shown.progress(done, total, note=note)

            found = download_torch(
                pin,
                interpreter=python,
                workspace=request.workspace,
                locations=locations,
                offline=request.offline,
                log=record.log("torch", "fetch"),
                progress=progress,
                run=run,
            )
            into.append(found)
            shown.say(f"{pin.version}+{pin.variant}")

    def fetch_requirements() -> None:
        with console.step("fetch requirements") as shown:
            of_environment = () if wanted else (locked.requirements,)
            of_modules = [step.modules.locked.requirements for step in chosen if step.modules]
            for requirements in (*of_environment, *(step.build_requires for step in chosen), *of_modules):
                download_requirements(
                    requirements,
                    interpreter=python,
                    workspace=request.workspace,
                    locations=locations,
                    offline=request.offline,
                    log=record.log("requirements", "fetch"),
                    run=run,
                )
            shown.say("for builds" if wanted else f"{len(locked.requirements)} distributions")

    def fetch_toolkit(what: PlannedToolkit) -> None:
        found = bring_toolkit(what, python, request, console, record, locations, cancellation=cancellation)
        toolkits.append(found)

    steps = [step for step in chosen if not isinstance(step.source, PathSource)]
    works: dict[str, Callable[[], None]] = {f"fetch {step.package}": partial(source, step) for step in steps}
    works |= {} if wanted else {"fetch torch": partial(fetch_torch, locked.torch, "fetch torch", torch)}
    for step in chosen:
        if step.modules:
            name = f"fetch torch for modules of {step.package}"
            works[name] = partial(fetch_torch, step.modules.locked.torch, name, [])
    works |= {"fetch requirements": fetch_requirements}
    if toolkit := toolkit_for(chosen, planned):
        works[TOOLKIT] = partial(fetch_toolkit, toolkit)
    console.expect(tuple(works))
    failures = carry_out(
        [Task(name=name, kind="fetch", work=work) for name, work in works.items()],
        slots={"fetch": FETCHES_AT_ONCE},
        cancellation=cancellation,
        failing=partial(say_failure, console),
    )
    if failures:
        raise fault_of(failures)
    brought = (sources[step.package] for step in steps)
    return _Fetched(
        sources=tuple(source for source in brought if source),
        torch=torch[0] if torch else None,
        toolkit=toolkits[0] if toolkits else None,
    )


def patch(request: Request, console: Console) -> Outcome:
    """Apply patch series to the stack's sources, or to a copy of a tree, and check their contracts.

    With ``--drift`` it is the verb ``drift`` on these versions; or it makes a tree to edit a topic in, or writes a
    topic anew from one.
    """
    from sglforge.pipeline import drifting, editing

    if request.options.get("versions") is not None:
        others = ("tree", "diff", "edit", "refresh")
        request.apart("--drift", others, "--drift tries the series on released versions, and does nothing else")
        return drifting.drift(request, console)
    if unused := [name for name in ("svg", "expect", "update") if request.options.get(name)]:
        raise ConfigError(
            code="usage", message=f"--{unused[0]} belongs to a drift matrix", hint="add --drift, or use sglforge drift"
        )
    if wanted := request.option("edit", str):
        request.apart("--edit", ("diff",), "--edit makes a tree in which `git diff` shows the topic")
        return editing.edit(request, console, wanted)
    if edited := request.option("refresh", str):
        request.apart("--refresh", ("diff", "tree"), "--refresh writes a topic anew from the tree that --edit made")
        return editing.refresh(request, console, edited)
    topic = request.option("topic", str)
    tree = request.option("tree", Path)
    results = _patch_copy(request, tree, topic) if tree else _patch_sources(request, console, topic)
    findings = tuple(finding for result in results.values() for finding in result.findings)
    document = {
        **opening(findings, console),
        "packages": {
            name: {
                "tree_id": result.tree_id,
                "topics": [entry.to_json() for entry in result.topics],
                **({"diff": result.diff} if request.flag("diff") else {}),
            }
            for name, result in results.items()
        },
    }
    return Outcome(
        document=document,
        text=_patch_text(results, diff=request.flag("diff")),
        exit_code=PatchError.exit_code if verdict_of(findings) == "fail" else 0,
    )


def bring(
    step: Step,
    planned: Planned,
    request: Request,
    console: Console,
    locations: IndexLocations,
    *,
    proven: bool = False,
    cancellation: Cancellation | None = None,
) -> BroughtSource | None:
    """Fetch the archive or commit of a step; None for a folder of the catalog.

    ``proven``: a commit is exported and hashed as well, and its mirror made again where it is damaged. In a thread,
    ``cancellation`` ends it.

    Raises LockError ``git-not-pinned`` for a repository that the lock has no commit of; FetchError.
    """
    if isinstance(step.source, GitSource):
        return _bring_commit(step, planned, request, console, cancellation, proven=proven)
    return _bring_archive(step, planned, request, console, locations, cancellation)


def _bring_archive(
    step: Step,
    planned: Planned,
    request: Request,
    console: Console,
    locations: IndexLocations,
    cancellation: Cancellation | None,
) -> SourceArchive | None:
    if not isinstance(step.locked, LockedArchive):
        return None
    selection = planned.selection
    with console.step(f"fetch {step.package}") as shown:

        def progress(done: int, total: int | None) -> None:
            if cancellation:
                cancellation.check()
            shown.progress(done, total, note=f"{done / 1e6:.1f} MB")

        archive = fetch_archive(
            step.locked,
            package=step.package,
            python_minor=planned.python.locked.minor,
            locations=locations,
            workspace=request.workspace,
            offline=request.offline,
            progress=progress,
            lock=lock_path(selection.catalog.root, selection.stack.name, selection.target.name),
            command=request.command("fetch"),
        )
        shown.say(f"{archive.path.name}, {archive.path.stat().st_size / 1e6:.1f} MB")
    return archive


def _bring_commit(
    step: Step,
    planned: Planned,
    request: Request,
    console: Console,
    cancellation: Cancellation | None,
    *,
    proven: bool,
) -> SourceCommit:
    selection = planned.selection
    if not isinstance(step.locked, LockedGit):
        raise LockError(
            code="git-not-pinned",
            message=f"the lock of stack {selection.stack.name} has no commit of {step.package}",
            where=str(lock_path(selection.catalog.root, selection.stack.name, selection.target.name)),
            hint=f"nox -s lock -- --stack {selection.stack.name} --target {selection.target.name}",
        )
    with console.step(f"fetch {step.package}") as shown:

        def waiting(words: str) -> None:
            console.line(f"  ..  {words}")

        try:
            commit = (fetch_proven if proven else fetch_commit)(
                step.locked,
                package=step.package,
                workspace=request.workspace,
                offline=request.offline,
                waiting=waiting,
                command=request.command("fetch"),
                cancellation=cancellation,
            )
        except LockError as error:
            if error.code != "git-ref-missing":
                raise
            raise FetchError(
                code=error.code,
                message=f"{error.message}, which the lock names for {step.package}",
                hint="its branch was rewritten, or it was in a fork; lock what is there now: "
                + request.command("lock", "--update", step.package),
            ) from error
        shown.say(step.locked.described)
    return commit


def unpacked(source: BroughtSource, into: Path, *, workspace: Workspace, command: str) -> Path:
    """Return the tree of a source that was fetched, in a new folder: an archive unpacked, a commit exported.

    Raises FetchError.
    """
    if isinstance(source, SourceCommit):
        return export(source.locked, into, workspace=workspace, command=command)
    return unpack(source.path, into)


def _source(source: BroughtSource) -> dict[str, str]:
    if isinstance(source, SourceCommit):
        locked = source.locked
        return {
            "package": source.package,
            "path": str(source.mirror),
            "commit": locked.commit,
            "described": locked.described,
        }
    return {"package": source.package, "path": str(source.path), "sha256": source.sha256}


def _plan_with(topic: str | None, request: Request, console: Console) -> Planned:
    """Return the plan whose series has a topic, if one is named."""
    planned = plan(request, select(request, console))
    known = [entry.name for series in planned.series.values() for entry in series.topics]
    if topic and topic not in known:
        raise ConfigError(
            code="unknown-topic",
            message=f"no series of the stack has a topic `{topic}`",
            hint=suggest.hint(topic, known),
        )
    return planned


def _patch_sources(request: Request, console: Console, topic: str | None) -> dict[str, PatchResult]:
    planned = _plan_with(topic, request, console)
    locations = package_index.read()
    results = {}
    package = request.option("package", str)
    for step in planned.plan.steps:
        series = planned.series.get(step.package) if package in {None, step.package} else None
        if series is None or (topic and topic not in {entry.name for entry in series.topics}):
            continue
        archive = bring(step, planned, request, console, locations)
        if archive is None or step.locked is None:
            continue
        with console.step(f"patch {step.package}") as shown, working_folder(request.workspace, "patch") as folder:
            tree = unpacked(
                archive, folder / step.package, workspace=request.workspace, command=request.command("fetch")
            )
            results[step.package] = apply_series(series, tree, version=step.locked.version, topic=topic)
            shown.say(_states(results[step.package]))
            shown.failed = verdict_of(results[step.package].findings) == "fail"
    if not results:
        raise ConfigError(
            code="nothing-to-patch",
            message=f"the stack has no source of {package} that a series is for"
            if package
            else "no package of the stack that is not a folder of the catalog has a series",
            hint="topics are the folders in patches/<package>/",
        )
    return results


def _patch_copy(request: Request, tree: Path, topic: str | None) -> dict[str, PatchResult]:
    package = request.option("package", str) or "sglang"
    series = load_series(request.catalog_root, package)
    if series is None:
        raise ConfigError(
            code="nothing-to-patch",
            message=f"there is no patch series for {package}",
            hint="name the package with --package",
        )
    version = given_version(request, package, tree)
    with working_folder(request.workspace, "patch") as folder:
        copy_folder(tree, folder / "tree")
        result = apply_series(series, folder / "tree", version=version, topic=topic, origin=tree)
    return {package: result}


def _patch_text(results: Mapping[str, PatchResult], *, diff: bool) -> str:
    if diff:
        return "".join(result.diff for result in results.values())
    lines = []
    for name, result in results.items():
        lines += [f"{topic.state.value:<16} {name}/{topic.name}: {topic.message}" for topic in result.topics]
        lines.append(f"{'tree':<16} {name} {result.tree_id or 'unchanged: the series does not apply'}")
    return "\n".join(lines)


def _states(result: PatchResult) -> str:
    states = [topic.state.value for topic in result.topics]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
