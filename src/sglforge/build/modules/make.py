"""Make the modules of a set: what was kept is taken, the rest is compiled and kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import Sha256
from sglforge.base.proc import Runner
from sglforge.base.sandbox.step import Report, Sandbox
from sglforge.base.workspace import Workspace
from sglforge.build.compiling.report import CompileReport
from sglforge.build.hooks import give
from sglforge.build.modules.compile import Progress, compile_modules
from sglforge.build.modules.contents import Contents
from sglforge.build.modules.driving import drive
from sglforge.build.modules.environment import make_environment
from sglforge.build.modules.keep import Kept, find, keep
from sglforge.build.modules.roots import Root, Roots
from sglforge.build.modules.statements import Statements, key_of, read_of, read_statements
from sglforge.build.pep517 import Uv, step_variables
from sglforge.errors import BuildError
from sglforge.host.cuda.model import CudaToolkit
from sglforge.keys.modules import PlannedModules

TIMEOUT_S = 48 * 3600.0
PROGRAMS = "@env/bin/"
"""How commands begin that run a program of the driver's environment."""
OF_THE_MACHINE = ("glibc", "host-compiler", "nvcc")
"""The parts of the toolchain that decide a module."""


class Compiling(Protocol):
    """What is needed of `build.compiling`: a launcher before every compiler, and a jobserver."""

    @property
    def launcher(self) -> str: ...
    @property
    def variables(self) -> Mapping[str, str]: ...
    @property
    def folders(self) -> tuple[Path, ...]: ...
    def require(self, names: Iterable[str]) -> None: ...
    def report(self) -> CompileReport: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLauncher:
    """Compilers that run by themselves, as many at once as there are cores."""

    launcher: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()

    def require(self, names: Iterable[str]) -> None:
        """Refuse nothing: nobody knows what a unit takes."""

    def report(self) -> CompileReport:
        """Return that nobody looked."""
        return CompileReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTools:
    """What modules are compiled with.

    ``driver`` is the program of the catalog; ``torch_into`` installs the driver's torch into an environment, with a
    file for what is said meanwhile; ``compiling`` opens the launcher for objects below a folder, as
    steps see it, with what a workspace knows of compilers.
    """

    driver: Path
    torch_into: Callable[[Path, Path], None]
    compiling: Callable[[Path, Workspace], AbstractContextManager[Compiling]] = lambda *_: nullcontext(NoLauncher())


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeModule:
    """A module in the wheel's tree; ``compiled`` is False for one that was kept from before."""

    name: str
    sha256: Sha256
    compiled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The modules of a set, those that its driver leaves out with the reason, and those that could not be kept.

    ``report`` says what became of the compilers' units.
    """

    modules: tuple[MadeModule, ...]
    left_out: Mapping[str, str]
    not_kept: tuple[str, ...]
    report: CompileReport


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """How far the modules of a build are: those that are new there (kept from before, or compiled), and the counts.

    ``there`` and ``wanted`` count modules, ``done`` and ``total`` steps of ninja. ``remarks`` are for people:
    units that were killed for want of memory, and the like.
    """

    new: tuple[str, ...]
    compiled: bool
    there: int
    wanted: int
    done: int = 0
    total: int = 0
    remarks: tuple[str, ...] = ()


def make_modules(
    package: str,
    modules: PlannedModules,
    tools: ModuleTools,
    *,
    tree: Path,
    scratch: Path,
    environment: Mapping[str, str],
    toolkit: CudaToolkit,
    toolchain: Mapping[str, str],
    python: Path,
    uv: Uv,
    workspace: Workspace,
    log: Path,
    run: Runner,
    reports: list[Report],
    user: int | None,
    told: Callable[[News], None],
) -> Made:
    """Compile the modules of a set into a wheel's tree; those that were kept from before are taken.

    Args:
        package: Whose modules they are.
        modules: The set.
        tools: What they are compiled with.
        tree: The unpacked wheel: the driver imports the package from it, modules are put into it.
        scratch: A folder for the environment and everything that is made.
        environment: The variables of the recipe.
        toolkit: The CUDA toolkit.
        toolchain: The parts of the toolchain that are in the build key.
        python: The interpreter of the driver's environment.
        uv: How to run uv.
        workspace: Where modules are kept.
        log: Gets what driver, ninja and compilers say.
        run: How to run them.
        reports: Gets what is known of every step.
        user: The number of the user that steps run as, who is given their folders; None for who runs us.
        told: Told how far it is.

    Raises BuildError ``workspace-unusable``, ``module-driver-failed``, ``module-unknown``, ``module-compile-failed``
    and what ``uv`` raises.
    """
    _require_plain(scratch)
    work, own = scratch / "modules", scratch / "modules-env"
    work.mkdir()
    make_environment(own, modules.locked.requirements, python, uv, scratch, log)
    tools.torch_into(own, log)
    fixed = {"tree": tree, "modules": work, "env": own, "cuda": toolkit.home}
    sandbox = Sandbox(folders=(work,), fixed=fixed, user=user, run=run, reports=reports)
    roots = Roots(
        Root(name=name, real=folder.resolve(), seen=sandbox.seen(folder), pinned=name == "cuda")
        for name, folder in fixed.items()
    )
    contents = Contents()
    with tools.compiling(sandbox.seen(work), workspace) as compiling:
        variables = {
            **step_variables(work, own / "bin", sandbox, {**environment, **compiling.variables}, toolkit),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(sandbox.seen(tree)),
        }
        for folder in (work, *compiling.folders):
            give(folder, user)
        answer = drive(
            package,
            modules,
            driver=tools.driver,
            work=work,
            python=sandbox.seen(own / "bin" / "python"),
            sandbox=sandbox,
            environment=variables,
            log=log,
        )
        statements = read_statements(
            answer.modules,
            ninja=own / "bin" / "ninja",
            roots=roots,
            launcher=compiling.variables.get("FLASHINFER_NVCC_LAUNCHER", compiling.launcher),
            environment=variables,
            run=run,
        )
        parts = {name: toolchain[name] for name in OF_THE_MACHINE if name in toolchain}
        pins = digest([pinned.model_dump(mode="json") for pinned in modules.locked.requirements])
        key = partial(key_of, roots=roots, contents=contents, environment=environment)
        keys = {
            each.name: key(each, toolchain={**parts, **({"programs": pins} if each.runs(PROGRAMS) else {})})
            for each in statements
        }
        tray = _Tray(tree, modules)
        for name, found in keys.items():
            tray.take(name, find(workspace, found, roots=roots, contents=contents))
        told(News(new=tuple(tray.modules), compiled=False, there=len(tray.modules), wanted=len(keys)))
        missing = [each for each in statements if each.name not in tray.modules]
        compiling.require([roots.real(path).relative_to(work.resolve()).as_posix() for path in _objects(missing)])
        making = _Making(missing, keys, tray, roots=roots, contents=contents, workspace=workspace, work=work, say=told)
        if missing:
            names = {each.name for each in missing}
            compile_modules(
                package,
                [asked for asked in answer.modules if asked.name in names],
                work=work,
                ninja=sandbox.seen(own / "bin" / "ninja"),
                jobs=() if "MAKEFLAGS" in compiling.variables else ("-j", str(os.cpu_count() or 1)),
                sandbox=sandbox,
                environment=variables,
                writable=compiling.folders,
                log=log,
                timeout_s=TIMEOUT_S,
                shown=roots.shown,
                finished=making.finished,
                told=making.told,
            )
        report = compiling.report()
        remarks = (*report.describe(), *making.remarks())
        told(News(new=(), compiled=True, there=len(tray.modules), wanted=len(keys), remarks=remarks))
        return Made(
            modules=tuple(tray.modules[name] for name in sorted(tray.modules)),
            left_out=answer.left_out,
            not_kept=tuple(sorted(making.not_kept)),
            report=report,
        )


def _require_plain(folder: Path) -> None:
    """Refuse a folder whose path ninja would take for something else: packages write the launcher's as it is.

    Raises BuildError ``workspace-unusable``.
    """
    if odd := [letter for letter in ("$", "\n") if letter in str(folder)]:
        raise BuildError(
            code="workspace-unusable",
            message=f"modules are compiled by ninja, which reads {odd[0]!r} in {str(folder)!r} as something else",
            hint="name a folder without it with --workspace DIR or SGLFORGE_HOME",
        )


class _Tray:
    """Puts modules into a wheel's tree."""

    def __init__(self, tree: Path, planned: PlannedModules) -> None:
        self._tree, self._planned = tree, planned
        self.modules: dict[str, MadeModule] = {}

    def take(self, name: str, kept: Kept | None) -> None:
        """Take a module that was kept from before, if it was; one that is removed at this moment was not."""
        if kept:
            with contextlib.suppress(FileNotFoundError):
                self.put(name, kept.path, compiled=False)

    def put(self, name: str, library: Path, *, compiled: bool) -> None:
        """Put a module to its place."""
        final = self._tree / self._planned.place(name)
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, final)
        final.chmod(0o755)
        self.modules[name] = MadeModule(name=name, sha256=sha256_file(final), compiled=compiled)


