"""Verbs that build, install and check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sglforge import plan as plans
from sglforge.base import scratch
from sglforge.base.console import Console
from sglforge.base.runrecord import RunRecord
from sglforge.base.sandbox.step import Isolation, weakest
from sglforge.build import store
from sglforge.build.store import StoredWheel
from sglforge.build.uses import using
from sglforge.config.model import Profile
from sglforge.errors import (
    DoctorError,
    Finding,
    InstallError,
    Severity,
    SglforgeError,
    verdict_of,
)
from sglforge.host import isolation, package_index
from sglforge.pipeline import serving, telling
from sglforge.pipeline.machine import document as plan_document
from sglforge.pipeline.noting import Watched, note, watch
from sglforge.pipeline.remembering import Surroundings
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.running import start_run
from sglforge.pipeline.select import Planned, Selection, plan, require_packages, select
from sglforge.pipeline.tidying import works_with
from sglforge.pipeline.wheels import TOOLKIT, make_wheels, toolkit_for
from sglforge.plan import DAMAGED, Step
from sglforge.provision import install as installs
from sglforge.provision import verify as verifying
from sglforge.provision.receipt import Environment
from sglforge.smoke import stored
from sglforge.smoke.stored import Proof

if TYPE_CHECKING:
    from sglforge.smoke.verdict import SmokeReport


def build(request: Request, console: Console, *, start: float, around: Surroundings | None) -> Outcome:
    """Doctor, then fetch, patch, build, check and store what is missing, install, and prove the server.

    ``start`` is when the verb began (monotonic), ``around`` what decides it, as it looked then.
    """
    selection = select(request, console)
    require_packages(request, selection)
    record = start_run(request, console)
    scratch.sweep(request.workspace)
    document = telling.heading(request, selection.stack.name, selection.target.name)
    watched = watch(around, selection)
    try:
        outcome = _build(request, selection, record, console, watched)
    except SglforgeError as error:
        faults = [finding.to_json() for finding in error.as_findings()]
        record.write(
            {
                **document,
                "facts": selection.facts.to_json(),
                "result": {"verdict": "fail", "findings": faults},
            }
        )
        raise
    return telling.finished(console, record, document, outcome, facts=selection.facts, start=start)


def _build(
    request: Request, selection: Selection, record: RunRecord, console: Console, watched: Watched | None
) -> Outcome:
    remarks = _doctor(selection, console)
    selection.require_buildable(request.words("packages"))
    planned = plan(request, selection)
    remarks += _patch_remarks(planned, console)
    telling.say_python(console, planned.python.locked.minor, planned.python.why)
    with using(request.workspace, works_with(planned, record)):
        return _carry_out(request, planned, remarks, record, console, watched)


def _carry_out(
    request: Request,
    planned: Planned,
    remarks: tuple[Finding, ...],
    record: RunRecord,
    console: Console,
    watched: Watched | None,
) -> Outcome:
    """Make what is missing of a plan: wheels, the environment, the proof."""
    selection = planned.selection
    current = None if request.words("packages") else _current(planned, request)
    chosen = planned.plan.steps if current else _chosen(request, planned.plan.steps)
    console.expect(_expected(chosen, request, planned))
    wheels = make_wheels(chosen, planned, request, record, console)
    remarks += _sandbox_remarks(chosen, wheels, console)
    steps = [
        telling.described({"package": step.package, "key": step.key, "state": step.state, "why": step.why}, wheel)
        for step, wheel in zip(chosen, wheels, strict=True)
    ]
    document = telling.told(remarks, plan_document(planned), steps)
    if wanted := request.words("packages"):
        paths = [str(wheel.path) for step, wheel in zip(chosen, wheels, strict=True) if step.package in wanted]
        return Outcome(document=document, text="\n".join(paths))
    environment = _install(planned, wheels, request, record, console, current=current)
    document["environment"] = environment.to_json()
    profile = serving.default_profile(selection)
    key = serving.proof_key(request, selection, profile, environment)
    proof = _proof(request, selection, profile, environment, record, console, key=key)
    if isinstance(proof, Proof):
        if current and watched:
            note(request, planned, watched, record, findings=remarks, profile=profile, proof_key=key)
        return telling.cited(document, environment, profile.name, proof, console)
    findings = (*remarks, *proof.findings)
    document |= {
        "smoke": {**proof.to_json(), "cited": False},
        "verdict": proof.verdict,
        "findings": [finding.to_json() for finding in findings],
    }
    text = f"{serving.report_text(proof)}\nenvironment {environment.path}"
    return Outcome(document=document, text=text, exit_code=serving.exit_code(proof.verdict))


def _proof(
    request: Request,
    selection: Selection,
    profile: Profile,
    environment: Environment,
    record: RunRecord,
    console: Console,
    *,
    key: str,
) -> Proof | SmokeReport:
    """Return the proof stored under a key, also one that another run comes to meanwhile, else prove the server."""

    def known() -> Proof | None:
        return None if request.flag("prove") else stored.read(request.workspace, key)

    if proof := known():
        return proof
    with serving.reserved(environment, request, console):
        return known() or serving.prove(request, selection, profile, environment, record, console)


def install(request: Request, console: Console) -> Outcome:
    """Install the built wheels and the locked requirements into an environment; mend one that was changed."""
    selection = select(request, console)
    selection.require_buildable()
    planned = plan(request, selection)
    missing = [step.package for step in planned.plan.misses]
    if missing:
        raise InstallError(
            code="wheels-not-built",
            message=f"not built yet: {', '.join(missing)}",
            hint=request.command("build"),
        )
    record = start_run(request, console)
    with using(request.workspace, works_with(planned, record)):
        wheels = [wheel for step in planned.plan.steps if (wheel := store.lookup(request.workspace, step.key))]
        environment = _install(planned, wheels, request, record, console, check=verifying.thorough)
    document = {
        "schema": 1,
        **selection.to_json(),
        "environment": environment.to_json(),
        "run": record.id,
    }
    return Outcome(document=document, text=str(environment.path))


def verify(request: Request, console: Console) -> Outcome:
    """Compare an environment with its receipt, every file hashed."""
    selection = select(request, console)
    environment = serving.installed(request, selection, check=False)
    with console.step(f"verify {environment.name}") as step:
        findings = verifying.full(environment, again=request.command("install"))
        step.say(f"{sum(len(built.files) for built in environment.receipt.built)} built files")
        step.failed = verdict_of(findings) == "fail"
    verdict = verdict_of(findings)
    document = {
        **opening(findings, console),
        "environment": environment.to_json(),
    }
    return Outcome(
        document=document,
        text=f"{verdict}  {environment.path}",
        exit_code=InstallError.exit_code if verdict == "fail" else 0,
    )


def _doctor(selection: Selection, console: Console) -> tuple[Finding, ...]:
    findings = selection.doctor()
    telling.say_machine(console, selection.facts)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise DoctorError(
            code=errors[0].code,
            message=errors[0].message if len(errors) == 1 else f"{len(errors)} faults of this machine",
            findings=findings,
        )
    for finding in findings:
        console.finding(finding)
    return findings


def _patch_remarks(planned: Planned, console: Console) -> tuple[Finding, ...]:
    """Return a warning for each patch topic that is not written for a locked version, or that waives a contract."""
    found = tuple(
        finding
        for step in planned.plan.steps
        if step.locked and (series := planned.series.get(step.package))
        for finding in series.remarks(step.locked.version)
        if finding.severity is Severity.WARNING
    )
    for finding in found:
        console.finding(finding)
    return found


def _chosen(request: Request, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps that were asked for, with those that they cannot be built without; their wheels are read."""
    wanted = request.words("packages") or tuple(step.package for step in steps)
    near = tuple(_looked_at(step, request) for step in plans.needed(steps, wanted, of_hits=True))
    return plans.needed(near, wanted)


