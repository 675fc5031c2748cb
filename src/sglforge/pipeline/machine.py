"""Verbs about this machine and what would be built on it."""

from __future__ import annotations

from collections.abc import Mapping

from sglforge.base.console import Console
from sglforge.errors import DoctorError, verdict_of
from sglforge.host import isolation
from sglforge.host.place import judge_place
from sglforge.keys.changes import described
from sglforge.pipeline import sharing
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.select import Planned, select
from sglforge.pipeline.select import plan as make_plan
from sglforge.pipeline.toolkits import look
from sglforge.plan import Estimate, Step

MIB_PER_GIB = 1024


def doctor(request: Request, console: Console) -> Outcome:
    """Probe the machine and judge it against stack and target, and the workspace."""
    selection = select(request, console)
    place = () if request.facts_file else judge_place(request.workspace)
    kept = None if request.facts_file else isolation.probe()
    toolkits = None if request.facts_file else look(selection, request.workspace)
    findings = (
        *selection.doctor(),
        *(toolkits.findings if toolkits else ()),
        *place,
        *(isolation.judge(kept) if kept else ()),
    )
    facts = selection.facts.to_json()
    verdict = verdict_of(findings)
    document = {
        **opening(findings, console),
        **selection.to_json(),
        "facts": facts,
        "sandbox": kept and kept.to_json(),
        "toolkits": toolkits and toolkits.to_json(),
    }
    shown = (
        "cores",
        "memory_gib",
        "ram_gib",
        "cgroup_gib",
        "disk_gib",
        "python",
        "git",
        "uv",
        "gcc",
        "glibc",
        "driver",
    )
    lines = [f"{name:<12}{facts[name]}" for name in shown if facts.get(name) is not None]
    gpus = selection.facts.gpus
    lines.append(f"{'gpus':<12}{'unknown' if gpus is None else ', '.join(str(gpu.name) for gpu in gpus) or 'none'}")
    lines += toolkits.lines() if toolkits else ()
    lines.append(f"verdict     {verdict}")
    return Outcome(
        document=document, text="\n".join(lines), exit_code=DoctorError.exit_code if verdict == "fail" else 0
    )


def plan(request: Request, console: Console) -> Outcome:
    """Show steps, keys, hit or miss and why; never downloads."""
    planned = make_plan(request, select(request, console))
    found = sharing.places(request)
    others = {
        step.package: sharing.elsewhere(step, found, offline=request.offline) for step in planned.plan.steps if found
    }
    text = _text(planned, explain=request.flag("explain"), others=others)
    return Outcome(document={**document(planned), "elsewhere": others}, text=text)


def document(planned: Planned) -> dict[str, object]:
    """Return a plan as a document."""
    return {
        "schema": 1,
        **planned.selection.to_json(),
        "python": {"minor": planned.python.locked.minor, "why": planned.python.why},
        "environment_key": planned.plan.environment_key,
        "waits_for": planned.selection.target.waits_for,
        "toolkit": planned.toolkit and planned.toolkit.to_json(),
        "steps": [
            {
                "package": step.package,
                "source": step.source.kind,
                "key": step.key,
                "state": step.state,
                "why": step.why,
                "local_version": step.local_version,
                "modules": _modules(step),
                "key_parts": dict(step.key_parts),
                "changes": [change.to_json() for change in step.changes],
                "estimate": _estimate(step.estimate) if step.state == "miss" else None,
            }
            for step in planned.plan.steps
        ],
        "estimate": _estimate(planned.plan.estimate),
    }


def _modules(step: Step) -> dict[str, object] | None:
    """Return what is compiled ahead of time into a package; which modules globs stand for, only its build can tell."""
    if (modules := step.modules) is None:
        return None
    return {
        "set": modules.name,
        "names": modules.set.names,
        "claims": dict(modules.set.claims),
        "cpu_minutes": modules.set.cpu_minutes,
    }


def _estimate(took: Estimate) -> dict[str, object]:
    return {"seconds": took.seconds, "peak_rss_mib": took.peak_rss_mib}


def _text(planned: Planned, *, explain: bool, others: Mapping[str, Mapping[str, list[str]]]) -> str:
    lines = [f"python {planned.python.locked.minor} ({planned.python.why})"]
    if waits_for := planned.selection.target.waits_for:
        lines.append(f"the whole of this target cannot be built yet; it waits for {waits_for}")
    if planned.toolkit:
        lines.append(planned.toolkit.line)
    for step in planned.plan.steps:
        took = f"; it took {_took(step.estimate)} the last time" if step.estimate != Estimate() else ""
        lines.append(f"{step.state:<5} {step.package:<16} {step.key[:12]}  {step.why}{took}")
        if step.modules:
            takes = f", {step.modules.takes}" if step.state == "miss" and step.modules.takes else ""
            lines.append(f"      {step.modules.describe()}{takes}")
        other = others.get(step.package, {})
        lines += [f"      is in {name}: build copies it" for name in other.get("in", ())]
        lines += [f"      may be in {name}: a plan does not ask" for name in other.get("perhaps_in", ())]
        if explain:
            # of a package that was never built nothing changed: show all that decides
            shown = [change.text for change in step.changes] or described(step.key_parts)
            lines.extend(f"        {line}" for line in shown)
    lines.append(f"environment {planned.plan.environment_key[:12]}")
    if misses := planned.plan.misses:
        took = _took(planned.plan.estimate)
        lines.append(f"to build: {len(misses)} of {len(planned.plan.steps)}; the last time it took {took}")
    return "\n".join(lines)


def _took(took: Estimate) -> str:
    """Say time and memory; what nobody measured is unknown, never guessed."""
    seconds = f"{took.seconds:.0f} s" if took.seconds is not None else "unknown time"
    if took.peak_rss_mib is None:
        return f"{seconds} and unknown memory"
    small = took.peak_rss_mib < MIB_PER_GIB
    return f"{seconds} and " + (
        f"{took.peak_rss_mib:.0f} MiB" if small else f"{took.peak_rss_mib / MIB_PER_GIB:.1f} GiB"
    )
