"""Verbs about sources: pins, archives, patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglforge import plan as plans
from sglforge.base import proc, runrecord
from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console
from sglforge.base.index_locations import IndexLocations
from sglforge.base.runrecord import RunRecord
from sglforge.base.scratch import working_folder
from sglforge.config import suggest
from sglforge.config.lockfile import (
    Lock,
    LockedArchive,
    LockedRequirement,
    LockedSource,
    dump_lock,
    lock_path,
    write_lock,
)
from sglforge.config.model import GitSource, SdistSource, WheelSource
from sglforge.errors import ConfigError, Finding, PatchError, Severity, verdict_of
from sglforge.host import package_index
from sglforge.patches.apply import apply_series
from sglforge.patches.result import PatchResult
from sglforge.patches.series import load_series
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.select import Planned, Selection, plan, select
from sglforge.pipeline.tasks import Task, carry_out, fault_of
from sglforge.pipeline.trees import given_version
from sglforge.pipeline.wheels import FETCHES_AT_ONCE, say_failure
from sglforge.plan import Step
from sglforge.provision.prefetch import download_requirements, download_torch
from sglforge.provision.receipt import TorchReceipt
from sglforge.provision.resolve import resolve, resolve_build
from sglforge.provision.uv import open_uv
from sglforge.sources.fetch import fetch as fetch_archive
from sglforge.sources.model import SourceArchive
from sglforge.sources.paths import copy_folder
from sglforge.sources.pin import pin
from sglforge.sources.unpack import unpack


def lock(request: Request, console: Console) -> Outcome:
    """Resolve a stack's sources and requirements for a target and write its lock.

    Pins that still hold are kept; ``--update`` drops those that it names, or all of them.
    """
    selection = select(request, console)
    path = lock_path(selection.catalog.root, selection.stack.name, selection.target.name)
    previous = selection.lock() if path.is_file() else None
    _require_names(request.words("update"), selection, previous)
    locations = package_index.read()
    uv = open_uv(locations)
    minors = selection.environment.pythons
    sources: dict[str, LockedSource] = {}
    build_requires: dict[str, list[LockedRequirement]] = {}
    findings: list[Finding] = []
    with working_folder(request.workspace, "lock") as folder:
        for name in plans.packages(selection.stack, selection.target):
            source = selection.stack.packages[name].source
            if isinstance(source, GitSource):
                findings.append(_not_pinned(name, source))
            if isinstance(source, WheelSource | SdistSource):
                with console.step(f"pin {name}") as step:
                    sources[name] = pinned = pin(source, minors, locations)
                    step.say(f"{source.project} {source.version}, {len(pinned.files)} files")
            requires = selection.catalog.packages[name].build_requires
            if requires and source.method == "pep517":
                with console.step(f"resolve build of {name}"):
                    build_requires[name] = resolve_build(requires, minors, uv=uv, scratch=folder)
        pythons = []
        for minor in minors:
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
                    previous=None if _updates_all(request) else kept,
                    update=request.words("update"),
                )
                pythons.append(resolution.locked)
                findings += resolution.findings
                step.say(f"{len(resolution.locked.requirements)} distributions")
    made = Lock(
        format=1,
        stack=selection.stack.name,
        target=selection.target.name,
        sources=sources,
        build_requires=build_requires,
        pythons=pythons,
    )
    changed = write_lock(path, dump_lock(made))
    document = {
        **opening(findings, console),
        **selection.to_json(),
        "lock": str(path),
        "changed": changed,
    }
    return Outcome(document=document, text=f"{path} {'written' if changed else 'unchanged'}")


def fetch(request: Request, console: Console) -> Outcome:
    """Bring everything that a build of the stack needs, verified."""
    selection = select(request, console)
    selection.require_buildable()
    planned = plan(request, selection)
    locations = package_index.read()
    record = runrecord.start(request.workspace.runs)
    fetched = _fetch_all(planned, request, record, console, locations)
    locked, archives = planned.python.locked, fetched.archives
    document = {
        "schema": 1,
        **selection.to_json(),
        "sources": [
            {"package": archive.package, "path": str(archive.path), "sha256": archive.sha256} for archive in archives
        ],
        "torch": {"version": locked.torch.version, "variant": locked.torch.variant, "sha256": fetched.torch.sha256},
        "requirements": len(locked.requirements),
        "run": record.id,
    }
    return Outcome(document=document, text="everything is here; --offline works now")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """What a fetch has brought: archives in the order of the plan, and the torch."""

    archives: tuple[SourceArchive, ...]
    torch: TorchReceipt


def _fetch_all(
    planned: Planned, request: Request, record: RunRecord, console: Console, locations: IndexLocations
) -> _Fetched:
    """Fetch sources, torch and requirements, several at once."""
    cancellation = Cancellation()
    python, locked = planned.python.interpreter, planned.python.locked
    run = partial(proc.run, cancellation=cancellation)
    archives: dict[str, SourceArchive | None] = {}
    torch: list[TorchReceipt] = []

    def source(step: Step) -> None:
        archives[step.package] = bring(step, planned, request, console, locations, cancellation=cancellation)

    def fetch_torch() -> None:
        with console.step("fetch torch") as shown:

            def progress(done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
                cancellation.check()
                shown.progress(done, total, note=note)

            found = download_torch(
                locked.torch,
                interpreter=python,
                workspace=request.workspace,
                locations=locations,
                offline=request.offline,
                log=record.log("torch", "fetch"),
                progress=progress,
                run=run,
            )
            torch.append(found)
            shown.say(f"{locked.torch.version}+{locked.torch.variant}")

    def fetch_requirements() -> None:
        with console.step("fetch requirements") as shown:
            for requirements in (locked.requirements, *(step.build_requires for step in planned.plan.steps)):
                download_requirements(
                    requirements,
                    interpreter=python,
                    workspace=request.workspace,
                    locations=locations,
                    offline=request.offline,
                    log=record.log("requirements", "fetch"),
                    run=run,
                )
            shown.say(f"{len(locked.requirements)} distributions")

    steps = planned.plan.steps
    works: dict[str, Callable[[], None]] = {f"fetch {step.package}": partial(source, step) for step in steps}
    works |= {"fetch torch": fetch_torch, "fetch requirements": fetch_requirements}
    failures = carry_out(
        [Task(name=name, kind="fetch", work=work) for name, work in works.items()],
        slots={"fetch": FETCHES_AT_ONCE},
        cancellation=cancellation,
        failing=partial(say_failure, console),
    )
    if failures:
        raise fault_of(failures)
    brought = (archives[step.package] for step in steps)
    return _Fetched(archives=tuple(archive for archive in brought if archive), torch=torch[0])


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
    cancellation: Cancellation | None = None,
) -> SourceArchive | None:
    """Fetch the archive of a step; None for a source that is none. In a thread, ``cancellation`` ends it."""
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
            tree = unpack(archive.path, folder / step.package)
            results[step.package] = apply_series(series, tree, version=step.locked.version, topic=topic)
            shown.say(_states(results[step.package]))
            shown.failed = verdict_of(results[step.package].findings) == "fail"
    if not results:
        raise ConfigError(
            code="nothing-to-patch",
            message=f"the stack has no released source of {package} that a series is for"
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


def _require_names(names: Sequence[str], selection: Selection, previous: Lock | None) -> None:
    """Refuse requirements that neither stack nor lock has: a typing error would keep every pin.

    Raises ConfigError ``unknown-package``.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    known = {canonicalize_name(Requirement(line).name) for line in selection.environment.requirements}
    known |= {
        canonicalize_name(pin.name) for entry in (previous.pythons if previous else []) for pin in entry.requirements
    }
    if unknown := [name for name in names if canonicalize_name(name) not in known]:
        raise ConfigError(
            code="unknown-package",
            message=f"neither stack {selection.stack.name} nor its lock has a requirement {', '.join(unknown)}",
            hint=suggest.hint(unknown[0], known),
        )


def _updates_all(request: Request) -> bool:
    return request.options.get("update") == []


def _not_pinned(name: str, source: GitSource) -> Finding:
    return Finding(
        code="git-not-pinned",
        severity=Severity.WARNING,
        subject=name,
        message=f"{source.url} at {source.ref} is not pinned: git sources are not locked yet",
        hint="see docs/explanation/roadmap.md, locks, keys and store",
    )
