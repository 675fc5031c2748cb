"""Which Python an environment is made with, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.config.lockfile import LockedPython
from sglforge.errors import DoctorError, SglforgeError
from sglforge.provision.uv import Uv

_ASK = (
    "import json, os, sys; "
    "print(json.dumps([sys.implementation.name, '%d.%d.%d' % sys.version_info[:3], "
    "os.path.realpath(getattr(sys, '_base_executable', sys.executable))]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A CPython on this machine: its real path (never a venv's link) and its version."""

    path: Path
    minor: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPython:
    """The Python of an environment, the lock's section for it, and why it was taken."""

    interpreter: Interpreter
    locked: LockedPython
    why: str


def running_interpreter() -> Interpreter:
    """Return the Python that runs now."""
    version = sys.version_info
    return Interpreter(
        path=Path(getattr(sys, "_base_executable", sys.executable)).resolve(),
        minor=f"{version.major}.{version.minor}",
        version=f"{version.major}.{version.minor}.{version.micro}",
    )


def choose_python(
    pythons: Sequence[LockedPython],
    uv: Uv,
    *,
    explicit: str | None = None,
    running: Interpreter | None = None,
) -> ChosenPython:
    """Choose the Python of an environment among the locked ones.

    An explicit one (a minor or a path) is taken as it is. Otherwise: the running one where the lock proves a
    torch for it; another locked one with a proven torch that this machine has; the running one, unproven.
    No Python is downloaded.

    Raises DoctorError ``python-not-found`` and ``python-not-locked``.
    """
    by_minor = {locked.minor: locked for locked in pythons}
    if explicit:
        found = find_interpreter(uv, explicit)
        if found.minor not in by_minor:
            raise _not_locked(found, by_minor, f"--python {explicit}")
        return ChosenPython(interpreter=found, locked=by_minor[found.minor], why=f"asked for with --python {explicit}")

    here = running or running_interpreter()
    mine = by_minor.get(here.minor)
    if mine and mine.torch.sha256:
        return ChosenPython(interpreter=here, locked=mine, why="the Python that runs sglforge; its torch is proven")
    for locked in pythons:
        if locked.torch.sha256 and locked.minor != here.minor and (other := _find(uv, locked.minor)):
            why = f"the lock proves torch for Python {locked.minor}, not for the running {here.minor}"
            return ChosenPython(interpreter=other, locked=locked, why=why)
    if mine:
        proven = ", ".join(locked.minor for locked in pythons if locked.torch.sha256)
        what = f"only for Python {proven}, which is not here" if proven else "for no Python yet"
        why = f"the Python that runs sglforge; the lock proves torch {what}"
        return ChosenPython(interpreter=here, locked=mine, why=why)
    raise _not_locked(here, by_minor, "the running Python")


def find_interpreter(uv: Uv, request: str) -> Interpreter:
    """Return the interpreter behind a minor (``3.12``) or a path.

    Raises DoctorError ``python-not-found``.
    """
    if "/" not in request:
        if found := _find(uv, request):
            return found
        raise _not_found(request, "uv finds none on this machine, and none is downloaded")
    try:
        return _ask(uv, Path(request))
    except SglforgeError as error:
        raise _not_found(request, error.message) from error
    except ValueError as error:
        raise _not_found(request, "it does not answer as a CPython does") from error


def _find(uv: Uv, request: str) -> Interpreter | None:
    try:
        found = uv("python", "find", "--system", "--no-project", request)
        return _ask(uv, Path(found.stdout.strip()))
    except (SglforgeError, ValueError):
        return None


def _ask(uv: Uv, path: Path) -> Interpreter:
    answer = uv.run([path, "-I", "-c", _ASK], env=uv.environment, timeout_s=20.0)
    implementation, version, real = json.loads(answer.stdout)
    if implementation != "cpython":
        raise ValueError(implementation)
    return Interpreter(path=Path(real), minor=version.rpartition(".")[0], version=version)


def _not_found(request: str, why: str) -> DoctorError:
    return DoctorError(
        code="python-not-found",
        message=f"there is no Python {request}: {why}",
        hint="name one with --python PATH, or leave --python out",
    )


def _not_locked(found: Interpreter, minors: Iterable[str], what: str) -> DoctorError:
    known = ", ".join(minors) or "none"
    return DoctorError(
        code="python-not-locked",
        message=f"{what} is Python {found.version}, and the lock has {known}",
        hint="name one of these with --python, for example: --python 3.11",
    )
