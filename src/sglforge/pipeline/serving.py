"""Render launch scripts, and prove servers that they start."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sglforge.base.console import Console
from sglforge.base.exclusive import exclusive
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import Profile
from sglforge.config.override import override
from sglforge.errors import ConfigError, InstallError, SmokeError, Verdict
from sglforge.pipeline.request import Outcome, Request
from sglforge.pipeline.select import Selection, select
from sglforge.provision.install import environment_lock
from sglforge.provision.receipt import Environment, find_environment
from sglforge.provision.verify import quick
from sglforge.smoke import stored

if TYPE_CHECKING:
    from sglforge.launch.threshold import ServedTree
    from sglforge.smoke.afterwards import Wanted
    from sglforge.smoke.verdict import ProbeResult, Scope, SmokeReport


def render(request: Request, console: Console) -> Outcome:
    """Render a profile to a launch script, on stdout or into a folder."""
    from sglforge.launch.render import render_bash

    selection = select(request, console)
    profile = chosen_profile(request, selection)
    form = request.option("format", str)
    if form != "bash":
        raise ConfigError(
            code="format-unknown",
            message=f"there is no format `{form}`",
            hint="known: bash; more are on the roadmap",
        )
    environment, folder = installed(request, selection), request.option("output", Path)
    script = render_bash(
        profile,
        environment=environment,
        catalog_root=request.catalog_root,
        tree=served_tree(request, profile, environment),
        folder=folder,
    )
    text, path = script.text, None
    if folder:
        path = script.write(folder)
        text = str(path)
    document = {
        "schema": 1,
        "profile": profile.name,
        "format": form,
        "path": str(path) if path else None,
        "script": script.text,
        "argv": list(script.argv),
        "environment": dict(script.env),
        "rules": [rule.to_json() for rule in script.rules],
    }
    return Outcome(document=document, text=text)


def prove(
    request: Request,
    selection: Selection,
    profile: Profile,
    environment: Environment,
    record: RunRecord,
    console: Console,
    *,
    probes: tuple[str, ...] | None = None,
    wanted: Wanted | None = None,
) -> SmokeReport:
    """Run smoke as one step of the console, show its findings, and store the verdict of a whole run.

    What is stored says nothing of a baseline: a comparison is no property of the server.
    """
    from sglforge.smoke import noise
    from sglforge.smoke import run as smoke_run

    with console.step(f"smoke {profile.name}") as step:
        report = smoke_run.run(
            profile,
            environment=environment,
            catalog_root=request.catalog_root,
            target=selection.target,
            tree=served_tree(request, profile, environment),
            record=record,
            noise=noise.known(request.workspace, environment.receipt_sha256),
            probes=probes,
            wanted=wanted,
            host=selection.facts.fingerprint(),
            progress=lambda note: step.progress(note=note),
        )
        noise.remember(request.workspace, environment.receipt_sha256, report.observed.values())
        passed = sum(result.verdict == "pass" for result in report.probes)
        step.say(f"{report.verdict}, {passed} of {len(report.probes)} probes passed")
        step.failed = exit_code(report.verdict) != 0
    for finding in report.findings:
        console.finding(finding)
    if probes is None:
        proof = replace(report, comparison=None)
        stored.write(request.workspace, proof_key(request, selection, profile, environment), proof, run=record.id)
    return report


def reserved(environment: Environment, request: Request, console: Console) -> AbstractContextManager[None]:
    """Keep others from making an environment again, or from proving it, while a server runs in it; wait for them."""
    lock = environment_lock(request.workspace, environment.receipt.environment_key)
    return exclusive(lock, waiting=lambda note: console.line(f"  ..  {note}"))


def proof_key(request: Request, selection: Selection, profile: Profile, environment: Environment) -> str:
    """Return what a verdict is stored under: receipt, profile, template and models, and this machine."""
    return stored.key(
        profile,
        receipt_sha256=environment.receipt_sha256,
        catalog_root=request.catalog_root,
        host=selection.facts.fingerprint(),
    )


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of a verdict: only a pass, with or without remarks, is 0."""
    return 0 if verdict in {"pass", "warn"} else SmokeError.exit_code


def report_text(report: SmokeReport) -> str:
    """Return the summary for people: one line per probe, the verdict, its scope."""
    return results_text(report.probes, report.verdict, report.scope)


def results_text(results: Sequence[ProbeResult], verdict: Verdict, scope: Scope) -> str:
    """Return the summary of what probes found."""
    from sglforge.smoke.verdict import NOT_PROVEN

    lines = [f"{one.verdict:<13} {one.name:<17} {one.message}  ({one.seconds:.1f} s)" for one in results]
    lines.append(f"{verdict.upper()}  scope {scope}; not proven: {', '.join(NOT_PROVEN[scope])}")
    return "\n".join(lines)


def installed(request: Request, selection: Selection, *, check: bool = True) -> Environment:
    """Return the environment that was asked for, unchanged by size, time and inode of what was built.

    Raises InstallError ``environment-not-installed``, or what :func:`sglforge.provision.verify.quick` finds.
    """
    name = selection.environment_name
    try:
        environment = find_environment(request.workspace, name)
    except InstallError as error:
        raise replace(error, hint=f"{request.command('install')} makes it again") from error
    if environment is None:
        raise InstallError(
            code="environment-not-installed",
            message=f"there is no environment {name} in {request.workspace.environments}",
            hint=request.command("install" if request.option("env", str) else "build"),
        )
    if check and (findings := quick(environment, again=request.command("install"))):
        raise InstallError(
            code=findings[0].code,
            message=findings[0].message,
            hint=f"{request.command('install')} makes it again; {request.command('verify')} lists every difference",
            findings=findings,
        )
    return environment


def served_tree(request: Request, profile: Profile, environment: Environment) -> ServedTree | None:
    """Return version and options of the installed SGLang where a profile needs them: for a speculation threshold.

    Raises RenderError for options that cannot be read, PatchError ``tree-version-unknown``.
    """
    if profile.speculation is None or profile.speculation.disable_above_batch is None:
        return None
    from sglforge.launch.threshold import ServedTree
    from sglforge.trees.arguments.read import read_arguments
    from sglforge.trees.version import tree_version

    tree = environment.site_packages
    schema = read_arguments(tree, workspace=request.workspace)
    return ServedTree(version=tree_version(tree), options=schema.by_option.keys())


def default_profile(selection: Selection) -> Profile:
    """Return the profile that proves the selected environment.

    Raises ConfigError ``no-smoke-profile``.
    """
    name = selection.environment.smoke_profile
    if name is None:
        raise ConfigError(
            code="no-smoke-profile",
            message=f"stack {selection.stack.name} names no smoke profile for target {selection.target.name}",
            hint=f"name one: {', '.join(sorted(selection.catalog.profiles)) or 'the catalog has no profile yet'}",
        )
    return selection.catalog.profile(name)


def chosen_profile(request: Request, selection: Selection) -> Profile:
    """Return the profile that was asked for, or the default one, with the values that were set.

    Raises ConfigError ``unknown-profile``, ``no-smoke-profile`` and ``override-invalid``.
    """
    name = request.option("profile", str)
    profile = selection.catalog.profile(name) if name else default_profile(selection)
    return override(profile, request.words("set"))
