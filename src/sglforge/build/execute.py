"""Carry out one step of a plan: bring the source, patch it, build it, check it, store it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import sglforge
from sglforge.artifacts.binary import Wanted
from sglforge.artifacts.examine import Tools, examine_wheel
from sglforge.artifacts.libraries import Libraries
from sglforge.artifacts.pack import pack
from sglforge.artifacts.provenance import SourceKind, document, summary
from sglforge.artifacts.retag import for_platform, own_platform
from sglforge.artifacts.sass import find_disassembler
from sglforge.artifacts.wheel import check_wheel
from sglforge.base.diskfaults import disk_faults
from sglforge.base.download import redact
from sglforge.base.files import sha256_file
from sglforge.base.ids import Sha256, TreeId
from sglforge.base.proc import Runner
from sglforge.base.proc import run as run_process
from sglforge.base.runrecord import RunRecord
from sglforge.base.sandbox.step import Report, total
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.build.history import remember
from sglforge.build.modules.make import Made, ModuleTools, News, make_modules
from sglforge.build.pep517 import SOURCE_DATE_EPOCH, Uv, build_wheel
from sglforge.build.store import StoredWheel, lookup, making, publish
from sglforge.config.lockfile import LockedArchive
from sglforge.config.model import GitSource, PathSource, SdistSource, WheelSource
from sglforge.errors import BuildError, CheckError, Finding, Severity, verdict_of
from sglforge.host.cuda.model import CudaToolkit
from sglforge.keys.modules import PlannedModules
from sglforge.patches.apply import apply_series
from sglforge.patches.series import Series
from sglforge.plan import Step
from sglforge.sources.git.export import export
from sglforge.sources.model import BroughtSource, SourceArchive, SourceCommit
from sglforge.sources.paths import copy_folder, digest_folder, level
from sglforge.sources.unpack import unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPython:
    """The Python that a build is made with and for: its interpreter and its minor, ``3.11``."""

    path: Path
    minor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryRules:
    """What the binaries of a wheel are held to before it is stored, for targets with GPUs.

    ``toolkits`` are folders like CUDA_HOME: their cuobjdump is asked, and their libraries define symbols too.
    What a step's set of modules claims comes on top, and what its recipe leaves open.
    """

    wanted: Wanted
    toolkits: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brought:
    """A private copy of a source; ``version`` is None for a folder, the package itself is in ``subdirectory``.

    ``described`` is what decides the wheel and goes into it, ``origin`` is for the provenance beside it.
    """

    kind: SourceKind
    tree: Path
    version: str | None
    described: Mapping[str, object]
    subdirectory: str = "."
    origin: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patched:
    """What a series made of a tree."""

    series: Sha256
    tree_id: TreeId
    topics: list[dict[str, object]]


def execute(
    step: Step,
    *,
    catalog_root: Path,
    archive: BroughtSource | None,
    series: Series | None,
    python: BuildPython,
    workspace: Workspace,
    record: RunRecord,
    uv: Uv,
    depends: Sequence[StoredWheel] = (),
    toolkit: CudaToolkit | None = None,
    modules: ModuleTools | None = None,
    keep: bool = False,
    rules: BinaryRules | None = None,
    run: Runner = run_process,
    told: Callable[[News], None] = lambda _: None,
    waiting: Callable[[str], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
    user: int | None = None,
) -> StoredWheel:
    """Build one package and return its wheel in the store; what the store has is not built again.

    One run at a time builds a key: another one waits for it, then takes its wheel.

    Args:
        step: The package, its source and its key.
        catalog_root: What the paths of source folders are relative to.
        archive: The fetched source: an archive or a commit, None for a folder of the catalog.
        series: The package's patch series, None without one.
        python: What it is built with and for.
        workspace: Its scratch folder is worked in, its store gets the wheel.
        record: Gets an event for every phase, and the full output of processes.
        uv: How to run uv.
        depends: The wheels of the packages that it is built with.
        toolkit: The CUDA toolkit that it is compiled with, on this machine; None where its recipe names none.
        modules: What its modules are compiled with, None where it has none.
        keep: Whether the working folder stays, for looking at.
        rules: What its binaries are held to, None where the target has no GPUs.
        run: How to run the build backend.
        told: Told how far its modules are.
        waiting: Told for whom it waits, where another run builds the same.
        pause: Waits some seconds for that run; what it raises ends the waiting.
        user: The number of the user that the build backend runs as, None for who runs us.

    Raises BuildError (``workspace-busy``, ...), CheckError (a wheel that is not what it should be), PatchError, and
    FetchError (an archive that cannot be unpacked).
    """
    if stored := lookup(workspace, step.key):
        return stored
    with disk_faults(workspace.root, BuildError), making(workspace, step.key, waiting=waiting, pause=pause):
        if stored := lookup(workspace, step.key):  # made by the run that was waited for
            return stored
        if len(depends) < len(step.depends):
            raise BuildError(
                code="wheels-not-built",
                message=f"{step.package} is built with {', '.join(step.depends)}, and not all of them are in the store",
                hint="nox -s build",
            )
        return _execute(
            step,
            catalog_root=catalog_root,
            archive=archive,
            series=series,
            python=python,
            workspace=workspace,
            record=record,
            uv=uv,
            depends=depends,
            toolkit=toolkit,
            modules=modules,
            keep=keep,
            rules=rules,
            run=run,
            user=user,
            told=told,
        )


def _execute(
    step: Step,
    *,
    catalog_root: Path,
    archive: BroughtSource | None,
    series: Series | None,
    python: BuildPython,
    workspace: Workspace,
    record: RunRecord,
    uv: Uv,
    depends: Sequence[StoredWheel],
    toolkit: CudaToolkit | None,
    modules: ModuleTools | None,
    keep: bool,
    rules: BinaryRules | None,
    run: Runner,
    user: int | None,
    told: Callable[[News], None],
) -> StoredWheel:
    started, clock = datetime.now(tz=UTC), time.monotonic()
    with working_folder(workspace, step.package, keep=keep) as scratch:
        if keep:
            record.event("build-kept", package=step.package, folder=str(scratch))
        with _phase(record, step, "unpack"):
            source = _bring(step, catalog_root, archive, scratch / "source", workspace)
        with _phase(record, step, "patch"):
            patched = _patch(source, series)
        in_wheel = summary(
            kind=source.kind,
            package=step.package,
            source=source.described,
            series=patched.series if patched else None,
            tree_id=patched.tree_id if patched else None,
            topics=patched.topics if patched else (),
            excluded=step.recipe.exclude,
            build_key=step.key,
        )
        tree = source.tree
        reports: list[Report] = []
        if source.kind != "wheel":
            level(source.tree, time_s=SOURCE_DATE_EPOCH)
            with _phase(record, step, "build", reports):
                built = build_wheel(
                    source.tree / source.subdirectory,
                    scratch / "built",
                    package=step.package,
                    requires=step.build_requires,
                    python=python.path,
                    python_minor=python.minor,
                    uv=uv,
                    scratch=scratch,
                    log=record.log(step.package, "build"),
                    environment=step.environment,
                    wheels=[wheel.path for wheel in depends],
                    toolkit=toolkit,
                    run=run,
                    reports=reports,
                    user=user,
                )
                check_step(step, built, python)
                tree = unpack(built, scratch / "wheel-tree")
        made: Made | None = None
        if step.modules:
            if modules is None or toolkit is None:
                raise TypeError(f"the modules of {step.package} were planned, and nothing is there to compile them")
            compiled: list[Report] = []
            with _phase(record, step, "modules", compiled):
                made = make_modules(
                    step.package,
                    step.modules,
                    modules,
                    tree=tree,
                    scratch=scratch,
                    environment=step.environment,
                    toolkit=toolkit,
                    toolchain=_toolchain(step),
                    python=python.path,
                    uv=uv,
                    workspace=workspace,
                    log=record.log(step.package, "modules"),
                    run=run,
                    reports=compiled,
                    user=user,
                    told=told,
                )
                for_platform(tree, own_platform())
            reports += compiled
            in_wheel["modules"] = _in_wheel(step.modules, made)
        with _phase(record, step, "pack"):
            wheel = pack(
                tree,
                scratch / "wheel",
                local_version=step.local_version,
                exclude=step.recipe.exclude,
                summary=in_wheel,
            )
        with _phase(record, step, "check"):
            check_step(step, wheel, python, rules=rules, scratch=scratch, run=run)
        provenance = document(
            {
                **in_wheel,
                "source": {**source.described, **source.origin},
                **({"toolkit": toolkit.to_json()} if toolkit else {}),
            },
            wheel={"name": wheel.name, "size": wheel.stat().st_size, "sha256": sha256_file(wheel)},
            topics=patched.topics if patched else (),
            excluded=step.recipe.exclude,
            key_parts=step.key_parts,
            build_requires=[f"{pinned.name}=={pinned.version}" for pinned in step.build_requires],
            python=python.minor,
            started=started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - clock,
            builder=f"sglforge {sglforge.__version__}",
            compiled=_compiled(made) if made else None,
            **total(reports),
        )
        with _phase(record, step, "store"):
            stored = publish(workspace, step.key, wheel, provenance)
        remember(workspace, provenance)
        return stored


def _toolchain(step: Step) -> Mapping[str, str]:
    """Return the parts of the toolchain that are in the step's key."""
    match step.key_parts:
        case {"toolchain": {**toolchain}}:
            return {str(name): str(value) for name, value in toolchain.items()}
        case _:
            return {}


