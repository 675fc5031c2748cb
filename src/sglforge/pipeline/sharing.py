"""Wheels from the stores of others: which places, and a step's wheel from one of them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from sglforge.base.cancel import Cancellation
from sglforge.base.console import Console
from sglforge.base.runrecord import RunRecord
from sglforge.base.scratch import working_folder
from sglforge.build.remote import Place, borrow, holds, place
from sglforge.build.store import StoredWheel, lookup, making
from sglforge.errors import Finding
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned
from sglforge.plan import Step

VARIABLE = "SGLFORGE_STORES"


def places(request: Request) -> list[Place]:
    """Return the stores that were named, those of the command line first.

    Raises ConfigError ``store-place-invalid``.
    """
    named = dict.fromkeys((*request.words("store"), *os.environ.get(VARIABLE, "").split()))
    return [place(text) for text in named]


def borrowed(
    step: Step,
    planned: Planned,
    request: Request,
    record: RunRecord,
    console: Console,
    found: list[Place],
    *,
    cancellation: Cancellation,
) -> StoredWheel | None:
    """Return a step's wheel, copied into the own store from the first place that has a good one; None without any.

    Another run that makes the same wheel is waited for, and its wheel is taken. ``cancellation`` ends it.
    """
    if not found:
        return None
    from sglforge.build.execute import BuildPython, check_step
    from sglforge.pipeline.fitness import binary_rules

    def warn(finding: Finding) -> None:
        record.event("store-not-used", package=step.package, place=finding.subject, why=finding.message)
        console.finding(finding)

    def check(wheel: Path) -> None:
        with working_folder(request.workspace, "check") as scratch:
            check_step(step, wheel, python, rules=binary_rules(planned), scratch=scratch)

    interpreter = planned.python.interpreter
    python = BuildPython(path=interpreter.path, minor=interpreter.minor)
    waiting = partial(say_waiting, console, step.package)
    with making(request.workspace, step.key, waiting=waiting, pause=cancellation.sleep):
        if stored := lookup(request.workspace, step.key):
            return stored
        cancellation.check()
        with console.step(f"look for {step.package}") as shown:

            def progress(done: int, total: int | None) -> None:
                cancellation.check()
                shown.progress(done, total, note=f"{done / 1e6:.1f} MB")

            taken = borrow(
                request.workspace,
                step.key,
                found,
                check=check,
                offline=request.offline,
                warn=warn,
                progress=progress,
            )
            if taken:
                record.event("wheel-copied", package=step.package, place=taken[1].name, sha256=taken[0].sha256)
            shown.say(f"{taken[0].path.name} from {taken[1].name}" if taken else "in no other store")
    return taken[0] if taken else None


def say_waiting(console: Console, package: str, note: str) -> None:
    """Say for whom a package waits."""
    console.line(f"  ..  {package}: {note}")


def elsewhere(step: Step, found: list[Place], *, offline: bool) -> dict[str, list[str]]:
    """Return where a wheel that is missing is, and where it may be: addresses are not asked, a plan uses no network."""
    if step.state == "hit":
        return {"in": [], "perhaps_in": []}
    known = {one.name: holds(one, step.key) for one in found if one.folder or not offline}
    return {
        "in": [name for name, there in known.items() if there],
        "perhaps_in": [name for name, there in known.items() if there is None],
    }
