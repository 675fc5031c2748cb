"""The verb ``build``: where nothing has changed since a build that had nothing to do, say what that one said.

What decides a build is compared, not read; what was built, installed and proven is looked at as always. Whatever is not
as it was takes the long way, in `pipeline.building`, which shares the words with this module.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglforge.base import scratch
from sglforge.base.beside import Beside
from sglforge.base.console import Console
from sglforge.base.workspace import Workspace
from sglforge.build import store
from sglforge.build.store import StoredWheel
from sglforge.build.uses import using
from sglforge.errors import SglforgeError
from sglforge.host.facts import HostFacts
from sglforge.host.probe import probe
from sglforge.pipeline import remembering, telling
from sglforge.pipeline.remembering import Remembered
from sglforge.pipeline.request import Outcome, Request
from sglforge.pipeline.running import start_run
from sglforge.provision.receipt import Environment, read_environment
from sglforge.provision.verify import quick
from sglforge.smoke import stored
from sglforge.smoke.stored import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is there, looked at now."""

    facts: HostFacts
    wheels: tuple[StoredWheel, ...]
    environment: Environment
    proof: Proof


def build(request: Request, console: Console) -> Outcome:
    """Build and prove what is missing; where nothing is, cite the proof."""
    start, around = time.monotonic(), remembering.surroundings(request)
    memory = remembering.recall(request.workspace, around) if around else None
    if memory and around and memory.holds(around):
        with using(request.workspace, memory.names):
            if found := _there(request, memory):
                return _said_again(request, console, memory, found, start)
    from sglforge.pipeline import building

    return building.build(request, console, start=start, around=around)


def _there(request: Request, memory: Remembered) -> _Found | None:
    """Look at the machine and at what is built, installed and proven; None where something is not as it was."""
    workspace = request.workspace
    probing = Beside(partial(probe, workspace.root))
    try:
        wheels = [store.lookup(workspace, step["key"]) for step in memory.plan["steps"]]
        proof = stored.read(workspace, memory.proof_key)
        environment = _environment(workspace, memory) if proof and all(wheels) else None
        facts = probing.result()
    except (SglforgeError, OSError):  # the long way says what is wrong
        return None
    if environment is None or proof is None or not memory.holds_on(facts):
        return None
    there = tuple(wheel for wheel in wheels if wheel)
    return _Found(facts=facts, wheels=there, environment=environment, proof=proof)


def _environment(workspace: Workspace, memory: Remembered) -> Environment | None:
    """Return the environment if its name points at it and nothing in it was changed."""
    folder, name = workspace.environments / memory.environment_key, memory.environment_name
    if (workspace.environments / name).readlink() != Path(folder.name):
        return None
    environment = read_environment(folder, name)
    return environment if environment and not quick(environment) else None


def _said_again(request: Request, console: Console, memory: Remembered, found: _Found, start: float) -> Outcome:
    """Say and record what a build that plans anew would."""
    telling.say_stack(console, memory.stack, memory.target, memory.because)
    record = start_run(request, console)
    scratch.sweep(request.workspace)
    telling.say_machine(console, found.facts)
    for finding in memory.findings:
        console.finding(finding)
    plan, name = memory.plan, memory.environment_name
    telling.say_python(console, plan["python"]["minor"], plan["python"]["why"])
    console.expect(telling.expected([step["package"] for step in plan["steps"]], name, memory.profile))
    for step in plan["steps"]:
        console.passed(f"build {step['package']}", step["why"])
    telling.say_unchanged(console, name)
    steps = [telling.described(step, wheel) for step, wheel in zip(plan["steps"], found.wheels, strict=True)]
    document = {**telling.told(memory.findings, plan, steps), "environment": found.environment.to_json()}
    outcome = telling.cited(document, found.environment, memory.profile, found.proof, console)
    head = telling.heading(request, memory.stack, memory.target)
    return telling.finished(console, record, head, outcome, facts=found.facts, start=start)
