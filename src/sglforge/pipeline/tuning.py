"""The verb that measures where speculation stops paying, and writes a profile with that threshold."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from sglforge.base.console import Console
from sglforge.base.files import write_json
from sglforge.base.runrecord import RunRecord
from sglforge.base.toml import Document
from sglforge.config.derived import derived
from sglforge.config.model import NAME, PATTERNS, Profile
from sglforge.config.override import override
from sglforge.config.parse import validate
from sglforge.errors import ConfigError, Finding, RenderError, Severity, SmokeError
from sglforge.host.facts import HostFacts
from sglforge.launch.render import render_bash
from sglforge.launch.threshold_rules import DEFAULT_MAX_RUNNING
from sglforge.pipeline import serving
from sglforge.pipeline.outputs import require_place, write_output
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.running import start_run
from sglforge.pipeline.select import Selection, select
from sglforge.provision.receipt import Environment
from sglforge.smoke.bench import Bench
from sglforge.smoke.curves import svg
from sglforge.smoke.measure import REPEATS, Figure
from sglforge.smoke.subject import of_profile
from sglforge.smoke.sweep import Plan, Sweep, sweep, too_noisy, unspeculated
from sglforge.smoke.tuning import Level, Recommendation, decide
from sglforge.smoke.verdict import Scope

KEY = "speculation.disable-above-batch"
_STOP_GRACE_S = 20.0
_SCOPES = {
    "cpu-logic": "cpu-logic: the numbers are this machine's; a threshold for a GPU must be measured on it",
    "gpu": "gpu: the numbers are this machine's, for this model and for texts like those that were asked for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is tuned, where, and where results go."""

    request: Request
    selection: Selection
    environment: Environment
    profile: Profile
    plan: Plan
    record: RunRecord

    @property
    def output(self) -> Path:
        """The file of the new profile."""
        return self.request.option("output", Path) or self.record.folder / f"{self.profile.name}-tuned.toml"

    @property
    def figures(self) -> Path:
        """The file of the raw figures."""
        return self.record.folder / "tune.json"

    @property
    def scope(self) -> Scope:
        """What the figures are about."""
        return "cpu-logic" if self.selection.target.kind == "cpu" else "gpu"

    def with_threshold(self, threshold: int) -> Profile:
        """Return the profile under the name of the new file."""
        return override(self.profile, [f"name={self.output.stem}", f"{KEY}={threshold}"])

    def refusals(self, threshold: int) -> tuple[Finding, ...]:
        """Return why the installed SGLang cannot be started with a threshold; nothing where it can."""
        tuned = self.with_threshold(threshold)
        try:
            render_bash(
                tuned,
                environment=self.environment,
                catalog_root=self.request.catalog_root,
                tree=serving.served_tree(self.request, tuned, self.environment),
                folder=self.output.parent,
            )
        except RenderError as error:
            return tuple(replace(finding, severity=Severity.WARNING) for finding in error.as_findings())
        return ()


def tune(request: Request, console: Console) -> Outcome:
    """Measure a profile with and without speculation at several concurrencies, and recommend its threshold.

    Raises ConfigError ``nothing-to-tune``, ``usage``, ``concurrency-too-high``, ``prompts-unreadable`` and
    ``output-not-written``; what `serving.installed` raises; RenderError for a profile that cannot be rendered.
    """
    selection = select(request, console)
    profile = serving.chosen_profile(request, selection)
    if profile.speculation is None:
        raise ConfigError(
            code="nothing-to-tune",
            message=f"profile {profile.name} does not speculate",
            hint="name a profile with a [speculation] section",
        )
    plan, picture = _plan(request, profile), request.option("svg", Path)
    _require_outputs(request.option("output", Path), picture)
    environment = serving.installed(request, selection)
    task = _Task(
        request=request,
        selection=selection,
        environment=environment,
        profile=override(profile, [f"{KEY}="]),
        plan=plan,
        record=start_run(request, console),
    )
    for finding in task.refusals(plan.concurrency[0]):
        console.line(f"no threshold could be set here ({finding.message}); what is measured is shown all the same")
    with serving.reserved(environment, request, console):
        found = _swept(task, console)
    return _concluded(task, found, picture, console)


def _swept(task: _Task, console: Console) -> Sweep:
    with console.step(f"tune {task.profile.name}") as step:
        found = sweep(
            Bench(
                profile=task.profile,
                subject=of_profile(task.profile, task.scope),
                target=task.selection.target,
                environment=task.environment,
                catalog_root=task.request.catalog_root,
                tree=None,
                record=task.record,
                noise=None,
                progress=lambda note: step.progress(note=note),
                stop_grace_s=_STOP_GRACE_S,
                step="tune",
            ),
            task.plan,
        )
        step.say(f"{len(found.points)} waves at {len(found.concurrency)} levels")
        step.failed = found.failed
    return found


