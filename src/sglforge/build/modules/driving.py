"""Ask a package for the statements of its modules: a driver of the catalog runs in an environment made for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.sandbox.step import Sandbox
from sglforge.errors import BuildError
from sglforge.keys.modules import PlannedModules

TIMEOUT_S = 1800.0
TAIL_LINES = 20


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
        raise BuildError(
            code="module-driver-failed",
            message=f"{package} did not say how its modules are compiled: "
            f"{said[-1].strip() if said else f'its driver ended with status {done.returncode}'}",
            context={"output": "\n".join(said)},
            hint=f"read {log}",
            log=str(log),
        )
    return _answer(package, modules, json.loads(answer.read_text(encoding="utf-8")))


def _answer(package: str, modules: PlannedModules, document: Mapping[str, object]) -> Answer:
    match document:
        case {"modules": list(found), "left_out": dict(left_out), "unknown": list(unknown)}:
            pass
        case _:
            raise TypeError(f"the driver of {package} answers in another form")
    if unknown or not (found or left_out):
        raise BuildError(
            code="module-unknown",
            message=f"{package} has no module {', '.join(map(str, unknown)) or 'at all'} for "
            f"{', '.join(modules.architectures)}",
            hint=f"correct `modules.sets.{modules.name}` of its recipe: upstream may call it otherwise by now",
        )
    return Answer(
        modules=tuple(
            Asked(name=str(each["name"]), statements=str(each["statements"]), library=str(each["library"]))
            for each in found
        ),
        left_out={str(name): str(why) for name, why in left_out.items()},
    )