def _sandbox_remarks(steps: Sequence[Step], wheels: Sequence[StoredWheel], console: Console) -> tuple[Finding, ...]:
    """Return what could not be had to keep the builds of this run to themselves, once for all of them."""
    built = [wheel.provenance.get("sandbox") for step, wheel in zip(steps, wheels, strict=True) if step.state == "miss"]
    found = isolation.judge(weakest(held)) if (held := _isolations(built)) else ()
    for finding in found:
        console.finding(finding)
    return found


def _isolations(documents: Sequence[object]) -> list[Isolation]:
    return [Isolation.from_words(document) for document in documents if isinstance(document, dict)]


def _expected(steps: Sequence[Step], request: Request, planned: Planned) -> tuple[str, ...]:
    """Return the names of the steps that a build is going to take."""
    selection = planned.selection
    fetches = [f"fetch {step.package}" for step in steps if step.state == "miss" and step.source.kind != "path"]
    fetches += [TOOLKIT] if toolkit_for([step for step in steps if step.state == "miss"], planned) else []
    if request.words("packages"):
        return (*fetches, *(f"build {step.package}" for step in steps))
    packages = [step.package for step in steps]
    rest = telling.expected(packages, selection.environment_name, selection.environment.smoke_profile)
    return (*fetches, *rest)


def _current(planned: Planned, request: Request, *, check: installs.Check = verifying.quick) -> Environment | None:
    folder = request.workspace.environments / planned.plan.environment_key
    return installs.current_environment(folder, planned.selection.environment_name, check=check)


def _looked_at(step: Step, request: Request) -> Step:
    """Return a step as one to build when its wheel in the store is not the one that was built, which is dropped."""
    if step.state == "hit" and store.drop_damaged(request.workspace, step.key):
        return replace(step, state="miss", why=DAMAGED)
    return step


def _install(
    planned: Planned,
    wheels: Sequence[StoredWheel],
    request: Request,
    record: RunRecord,
    console: Console,
    *,
    current: Environment | None = None,
    check: installs.Check | None = None,
) -> Environment:
    """Return the current environment, or the one that ``check`` finds unchanged, else make it."""
    name = planned.selection.environment_name
    with console.step(f"install {name}") as step:
        if current or (check and (current := _current(planned, request, check=check))):
            step.say(telling.UNCHANGED)
            return current
        if damaged := [finding for wheel in wheels for finding in store.verify(wheel)]:
            raise InstallError(
                code=damaged[0].code,
                message=damaged[0].message,
                where=damaged[0].where,
                findings=tuple(replace(finding, hint=request.command("build")) for finding in damaged),
            )
        environment = installs.install(
            planned.plan,
            wheels,
            name=name,
            interpreter=planned.python.interpreter,
            workspace=request.workspace,
            locations=package_index.read(),
            offline=request.offline,
            log=record.log("environment", "install"),
            progress=step.progress,
            check=check or verifying.quick,
        )
        count = len(environment.receipt.requirements)
        step.say(f"torch {environment.receipt.torch.version} and {count} distributions")
    return environment