class _Making:
    """Takes each module that is there, and keeps it."""

    def __init__(
        self,
        missing: Sequence[Statements],
        keys: Mapping[str, Sha256],
        tray: _Tray,
        *,
        roots: Roots,
        contents: Contents,
        workspace: Workspace,
        work: Path,
        say: Callable[[News], None],
    ) -> None:
        self._statements = {each.name: each for each in missing}
        self._keys, self._tray, self._roots, self._contents = keys, tray, roots, contents
        self._workspace, self._work, self._began_s = workspace, work, time.time()
        self._say = say
        self.not_kept: list[str] = []

    def finished(self, name: str) -> None:
        """Take a module that is there, and keep it; one that nobody could prove later is not kept."""
        library = self._work / "finished" / name
        self._tray.put(name, library, compiled=True)
        read = read_of(self._statements[name], roots=self._roots, contents=self._contents, since_s=self._began_s)
        if read is None or keep(self._workspace, self._keys[name], library, name=name, read=read) is None:
            self.not_kept.append(name)

    def remarks(self) -> tuple[str, ...]:
        """Return what a person should know of modules that could not be kept."""
        why = "a compiler does not name all that it read, or a file of the machine was changed meanwhile"
        return tuple(f"module {name} is not kept: {why}" for name in sorted(self.not_kept))

    def told(self, progress: Progress) -> None:
        """Tell how far it is."""
        self._say(
            News(
                new=progress.new,
                compiled=True,
                there=len(self._tray.modules),
                wanted=len(self._keys),
                done=progress.done,
                total=progress.total,
            )
        )


def _objects(statements: Sequence[Statements]) -> list[str]:
    return [path for each in statements for path in each.objects]
