"""Compile modules with one ninja, and hand over each one as soon as it is there."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import listed
from sglforge.base.sandbox.step import Sandbox
from sglforge.build.hooks import give
from sglforge.build.modules import faults
from sglforge.build.modules.driving import Asked
from sglforge.errors import BuildError

LOOK_EVERY_S = 0.5
_COUNT = re.compile(rb"^\[(\d+)/(\d+)\] ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a compilation is: steps of ninja that are done and all of them, and the modules that are new there."""

    done: int
    total: int
    new: tuple[str, ...]


def compile_modules(
    package: str,
    modules: Sequence[Asked],
    *,
    work: Path,
    ninja: Path,
    jobs: Sequence[str],
    sandbox: Sandbox,
    environment: Mapping[str, str],
    writable: Sequence[Path],
    log: Path,
    timeout_s: float,
    shown: Callable[[str], str],
    finished: Callable[[str], None],
    told: Callable[[Progress], None],
) -> None:
    """Compile modules, all of them or none that failed.

    Args:
        package: Whose modules they are, for messages.
        modules: What is to be compiled.
        work: The folder in which their statements are.
        ninja: Where the step sees the program.
        jobs: What tells ninja how much it runs at once, nothing where a jobserver does.
        sandbox: Runs it.
        environment: Its variables, and those of the compilers.
        writable: Folders besides the sandbox's own that compilers write to.
        log: Gets what ninja says.
        timeout_s: The longest that it may take.
        shown: Returns what a person is shown of a path that the step sees.
        finished: Told the name of each module that is there, in another thread.
        told: Told how far it is, about twice a second, in that thread too.

    Raises BuildError ``module-compile-failed``, whatever ``finished`` raises, and ProcessError.
    """
    there = work / "finished"
    there.mkdir()
    give(there, sandbox.user)
    top = work / "modules.ninja"
    top.write_text(ninja_statements(modules, sandbox.seen(there)), encoding="utf-8")
    words: list[str | Path] = [ninja, "-f", sandbox.seen(top), "-d", "keepdepfile", *jobs]
    libraries = {module.name: module.library for module in modules}
    with _watching(there, libraries, log, finished, told) as watch:
        done = sandbox(
            words, cwd=work, env=environment, log=log, timeout_s=timeout_s, check=False, more=tuple(writable)
        )
    if done.returncode:
        raise faults.named(package, done.stdout, libraries, shown=shown, log=log)
    if watch.missing:
        raise BuildError(
            code="module-compile-failed",
            message=f"modules of {package} are no files when all is compiled: {', '.join(watch.missing)}",
            hint=f"look what its statements make; what was said is in {log}",
            log=str(log),
        )


def ninja_statements(modules: Sequence[Asked], there: Path) -> str:
    """Return the file that has ninja make all modules, one after the other where it has the choice.

    That a module is whole is told by a second name of its library in ``there``. Of what could start ninja takes what
    the longest way to the end begins with, and so would link everything last: a kill would leave no module. So each
    module has a way that is longer than that of the next one, by steps that do nothing.
    """
    lines = [
        "ninja_required_version = 1.12",
        "rule finished",
        "  command = ln -f $in $out",
        "rule nothing",
        "  command = true",
    ]
    before = ""
    for number, module in enumerate(modules):
        first, second = (f"{there}.order/{number}{letter}" for letter in "ab")
        lines += [
            f"subninja {module.statements}",
            f"build {there}/{module.name}: finished {module.library}",
            f"build {first}: nothing {there}/{module.name}{before}",
            f"build {second}: nothing {first}",
        ]
        before = f" || {second}"
    return "\n".join([*lines, f"default {before.removeprefix(' || ')}", ""])


@contextlib.contextmanager
def _watching(
    there: Path,
    wanted: Collection[str],
    log: Path,
    finished: Callable[[str], None],
    told: Callable[[Progress], None],
) -> Iterator[_Watch]:
    """Look now and then what is finished while the block runs, and once more when it has ended."""
    watch = _Watch(there, wanted, log, finished, told)
    ended, faults = threading.Event(), []

    def look() -> None:
        try:
            while not ended.wait(LOOK_EVERY_S):
                watch.look()
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread that waits
            faults.append(error)

    thread = threading.Thread(target=look, name=f"watch {there.parent.name}", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
        if not faults:
            watch.look()
    if faults:
        raise faults[0]


class _Watch:
    """Tells of each finished module once, and how far ninja is by the counts in its log.

    Build steps write to the folder ``there``: only files count, and only those that are ``wanted``.
    """

    def __init__(
        self,
        there: Path,
        wanted: Collection[str],
        log: Path,
        finished: Callable[[str], None],
        told: Callable[[Progress], None],
    ) -> None:
        self._there, self._wanted, self._log, self._finished, self._told = there, wanted, log, finished, told
        self._names: set[str] = set()
        self._read = log.stat().st_size if log.exists() else 0
        self._count = (0, 0)

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that are not there."""
        return tuple(sorted(set(self._wanted) - self._names))

    def look(self) -> None:
        """Look once."""
        there = (path for path in listed(self._there) if path.is_file() and not path.is_symlink())
        new = [path.name for path in there if path.name in self._wanted and path.name not in self._names]
        for name in new:
            self._finished(name)
            self._names.add(name)
        with contextlib.suppress(OSError), self._log.open("rb") as stream:
            stream.seek(self._read)
            lines = stream.read()
            whole = lines.rfind(b"\n") + 1
            self._read += whole
            for found in _COUNT.finditer(lines[:whole]):
                self._count = (int(found[1]), int(found[2]))
        self._told(Progress(done=self._count[0], total=self._count[1], new=tuple(new)))