def _concluded(task: _Task, found: Sweep, picture: Path | None, console: Console) -> Outcome:
    """Keep the figures, decide, write what is to be written, and say it."""
    points = [point.to_json() for point in found.points]
    write_json(task.figures, {"schema": 1, "profile": task.profile.name, "waves": points})
    levels = found.levels()
    advice = decide(levels, found.graphs) if levels and not found.failed else None
    refused = task.refusals(advice.threshold) if advice and advice.threshold else ()
    threshold = None if refused or advice is None else advice.threshold
    written = _write_profile(task, threshold, levels, found)
    pictures = _draw(task, levels, picture, threshold)
    findings = [*found.findings, *unspeculated(found), *too_noisy(levels), *refused]
    recommendation = {
        "kind": "refused" if refused else advice.kind if advice else "none",
        "threshold": threshold,
        "sentence": _sentence(advice, refused=bool(refused), failed=found.failed),
    }
    document = {
        **opening(findings, console),
        **_measured(task, found, levels),
        "recommendation": recommendation,
        "profile_file": str(written) if written else None,
        "pictures": [str(path) for path in pictures],
        "run": task.record.id,
    }
    task.record.write({"schema": 1, "verb": "tune", "argv": list(task.request.argv), "result": document})
    return Outcome(
        document=document,
        text="\n".join(
            [
                *_table(levels, found),
                str(recommendation["sentence"]),
                *_next_steps(task, threshold, written),
                f"scope {_SCOPES[task.scope]}",
            ]
        ),
        exit_code=SmokeError.exit_code if found.failed else 0,
    )


def _measured(task: _Task, found: Sweep, levels: Sequence[Level]) -> dict[str, object]:
    """Return what was measured where, as a part of the document."""
    return {
        "profile": task.profile.name,
        "scope": task.scope,
        "machine": _machine(task.selection.facts),
        "sglang": found.sglang,
        "environment": task.environment.name,
        "receipt": task.environment.receipt_sha256,
        "levels": [_level_json(level, found) for level in levels],
        "captured": None if found.graphs is None else sorted(found.graphs.sizes),
        "figures": str(task.figures),
    }


def _plan(request: Request, profile: Profile) -> Plan:
    """Return what to measure.

    Raises ConfigError ``usage``, ``concurrency-too-high``, ``prompts-unreadable``.
    """
    told = profile.flags.get("max-running-requests")
    limit = told if isinstance(told, int) else DEFAULT_MAX_RUNNING
    words = request.option("concurrency", str)
    counts = _counts(words) if words else tuple(takewhile(lambda count: count <= limit, _powers()))
    if counts[-1] > limit:
        raise ConfigError(
            code="concurrency-too-high",
            message=f"{counts[-1]} requests at once would queue: max-running-requests "
            + (f"is {limit}" if limit == told else f"is not set, and the server takes {limit}"),
            hint=f"--set flags.max-running-requests={counts[-1] + 1}, or leave the level out",
        )
    repeats = request.option("repeats", int)
    if repeats is not None and repeats < 2:
        raise ConfigError(code="usage", message=f"--repeats {repeats}: one measurement has no noise", hint="2 or more")
    prompts = request.option("prompts", Path)
    return Plan(concurrency=counts, repeats=repeats or REPEATS, prompts=_prompts(prompts) if prompts else None)


def _counts(words: str) -> tuple[int, ...]:
    parts = [part.strip() for part in words.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) < 100_000 for part in parts):
        raise ConfigError(
            code="usage", message=f"--concurrency {words!r} is no list of numbers above 0", hint="--concurrency 1,2,4,8"
        )
    return tuple(sorted({int(part) for part in parts}))


def _powers() -> Sequence[int]:
    return [2**power for power in range(12)]


def _prompts(path: Path) -> tuple[str, ...]:
    """Return the prompts of a file, one a line.

    Raises ConfigError ``prompts-unreadable``.
    """
    try:
        prompts = tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        why = "" if prompts else "it holds no prompt"
    except (OSError, UnicodeDecodeError) as error:
        prompts, why = (), str(error)
    if why:
        raise ConfigError(
            code="prompts-unreadable",
            message=f"cannot take prompts from {path}: {why}",
            where=str(path),
            hint="write one prompt a line, as UTF-8",
        )
    return prompts


def _require_outputs(output: Path | None, picture: Path | None) -> None:
    """Refuse files that cannot be written, before a server is started.

    Raises ConfigError ``output-not-written`` and ``usage``.
    """
    for path in (output, picture):
        if path:
            require_place(path)
    if output and (output.suffix != ".toml" or not re.fullmatch(NAME, output.stem)):
        raise ConfigError(
            code="usage",
            message=f"-o {output}: a profile is called as its file is, and {output.name!r} cannot be one",
            hint=f"a name of {PATTERNS[NAME]}, and .toml behind it",
        )


