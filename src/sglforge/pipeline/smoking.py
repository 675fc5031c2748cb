"""The verb that proves servers, through three doors: our script, an address, a transcript."""

from __future__ import annotations

from pathlib import Path

from sglforge.base.console import Console
from sglforge.base.runrecord import RunRecord
from sglforge.config.load import load_catalog
from sglforge.config.override import override
from sglforge.errors import ConfigError
from sglforge.pipeline import serving
from sglforge.pipeline.comparing import baseline, comparison_lines, speed_lines
from sglforge.pipeline.recorded import read_transcript, transcript_file
from sglforge.pipeline.request import Outcome, Request
from sglforge.pipeline.running import start_run
from sglforge.pipeline.select import select
from sglforge.smoke import attached
from sglforge.smoke import transcript as transcripts
from sglforge.smoke.afterwards import Wanted
from sglforge.smoke.compare import compare
from sglforge.smoke.judging import judge_again
from sglforge.smoke.probes import catalog
from sglforge.smoke.recorded.judge import judge_recording
from sglforge.smoke.verdict import SmokeReport, overall


def smoke(request: Request, console: Console) -> Outcome:
    """Start the profile's server, ask one at an address, or take a transcript; judge."""
    words = request.option("probe", str)
    probes = tuple(name.strip() for name in words.split(",")) if words else None
    catalog.select(probes)  # an unknown name is told before anything is done
    url, file = request.option("url", str), request.option("judge", Path)
    _refuse_together(request, "--url" if url else "--judge" if file else None)
    if url:
        return _ask(url, request, console, probes)
    if file:
        return _judge(file, request, console, probes)
    selection = select(request, console)
    profile = serving.chosen_profile(request, selection)
    console.line(f"profile {profile.name}: {profile.description}")
    environment = serving.installed(request, selection)
    wanted = _wanted(request, profile.name)
    record = start_run(request, console)
    with serving.reserved(environment, request, console):
        report = serving.prove(request, selection, profile, environment, record, console, probes=probes, wanted=wanted)
    return _reported(report, request, record)


def _ask(url: str, request: Request, console: Console, probes: tuple[str, ...] | None) -> Outcome:
    """Ask the server at an address; a profile that is named says what is known about its model."""
    name = request.option("profile", str)
    profile = override(load_catalog(request.catalog_root).profile(name), request.words("set")) if name else None
    address = attached.base_url(url)
    wanted = _wanted(request, address)
    record = start_run(request, console)
    with console.step(f"smoke {address}") as step:
        report = attached.run(
            address,
            record=record,
            expectations=profile.smoke if profile else None,
            model=(profile.served_model_name or profile.model) if profile else None,
            request_timeout_s=profile.request_timeout_s if profile else attached.REQUEST_TIMEOUT_S,
            probes=probes,
            wanted=wanted,
            progress=lambda note: step.progress(note=note),
        )
        passed = sum(result.verdict == "pass" for result in report.probes)
        step.say(f"{report.verdict}, {passed} of {len(report.probes)} probes passed")
        step.failed = serving.exit_code(report.verdict) != 0
    for finding in report.findings:
        console.finding(finding)
    return _reported(report, request, record)


def _reported(report: SmokeReport, request: Request, record: RunRecord) -> Outcome:
    document = {**report.to_json(), "run": record.id}
    record.write({"schema": 1, "verb": "smoke", "argv": list(request.argv), "result": document})
    lines = [serving.report_text(report), *speed_lines(report.speed)]
    lines += comparison_lines(report.comparison) if report.comparison else ()
    return Outcome(document=document, text="\n".join(lines), exit_code=serving.exit_code(report.verdict))


def _wanted(request: Request, profile: str) -> Wanted:
    """Return what to ask after the probes; the baseline is found before a server is started."""
    word = request.option("baseline", str)
    return Wanted(
        measure=request.flag("measure"), baseline=baseline(word, request.workspace, profile) if word else None
    )


def _judge(file: Path, request: Request, console: Console, probes: tuple[str, ...] | None) -> Outcome:
    """Judge a transcript again, or what somebody else has recorded."""
    file = transcript_file(file, request.workspace)
    document = read_transcript(file)
    word = request.option("baseline", str)
    if not transcripts.is_ours(document):
        if word:
            raise ConfigError(
                code="usage",
                message=f"--baseline: {file} was recorded by somebody else, and says too little to be compared",
                hint="judge a transcript of nox -s smoke, or leave --baseline out",
            )
        return _judge_recording(document, file, console)
    transcript = transcripts.transcript_of(document)
    before = baseline(word, request.workspace, transcript.profile) if word else None
    changed = compare(transcript, before.transcript, where=before.where) if before else None
    results = [result for result in judge_again(transcript) if probes is None or result.name in probes]
    compared = changed.findings if changed else ()
    findings = [*(result.finding for result in results if result.finding), *compared]
    for finding in findings:
        console.finding(finding)
    verdict = overall(results, compared)
    lines = [serving.results_text(results, verdict, transcript.subject.scope)]
    return Outcome(
        document={
            "schema": 1,
            "verdict": verdict,
            "findings": [finding.to_json() for finding in findings],
            "profile": transcript.profile,
            "scope": transcript.subject.scope,
            "probes": [result.to_json() for result in results],
            "transcript": str(file),
            **({"baseline": changed.to_json()} if changed else {}),
        },
        text="\n".join([*lines, *(comparison_lines(changed) if changed else ())]),
        exit_code=serving.exit_code(verdict),
    )


def _judge_recording(document: object, file: Path, console: Console) -> Outcome:
    recording = judge_recording(document, where=str(file))
    for finding in recording.findings:
        console.finding(finding)
    return Outcome(
        document=recording.to_json(),
        text=f"{recording.verdict.upper()}  {file}",
        exit_code=serving.exit_code(recording.verdict),
    )


def _refuse_together(request: Request, door: str | None) -> None:
    """Refuse what says nothing beside a door.

    Raises ConfigError ``usage``.
    """
    if door is None:
        return
    given: dict[str, object] = {
        "--stack": request.stack,
        "--target": request.target != "auto",
        "--facts": request.facts_file,
        "--env": request.option("env", str),
        "--events": door == "--judge" and request.options.get("events"),
        "--measure": door == "--judge" and request.flag("measure"),
        "PROFILE": door == "--judge" and request.option("profile", str),
        "--set": request.words("set") and (door == "--judge" or not request.option("profile", str)),
    }
    if wrong := [name for name, value in given.items() if value]:
        raise ConfigError(
            code="usage",
            message=f"{', '.join(wrong)} cannot be said beside {door}",
            hint="smoke --url URL [PROFILE] [--set K=V] [--probe NAME,...] [--measure] [--baseline RUN]"
            if door == "--url"
            else "smoke --judge RUN [--probe NAME,...] [--baseline RUN]",
        )
