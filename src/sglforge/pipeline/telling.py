"""What a build says on the console and in its document, whether it planned anew or not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sglforge
from sglforge.base.console import Console
from sglforge.base.runrecord import RunRecord
from sglforge.build.store import StoredWheel
from sglforge.errors import Finding, verdict_of
from sglforge.host.facts import HostFacts
from sglforge.pipeline.request import Outcome, Request
from sglforge.pipeline.summary import say_summary
from sglforge.provision.receipt import Environment
from sglforge.smoke.stored import Proof

UNCHANGED = "unchanged"


def heading(request: Request, stack: str, target: str) -> dict[str, object]:
    """Return what the document of a build begins with."""
    return {"schema": 1, "verb": "build", "argv": list(request.argv), "stack": stack, "target": target}


def told(
    findings: Sequence[Finding], plan: Mapping[str, object], steps: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Return what the document of a build says of the machine, the plan and its steps."""
    return {
        "verdict": verdict_of(findings),
        "findings": [finding.to_json() for finding in findings],
        "versions": {"sglforge": sglforge.__version__},
        "plan": plan,
        "steps": steps,
    }


def described(step: Mapping[str, object], wheel: StoredWheel) -> dict[str, object]:
    """Return what the document says of a step of the plan's document, and of its wheel."""
    about = {name: step[name] for name in ("package", "key", "state", "why")}
    return {**about, "wheel": wheel.path.name, "sha256": wheel.sha256}


def say_stack(console: Console, stack: str, target: str, because: str) -> None:
    """Say what is worked on."""
    console.line(f"stack {stack}, target {target} ({because})")


def say_python(console: Console, minor: str, why: str) -> None:
    """Say which Python the environment has."""
    console.line(f"python {minor} ({why})")


def say_machine(console: Console, facts: HostFacts) -> None:
    """Say as a step that the machine was looked at."""
    with console.step("doctor") as step:
        memory = facts.memory_gib
        step.say(f"{facts.cores} cores, {memory:g} GiB" if memory else f"{facts.cores} cores")


def say_unchanged(console: Console, environment: str) -> None:
    """Say as a step that the environment is the one that was installed."""
    with console.step(f"install {environment}") as step:
        step.say(UNCHANGED)


def expected(packages: Sequence[str], environment: str, profile: str | None) -> tuple[str, ...]:
    """Return the names of the steps of a build that has every source."""
    builds = [f"build {package}" for package in packages]
    return (*builds, f"install {environment}", *([f"smoke {profile}"] if profile else []))


def cited(
    document: Mapping[str, object], environment: Environment, profile: str, proof: Proof, console: Console
) -> Outcome:
    """Say that the server was proven before, and return how a build ends that cites this."""
    smoke = {**proof.report, "cited": True, "age_seconds": round(proof.age_s)}
    console.passed(f"smoke {profile}", proof.describe(), shown=True)
    text = f"nothing to do; {environment.path} is built and proven ({proof.describe()})"
    return Outcome(document={**document, "verdict": proof.report["verdict"], "smoke": smoke}, text=text)


def finished(
    console: Console,
    record: RunRecord,
    head: Mapping[str, object],
    outcome: Outcome,
    *,
    facts: HostFacts,
    start: float,
) -> Outcome:
    """Say what the steps came to, record the run, and return how it ends; ``start`` is when it began (monotonic)."""
    seconds = round(time.monotonic() - start, 3)
    say_summary(console)
    result = {**head, **outcome.document, "run": record.id, "seconds": seconds}
    record.write({**head, "facts": facts.to_json(), "result": result})
    return replace(outcome, document=result)