def _compiled(made: Made) -> dict[str, object]:
    """Return what a build says of the modules that it compiled; the others were kept from before."""
    return {
        "modules": [module.name for module in made.modules if module.compiled],
        "not-kept": list(made.not_kept),
        **made.report.to_json(),
    }


def _in_wheel(planned: PlannedModules, made: Made) -> dict[str, object]:
    """Return what a wheel says of its modules; they were compiled, and whether they run only a GPU can tell."""
    return {
        "set": planned.name,
        "architectures": list(planned.architectures),
        "scope": "compiled",
        "names": [module.name for module in made.modules],
        "left-out": dict(made.left_out),
    }


def _bring(step: Step, catalog_root: Path, archive: BroughtSource | None, into: Path, workspace: Workspace) -> _Brought:
    match step.source:
        case PathSource(path=path):
            copy_folder(catalog_root / path, into)
            described = {"path": path, "digest": digest_folder(into)}
            _require_planned(step, path, described["digest"])
            return _Brought(kind="path", tree=into, version=None, described=described)
        case WheelSource() | SdistSource() as source:
            if not isinstance(archive, SourceArchive):
                raise TypeError(f"the archive of {step.package} was not fetched before its build")
            described = {
                "project": source.project,
                "version": source.version,
                "file": archive.path.name,
                "sha256": archive.sha256,
            }
            tree = unpack(archive.path, into)
            return _Brought(kind=source.kind, tree=tree, version=source.version, described=described)
        case GitSource(subdirectory=subdirectory):
            if not isinstance(archive, SourceCommit):
                raise TypeError(f"the commit of {step.package} was not fetched before its build")
            export(archive.locked, into, workspace=workspace)
            locked = archive.locked
            return _Brought(
                kind="git",
                tree=into,
                version=locked.version,
                described=locked.seen_by_build(subdirectory),
                subdirectory=subdirectory or ".",
                origin={"url": redact(locked.url), "commit": locked.commit, "described": locked.described},
            )


