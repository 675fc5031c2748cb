"""Whether this machine lets build steps be kept to themselves."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from sglforge.base.proc import ProcessError
from sglforge.base.sandbox.step import Isolation, Sandbox, weakest
from sglforge.errors import Finding, Severity

PROBE_TIMEOUT_S = 30.0

_MEANING = {
    "network unchecked": "a build can reach the network",
    "network no-tcp": "a build is refused TCP, its UDP is not checked",
    "writes unchecked": "a build can write outside of its folder",
    "processes ended": "a process that leaves a build's group survives a kill of sglforge",
    "processes unchecked": "a process can outlive its build",
    "place real": "a wheel may hold the path of the folder that it was built in",
}


def probe() -> Isolation:
    """Run a step that does nothing and return what it was kept from."""
    with contextlib.suppress(ProcessError, OSError), tempfile.TemporaryDirectory(prefix="sglforge-") as folder:
        sandbox = Sandbox(folders=(Path(folder),), fixed={"work": Path(folder)})
        sandbox(["/bin/sh", "-c", ":"], cwd=Path(folder), timeout_s=PROBE_TIMEOUT_S)
        return weakest(report.isolation for report in sandbox.reports)
    return Isolation(why=("a step that does nothing did not run",))


def judge(isolation: Isolation) -> tuple[Finding, ...]:
    """Return a finding ``sandbox-incomplete`` for what could not be had; as a remark where no door stays open."""
    held = (
        f"network {isolation.network}",
        f"writes {isolation.writes}",
        f"processes {isolation.processes}",
        f"place {isolation.place}",
    )
    lacking = [_MEANING[words] for words in held if words in _MEANING]
    if not lacking:
        return ()
    open_door = "unchecked" in {isolation.network, isolation.writes}
    return (
        Finding(
            code="sandbox-incomplete",
            severity=Severity.WARNING if open_door else Severity.INFO,
            subject="host",
            message=f"not everything that keeps a build to itself can be had here: {'; '.join(lacking)}",
            hint="builds work all the same; sglforge explain sandbox-incomplete says what would allow it",
            detail=isolation.why,
        ),
    )
