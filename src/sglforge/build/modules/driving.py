"""Ask a package for the statements of its modules: a driver of the catalog runs in an environment made for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import open_plain
from sglforge.base.sandbox.step import Sandbox
from sglforge.errors import BuildError
from sglforge.keys.modules import PlannedModules

TIMEOUT_S = 1800.0
TAIL_LINES = 20
LIMIT_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,249}")
"""Modules become names of files in a wheel, outside of the sandbox."""
_PATH = re.compile(r"/[^\s$:|]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A module as its driver answers: its name, the file of its statements and the library that they make, as seen."""

    name: str
    statements: str
    library: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a driver answers: the modules of a set, and those that it leaves out with the reason."""

    modules: tuple[Asked, ...]
    left_out: Mapping[str, str]


def drive(
    package: str,
    modules: PlannedModules,
    *,
    driver: Path,
    work: Path,
    python: Path,
    sandbox: Sandbox,
    environment: Mapping[str, str],
    log: Path,
) -> Answer:
    """Return the modules of a set with their statements.

    Args:
        package: Whose modules they are, for messages.
        modules: The set.
        driver: The program; it is copied to where the step sees it.
        work: The folder that the package writes to.
        python: Where the step sees the interpreter of the driver's environment.
        sandbox: Runs it.
        environment: Its variables.
        log: Gets what it says.

    Raises BuildError ``module-driver-failed`` and ``module-unknown``.
    """
    copy, request, answer = (work / name for name in ("driver.py", "request.json", "answer.json"))
    copy.write_bytes(driver.read_bytes())
    wanted = {
        "architectures": list(modules.architectures),
        "folder": str(sandbox.seen(work)),
        "names": list(modules.set.names),
    }
    request.write_text(json.dumps(wanted), encoding="utf-8")
    words = [sandbox.seen(path) for path in (copy, request, answer)]
    done = sandbox([python, "-P", *words], cwd=work, env=environment, log=log, timeout_s=TIMEOUT_S, check=False)
    if done.returncode or not answer.is_file():
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-TAIL_LINES:]
        why = said[-1].strip() if said else f"its driver ended with status {done.returncode}"
        raise _failed(package, why, log, output="\n".join(said))
    return _answer(package, modules, answer, log)


def _failed(package: str, why: str, log: Path, *, output: str = "") -> BuildError:
    return BuildError(
        code="module-driver-failed",
        message=f"{package} did not say how its modules are compiled: {why}",
        context={"output": output} if output else {},
        hint=f"read {log}",
        log=str(log),
    )


def _answer(package: str, modules: PlannedModules, path: Path, log: Path) -> Answer:
    """Return what a driver answered; the package's own code ran in it, so nothing in it is believed."""
    try:
        with open_plain(path) as stream:
            document = json.loads(stream.read(LIMIT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise _failed(package, f"its answer is no JSON document: {error}", log) from error
    match document:
        case {"modules": list(found), "left_out": dict(left_out), "unknown": list(unknown)}:
            pass
        case _:
            raise _failed(package, "its answer has another form than a driver's", log)
    if unknown or not (found or left_out):
        raise BuildError(
            code="module-unknown",
            message=f"{package} has no module {', '.join(map(str, unknown)) or 'at all'} for "
            f"{', '.join(modules.architectures)}",
            hint=f"correct `modules.sets.{modules.name}` of its recipe: upstream may call it otherwise by now",
        )
    asked = tuple(_asked(package, each, log) for each in found)
    if len({each.name for each in asked}) < len(asked):
        raise _failed(package, "its answer names a module twice", log)
    return Answer(modules=asked, left_out={str(name): str(why) for name, why in left_out.items()})


def _asked(package: str, each: object, log: Path) -> Asked:
    match each:
        case {"name": str(name), "statements": str(statements), "library": str(library)}:
            pass
        case _:
            raise _failed(package, "its answer has something else than a module", log)
    if not _NAME.fullmatch(name):
        raise _failed(package, f"its answer has a module with the name {name!r}", log)
    if odd := next((path for path in (statements, library) if not _PATH.fullmatch(path)), None):
        raise _failed(package, f"its answer has a path that ninja cannot be told: {odd!r}", log)
    return Asked(name=name, statements=statements, library=library)