def _require_planned(step: Step, path: str, content: str) -> None:
    """Refuse a folder that is not the one whose digest is in the key: its wheel would stand for another one."""
    match step.key_parts:
        case {"source": {"digest": str(planned)}} if planned != content:
            raise BuildError(
                code="source-changed",
                message=f"{path} was changed after its build key was worked out",
                hint="repeat the command when nobody writes to the folder",
            )
        case _:
            pass


def _patch(source: _Brought, series: Series | None) -> _Patched | None:
    """Apply a series to the tree; whatever does not apply ends the step."""
    if series is None:
        return None
    if source.version is None:
        raise BuildError(
            code="source-not-buildable",
            message=f"there is a patch series for {series.package}, which is a folder of the catalog",
            hint=f"change the folder itself and remove patches/{series.package}",
        )
    result = apply_series(series, source.tree, version=source.version)
    return _Patched(
        series=series.digest(source.version),
        tree_id=result.require(),
        topics=[topic.to_json() for topic in result.topics],
    )


def check_step(
    step: Step,
    wheel: Path,
    python: BuildPython,
    *,
    rules: BinaryRules | None = None,
    scratch: Path | None = None,
    run: Runner = run_process,
) -> tuple[Finding, ...]:
    """Refuse a wheel that is not what the step is about; every fault is a finding of the error.

    With rules its binaries are judged too, their symbols looked up in the build environment in ``scratch`` and in the
    toolkits. What is not understood is refused as well: nothing enters the store on a guess.

    Returns:
        The remarks that are no reason to refuse it.

    Raises CheckError.
    """
    project = step.locked.project if isinstance(step.locked, LockedArchive) else None
    if rules is None or scratch is None:
        findings = check_wheel(
            wheel,
            python_minor=python.minor,
            project=project,
            version=_version(step),
            import_name=step.recipe.import_name,
        )
        refused = verdict_of(findings) != "pass"
    else:
        examined = examine_wheel(
            wheel,
            replace(
                rules.wanted,
                built=not isinstance(step.source, WheelSource),
                package=step.package,
                claims=step.modules.claims() if step.modules else {},
                open_symbols=step.recipe.open_symbols,
            ),
            _tools(rules, scratch, run),
            python_minor=python.minor,
            project=project,
            version=_version(step),
            import_name=step.recipe.import_name,
        )
        findings, refused = examined.findings, examined.verdict in {"fail", "inconclusive"}
    if refused:
        worst = next((one for one in findings if one.severity is Severity.ERROR), findings[0])
        raise CheckError(
            code=worst.code,
            message=f"{wheel.name} is not fit to be used: {worst.message}",
            hint=worst.hint,
            findings=findings,
        )
    return findings


