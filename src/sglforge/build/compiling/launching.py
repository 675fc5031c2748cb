"""What a launcher does. Light."""

from __future__ import annotations

import os
import sys

from sglforge.build.compiling import admission, flags, includes, journal, room, running, units
from sglforge.build.compiling import settings as told
from sglforge.build.compiling.admission import Token
from sglforge.build.compiling.journal import Line
from sglforge.build.compiling.ledger import Own
from sglforge.build.compiling.settings import Settings

TYPE_CHECKING = False  # `typing` and `collections.abc` take long to import
if TYPE_CHECKING:
    from collections.abc import Callable

CANNOT_RUN = 127
REFUSED = 1
INTERRUPTED = 2
"""The wait status of what SIGINT ended."""
LENDING = 1
"""A unit that waits for memory lends its slot while fewer than so many times the jobs wait."""
BACK_WITHIN_S = 1.0
UNIT = "SGLFORGE_UNIT"
"""The name of the unit, from the outer launcher to the inner one."""
_DECIDING = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "COMPILER_PATH", "GCC_EXEC_PREFIX")
"""Variables that change what comes out, and that ccache does not look at."""
KIB = 1024
REACHED = 0.9
"""A unit that has taken this share of its measured peak has reached it: what it took afterwards is known as well."""


def main(arguments: list[str]) -> int:
    """Run ``SETTINGS outer|inner COMPILER ARGUMENTS...`` and return the wait status of the compiler."""
    path, side, *words = arguments
    settings = told.load(path)
    call = flags.read(words)
    if side == "inner":
        return _govern(words, os.environ.pop(UNIT, "") or units.name(call.output, settings.roots), settings)
    if not call.compiles:
        return _become(words)
    unit = units.name(call.output, settings.roots)
    words = flags.seeded(call, unit)
    if settings.ccache and (call.dependencies or not call.nvcc):
        own = _cache_variables(call, settings)
        if os.access(own["CCACHE_DIR"], os.W_OK):
            try:
                os.execve(settings.ccache, [settings.ccache, *words], {**os.environ, **own, UNIT: unit})
            except OSError:
                pass  # it is gone: compiled without
    return _govern(words, unit, settings)


def end_like(status: int) -> None:
    """End this process as the compiler ended, by the same status or the same signal."""
    if os.WIFSIGNALED(status):
        import signal

        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


def _become(words: list[str]) -> int:
    """Be replaced by another program; return only where there is none."""
    try:
        os.execvp(words[0], words)
    except OSError as error:
        return _cannot_run(words[0], error)


def _cannot_run(program: str, error: OSError) -> int:
    print(f"sglforge: cannot run {program}: {error.strerror}", file=sys.stderr)
    return CANNOT_RUN << 8


def _cache_variables(call: flags.Call, settings: Settings) -> dict[str, str]:
    """Return what ccache is told: nothing of a person's own settings, and what it would not see by itself."""
    for name in [name for name in os.environ if name.startswith("CCACHE_")]:
        del os.environ[name]
    told_by = dict(settings.variables)
    seen = [f"{name}={os.environ[name]}" for name in _DECIDING if name in os.environ]
    seen.append(includes.digest(call.source, call.includes, os.path.dirname(settings.journal)))
    identity = " ".join([told_by.get("CCACHE_COMPILERCHECK", "string:"), *seen])
    return {**told_by, "CCACHE_COMPILERCHECK": identity, "CCACHE_PREFIX": _prefix(settings.inner)}


def _prefix(inner: str) -> str:
    """Return how ccache is told of the inner launcher: it splits at blanks, so one with some is found on PATH."""
    folder, _, name = inner.rpartition("/")
    if len(inner.split()) == 1:
        return inner
    os.environ["PATH"] = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
    return name


