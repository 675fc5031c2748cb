"""What a build does around its compilers: a launcher before each, and afterwards what became of them."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.proc import Runner
from sglforge.base.proc import run as run_process
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.build.compiling import cache, compilers, door, journal, peaks, room, storage, units
from sglforge.build.compiling import settings as told
from sglforge.build.compiling.cache import Ccache
from sglforge.build.compiling.door import Door
from sglforge.build.compiling.jobserver import Jobserver
from sglforge.build.compiling.report import CompileReport, Unit
from sglforge.build.compiling.settings import Settings
from sglforge.config.model import CompileMemory
from sglforge.errors import BuildError
from sglforge.host import cgroup

LAUNCHER = Path(__file__).with_name("launcher.py")
MIB_OF_GIB = 1024
LAUNCHER_VARIABLES = (
    "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_CUDA_COMPILER_LAUNCHER",
)
SHELL_VARIABLES = ("FLASHINFER_NVCC_LAUNCHER", "FLASHINFER_CXX_LAUNCHER")
"""Their values become part of a shell's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """What a build's environment and sandbox get so that its compilers run through our launcher.

    ``launcher``: one word to put before a compiler. ``variables``: what tells build tools of it and of the jobserver;
    they replace those of the same name, and `jobserver.without_jobs` removes those that contradict. ``folders``: where
    the sandbox must let it write. Ask for the report inside of the block.
    """

    launcher: str
    variables: Mapping[str, str]
    folders: tuple[Path, ...]
    _settings: Settings
    _log: Path
    _engine: Ccache | None
    _without: str
    _door: Door | None

    def require(self, names: Iterable[str]) -> None:
        """Refuse a build with units that cannot fit into this machine's memory, before it starts.

        Args:
            names: The units that it will make: paths of objects below the build's folders (its ``roots``).

        Raises BuildError ``unit-exceeds-memory``, with all of them.
        """
        settings = self._settings
        capacity = room.look(settings.groups, settings.proc).capacity_kib // 1024
        over = {}
        for name in sorted(names):
            mib, measured = self._expected(name)
            if not units.fits(mib, measured=measured, capacity_mib=capacity):
                over[name] = mib
        if over:
            name, mib = max(over.items(), key=lambda pair: pair[1])
            more = f", and {len(over) - 1} more do not fit" if len(over) > 1 else ""
            raise BuildError(
                code="unit-exceeds-memory",
                message=f"{name} takes {mib / MIB_OF_GIB:.1f} GiB to compile, and "
                f"{capacity / MIB_OF_GIB:.1f} GiB are to be had here{more}",
                context={name: f"{mib / MIB_OF_GIB:.1f} GiB" for name, mib in over.items()},
                hint="build on a machine with more memory, or raise the limit of the control group; "
                "sglforge explain unit-exceeds-memory",
            )

    def expected_mib(self, name: str) -> int:
        """Return the memory that a unit will take: what it was measured to take, else what the recipe says."""
        return self._expected(name)[0]

    def _expected(self, name: str) -> tuple[int, bool]:
        """Return what a unit will take, in MiB, and whether that was measured."""
        settings = self._settings
        measured = units.measured_mib(settings.peaks, name)
        peak = measured[0] if measured else None
        return units.expected_mib(name, peak, settings.patterns, settings.default_mib), measured is not None

    def report(self) -> CompileReport:
        """Return what became of the units so far."""
        return CompileReport(
            units=tuple(Unit.of(line) for line in journal.parse(_text(Path(self._settings.journal)))),
            cache=cache.statistics(_text(self._log)) if self._engine and self._log.exists() else None,
            engine=f"ccache {self._engine.version}" if self._engine else "",
            without=self._without,
            remote=self._door.remote.shown if self._door else "",
            remote_fault=self._door.fault if self._door else "",
        )


@contextlib.contextmanager
def compiling(
    package: str,
    *,
    target: str,
    workspace: Workspace,
    memory: CompileMemory,
    toolchain: str,
    roots: Sequence[Path],
    server: Jobserver,
    environment: Mapping[str, str] = os.environ,
    cached: bool = True,
    root: Path = Path("/"),
    run: Runner = run_process,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Compiling]:
    """Hold one job and let the compilers of one build run through our launcher.

    Args:
        package: Its name: objects in the cache and peaks are kept for each package.
        target: Its name: what a unit takes differs from target to target.
        workspace: Gets the cache, the ledger and the peaks, in ``compiling/``.
        memory: What the recipe says that its units take.
        toolchain: What the compilers are, as far as their files on PATH do not tell: a toolkit's fingerprint.
        roots: The folders in which objects are made; names of units are paths below them.
        server: The jobserver of the run.
        environment: Where PATH and the cache's switches are read from.
        cached: Whether objects may come from a cache; a rebuild that is to prove something goes without.
        root: What holds proc/ and sys/, here or of a recorded machine.
        run: How to run ccache and compilers that are asked what they are.
        pause: Waits some seconds for a job; what it raises ends the waiting.

    Raises ConfigError ``compile-cache-invalid``.
    """
    shared = workspace.compiling
    known = shared / "peaks" / target / f"{package}.json"
    ledger, objects = shared / "ledger", shared / "cache" / package
    for folder in (ledger, objects / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    engine, without = cache.find(environment, run) if cached else (None, "this build goes without")
    size, remote = cache.limit(environment), storage.configured(environment)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(working_folder(workspace, f"compiling-{package}"))
        way_out = stack.enter_context(door.serving(remote, folder)) if remote and engine else None
        stack.enter_context(server.slot(pause))
        log, own = folder / "ccache.log", folder / "settings"
        outer, inner = _script(folder, own, "outer"), _script(folder, own, "inner")
        settings = Settings(
            ledger=str(ledger),
            journal=str(folder / "journal"),
            peaks=str(folder / "peaks"),
            roots=tuple(str(path.resolve()) for path in roots),
            patterns=tuple((glob, round(gib * MIB_OF_GIB)) for glob, gib in memory.units.items()),
            default_mib=round(memory.default * MIB_OF_GIB),
            groups=tuple((group.version, str(group.folder)) for group in cgroup.memory_groups(root)),
            proc=str(root / "proc"),
            jobs=server.jobs,
            fifo=str(server.fifo),
            ccache=str(engine.program) if engine else "",
            inner=str(inner),
            variables=tuple(
                cache.settings(
                    objects,
                    identity=compilers.identity(toolchain, run),
                    log=log,
                    size=size,
                    remote=way_out.address if way_out else "",
                ).items()
            )
            if engine
            else (),
        )
        (folder / "peaks").write_bytes(peaks.table(peaks.load(known)))
        own.write_bytes(told.dump(settings))
        try:
            yield Compiling(
                launcher=str(outer),
                variables={
                    **dict.fromkeys(LAUNCHER_VARIABLES, str(outer)),
                    **dict.fromkeys(SHELL_VARIABLES, shlex.quote(str(outer))),
                    **server.variables,
                },
                folders=(folder, ledger, objects, server.folder, *([way_out.folder] if way_out else ())),
                _settings=settings,
                _log=log,
                _engine=engine,
                _without=without,
                _door=way_out,
            )
        finally:
            with contextlib.suppress(OSError):
                peaks.learn(known, journal.parse(_text(folder / "journal")))


def _script(folder: Path, settings: Path, side: str) -> Path:
    """Write a program of one word: build tools and ccache take no arguments for a launcher."""
    path = folder / side
    words = [sys.executable, "-I", "-S", str(LAUNCHER), str(settings), side]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