def _tools(rules: BinaryRules, scratch: Path, run: Runner) -> Tools:
    """Return what binaries are examined with: the build environment, where there is one, and the toolkits."""
    sites = sorted((scratch / "env" / "lib").glob("python3*/site-packages"))
    folders = [folder for home in rules.toolkits for folder in (home / "lib64", home / "lib") if folder.is_dir()]
    return Tools(
        scratch=scratch / "check",
        libraries=Libraries(site=sites[0], folders=folders) if sites else None,
        disassembler=find_disassembler(rules.toolkits),
        run=run,
    )


def _version(step: Step) -> str | None:
    """Return the version that the wheel must have; None where the source says it and nobody else.

    A package of a git repository is held to the lock's version where the stack or the recipe sets it.
    """
    if isinstance(step.source, GitSource):
        told = step.source.version or any("{version}" in value for value in step.recipe.environment.values())
        return step.locked.version if told and step.locked else None
    return step.locked.version if step.locked else None


@contextlib.contextmanager
def _phase(record: RunRecord, step: Step, name: str, reports: Sequence[Report] = ()) -> Iterator[None]:
    """Write down that a phase ran, how long it took and whether it failed; and what is known of its processes."""
    clock, outcome = time.monotonic(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        seconds = round(time.monotonic() - clock, 3)
        record.event(
            "build-phase", package=step.package, phase=name, outcome=outcome, seconds=seconds, **total(reports)
        )