def _write_profile(task: _Task, threshold: int | None, levels: Sequence[Level], found: Sweep) -> Path | None:
    """Write the profile with the threshold, if there is one, and return where."""
    if threshold is None:
        return None
    tuned = task.with_threshold(threshold)
    original = task.request.catalog_root / "recipes" / "profiles" / f"{task.profile.name}.toml"
    text = derived(
        original.read_text(encoding="utf-8"),
        tuned.model_dump(mode="json", by_alias=True, exclude_unset=True),
        comments=_comments(task, threshold, levels, found),
    )
    read = validate(Document(path=task.output, data=tomllib.loads(text), text=text), Profile)
    if read != tuned:
        raise AssertionError(f"the profile that was written is not the one that was tuned: {read} instead of {tuned}")
    write_output(task.output, text)
    return task.output


def _comments(task: _Task, threshold: int, levels: Sequence[Level], found: Sweep) -> list[str]:
    """Return when, where and with which figures the threshold was measured."""
    day = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    return [
        f"Written by sglforge tune from profile {task.profile.name}: disable-above-batch = {threshold}.",
        f"Measured on {day}, run {task.record.id}: {_machine(task.selection.facts)}, SGLang {found.sglang}.",
        *(f"  {line}" for line in _table(levels, found)),
        f"Scope {_SCOPES[task.scope]}.",
    ]


def _draw(task: _Task, levels: Sequence[Level], picture: Path | None, threshold: int | None) -> list[Path]:
    """Draw the curves into the run's folder, and where it was asked for."""
    if not levels:
        return []
    drawn = svg(levels, title=f"{task.profile.name}: {_machine(task.selection.facts)}", threshold=threshold)
    paths = [task.record.folder / "tune.svg", *([picture] if picture else [])]
    for path in paths:
        write_output(path, drawn)
    return paths


def _sentence(advice: Recommendation | None, *, refused: bool, failed: bool) -> str:
    if advice is None:
        why = "a server failed" if failed else "no level was measured both with and without speculation"
        return f"no recommendation: {why}"
    return f"measured: {advice.sentence}; but that cannot be set here, see above" if refused else advice.sentence


def _next_steps(task: _Task, threshold: int | None, written: Path | None) -> list[str]:
    if written is None:
        asked = task.request.option("output", Path)
        return [f"{asked} is not written: there is no threshold to set"] if asked else []
    profiles = task.request.catalog_root / "recipes" / "profiles"
    serve = (
        f"nox -s smoke -- {written.stem}"
        if written.absolute().parent == profiles
        else f"nox -s smoke -- {task.profile.name} --set {KEY}={threshold}, or copy it to {profiles}"
    )
    return [f"written {written}", f"prove it with {serve}"]


def _level_json(level: Level, found: Sweep) -> dict[str, object]:
    count = level.concurrency
    accepted = found.accept_length(count)
    return {
        "concurrency": count,
        "outcome": level.outcome,
        "gain": round(level.gain, 3),
        "accept_length": None if accepted is None else round(accepted, 3),
        "speculation": {**level.speculation.to_json(), "ms_per_token": found.latency("profile", count)},
        "plain": {**level.plain.to_json(), "ms_per_token": found.latency("control", count)},
    }


def _table(levels: Sequence[Level], found: Sweep) -> list[str]:
    """Return the figures, columns aligned."""
    if not levels:
        return []
    rows = [("at once", "tok/s with", "without", "gain", "ms/token with", "without", "accept length", "speculation is")]
    for level in levels:
        count, accepted = level.concurrency, found.accept_length(level.concurrency)
        rows.append(
            (
                str(count),
                _rate(level.speculation),
                _rate(level.plain),
                f"{level.gain:.2f}",
                f"{found.latency('profile', count) or 0:.1f}",
                f"{found.latency('control', count) or 0:.1f}",
                "none" if accepted is None else f"{accepted:.2f}",
                level.outcome,
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _rate(figure: Figure) -> str:
    return f"{figure.median:.0f} ({figure.low:.0f}-{figure.high:.0f})"


def _machine(facts: HostFacts) -> str:
    """Return the machine in a few words."""
    gpus = [gpu.name or "a GPU" for gpu in facts.gpus or ()]
    names = [f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus)]
    words = [*(names or ["no GPU"]), f"{facts.cores} cores", f"{facts.ram_gib:.0f} GiB" if facts.ram_gib else ""]
    return ", ".join(word for word in words if word)