def _govern(words: list[str], unit: str, settings: Settings) -> int:
    """Wait for memory, run, and once more alone if it was killed for want of it."""
    look = admission.read_room(settings.groups, settings.proc)
    measured = units.measured_mib(settings.peaks, unit) if settings.peaks else None
    peak = measured[0] if measured else None
    expected = units.expected_mib(unit, peak, settings.patterns, settings.default_mib)
    capacity = look().capacity_kib // KIB
    if not units.fits(expected, measured=measured is not None, capacity_mib=capacity):
        return _refuse(unit, expected, capacity, settings)
    need = units.reserved_mib(expected, measured=measured is not None, capacity_mib=capacity) * KIB
    token = Token(settings.fifo)

    def waiting(why: str, others: int) -> None:
        if why == "memory" and others < LENDING * settings.jobs:
            token.lend()

    admitted = admission.admit(settings.ledger, need, look, jobs=settings.jobs, waiting=waiting)
    token.take_back(BACK_WITHIN_S)
    line = Line(unit=unit, outcome=journal.DONE, waited_s=admitted.waited_s, waited_for=admitted.why)
    line.tight = admitted.tight
    try:
        ran, killed = _run(words, admitted, settings, measured)
        if killed:
            line.peak_mib = ran.peak_kib // KIB
            ran.forget()
            again = admission.admit(settings.ledger, capacity * KIB, look, jobs=1, alone=True, own=admitted.own)
            line.attempts, line.waited_s = 2, line.waited_s + again.waited_s
            admitted = again
            ran, killed = _run(words, admitted, settings, None)
    except OSError as error:
        return _cannot_run(words[0], error)
    finally:
        if admitted.own:
            admitted.own.leave()
        token.take_back(0.0)
    line.outcome = journal.KILLED if killed else journal.FAILED if ran.status else journal.DONE
    line.seconds, line.cpu_s = ran.seconds, ran.cpu_s
    line.peak_mib = max(line.peak_mib, ran.peak_kib // KIB)
    line.tail_mib = min(ran.tail_kib // KIB, line.peak_mib)
    journal.append(settings.journal, line)
    try:
        ran.say()
    except OSError:  # nobody listens any more
        ran.forget()
    if killed:
        print(f"sglforge: {unit} was killed for want of memory, alone too, at {line.peak_mib} MiB", file=sys.stderr)
    return ran.status


def _run(
    words: list[str], admitted: admission.Admitted, settings: Settings, measured: tuple[int, int] | None
) -> tuple[running.Ran, bool]:
    """Run the compiler; say whether it was killed for want of memory."""
    own = admitted.own
    before = room.kills(settings.groups, settings.proc)
    ran = running.run(words, own.descriptor if own else -1, _teller(own, measured) if own else _ignore)
    killed = bool(ran.status) and (
        running.was_killed(ran.status) or room.kills(settings.groups, settings.proc) > before
    )
    return ran, killed


def _teller(own: Own, measured: tuple[int, int] | None) -> Callable[[int], None]:
    """Return what tells the ledger how much is taken, and that less is needed once a known peak is over."""
    course = running.Course()
    peak_kib, tail_kib = (measured[0] * KIB, measured[1] * KIB) if measured else (0, 0)

    def tell(taken_kib: int) -> None:
        course.add(taken_kib)
        over = peak_kib and course.peak_kib > peak_kib * REACHED and taken_kib < peak_kib * running.FALLEN
        left_kib = int(tail_kib * units.MEASURED_MARGIN)
        own.write(live_kib=taken_kib, need_kib=left_kib if over and left_kib < own.entry.need_kib else None)

    return tell


def _ignore(_kib: int) -> None:
    """Tell nobody."""


def _refuse(unit: str, expected: int, capacity: int, settings: Settings) -> int:
    print(
        f"sglforge: {unit} takes {expected} MiB to compile, and {capacity} MiB are to be had here: it is not started",
        file=sys.stderr,
    )
    journal.append(settings.journal, Line(unit=unit, outcome=journal.REFUSED, peak_mib=expected))
    return REFUSED << 8
