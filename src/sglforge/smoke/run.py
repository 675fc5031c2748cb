"""Run a smoke test on a server of ours: start the profile's, ask what the probes ask, judge, stop, report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import sglforge
from sglforge.base.ids import Sha256
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import Profile, Target
from sglforge.errors import Finding, Severity, SmokeError
from sglforge.launch.options import server_options
from sglforge.launch.render import ServingEnvironment
from sglforge.launch.threshold import ServedTree
from sglforge.smoke import serverlog
from sglforge.smoke.afterwards import Afterwards, Wanted, ask_afterwards, compared
from sglforge.smoke.bench import INFO_TIMEOUT_S, Bench
from sglforge.smoke.conditions import Conditions, hashed, weights_digest
from sglforge.smoke.examine import Examination, examine
from sglforge.smoke.interview import server_info, silent
from sglforge.smoke.measure import Speed
from sglforge.smoke.probes.catalog import select
from sglforge.smoke.probes.lifecycle import STARTED, STOPS_CLEAN
from sglforge.smoke.probes.model import Probe, missing
from sglforge.smoke.server import Progress, Stopped
from sglforge.smoke.subject import of_profile
from sglforge.smoke.transcript import Exchange, Observed, Transcript
from sglforge.smoke.verdict import SmokeReport


def run(
    profile: Profile,
    *,
    environment: ServingEnvironment,
    catalog_root: Path,
    target: Target,
    record: RunRecord,
    tree: ServedTree | None = None,
    noise: float | None = None,
    probes: Sequence[str] | None = None,
    wanted: Wanted | None = None,
    host: Mapping[str, str] | None = None,
    progress: Progress = lambda _note: None,
    stop_grace_s: float = 20.0,
) -> SmokeReport:
    """Start the server of a profile, probe it, stop it and return what was proven.

    A profile that speculates gets a control server first, without speculation: what that one says, its own
    must say too. The port is a free one unless the profile sets ``port`` itself. Scripts, logs and the
    transcript stay in the run record; the servers are ended whatever happens, a KeyboardInterrupt too.

    Args:
        profile: What to launch and what to expect of its model.
        environment: Where SGLang is installed.
        catalog_root: The folder with templates and models.
        target: Decides the scope of the verdict.
        record: Where scripts, logs and the transcript go.
        tree: What is installed; needed only by a profile with a speculation threshold.
        noise: By how much equal scores differed in this environment before, in nats.
        probes: Names of the probes to run; None means all.
        wanted: What to ask after the probes, for a comparison with another run; None means nothing.
        host: Facts of this machine, for such a comparison.
        progress: Is told what happens now.
        stop_grace_s: Seconds that a server may take to end after SIGTERM.

    Raises SmokeError ``port-taken``, RenderError for a profile that cannot be rendered, ConfigError
    ``unknown-probe``.
    """
    start = time.monotonic()
    bench = Bench(
        profile=profile,
        subject=of_profile(profile, "cpu-logic" if target.kind == "cpu" else "gpu"),
        target=target,
        environment=environment,
        catalog_root=catalog_root,
        tree=tree,
        record=record,
        noise=noise,
        progress=progress,
        stop_grace_s=stop_grace_s,
    )
    chosen = select(probes)
    bench.render("profile", profile.port)  # what cannot be rendered is said before anything starts
    control = _run_control(bench, chosen)
    examination = Examination(record=record)
    wanted = wanted or Wanted()
    own = _run_profile(bench, chosen, control, examination, wanted)
    log, steps = bench.log("profile"), record.folder / "transcript.json"
    script = bench.render("profile", profile.port)
    transcript = Transcript(
        profile=profile.name,
        subject=next((seen.subject for seen in examination.observed.values()), bench.subject),
        observed=examination.observed,
        skipped=examination.skipped,
        log=serverlog.read(log),
        argv=own.argv or script.argv,
        conditions=Conditions(
            sglang=own.sglang,
            receipt=environment.receipt_sha256,
            weights=_weights(bench),
            host=host or {},
            variables=hashed(script.env),
            seconds_to_ready=own.seconds_to_ready,
            speed=own.afterwards.speed or Speed(),
        ).to_json(),
    )
    transcript.write(steps)
    return SmokeReport(
        profile=profile.name,
        scope=bench.subject.scope,
        probes=tuple(examination.results),
        remarks=control.remarks,
        seconds=time.monotonic() - start,
        seconds_to_ready=own.seconds_to_ready,
        versions={
            "sglforge": sglforge.__version__,
            "sglang": own.sglang,
            "environment": environment.name,
            "receipt": environment.receipt_sha256,
        },
        log=log,
        transcript=steps,
        observed=examination.observed,
        comparison=compared(transcript, wanted, own.afterwards),
        speed=own.afterwards.speed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Control:
    """What the control server said, and how it ended."""

    exchanges: tuple[Exchange, ...] = ()
    stops: tuple[tuple[str, Stopped], ...] = ()
    remarks: tuple[Finding, ...] = ()

    def answered(self, probe: Probe) -> tuple[Exchange, ...]:
        return tuple(exchange for exchange in self.exchanges if exchange.probe == probe.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """How the profile's own server was started."""

    argv: tuple[str, ...] = ()
    seconds_to_ready: float | None = None
    sglang: str | None = None
    afterwards: Afterwards = field(default_factory=Afterwards)


def _run_control(bench: Bench, chosen: Sequence[Probe]) -> _Control:
    """Ask the profile's server without speculation; nothing to ask means no server."""
    subject = bench.subject
    asking = [
        (probe, waves)
        for probe in chosen
        if subject.controlled and missing(subject, probe.needs) is None and (waves := probe.control_requests(subject))
    ]
    if not asking:
        return _Control()
    exchanges: list[Exchange] = []
    try:
        with bench.serving("control") as server:
            interview = bench.interview("control", server, subject)
            for probe, waves in asking:
                bench.progress(f"control server: {probe.name}")
                exchanges += interview.ask(probe, waves)
                if silent(exchanges):
                    break
            stopped = server.stop()
    except SmokeError as error:
        if error.code == "port-taken":
            raise
        return _Control(remarks=tuple(_of_control(finding) for finding in error.as_findings()))
    return _Control(exchanges=tuple(exchanges), stops=(("control", stopped),))


def _run_profile(bench: Bench, chosen: Sequence[Probe], control: _Control, into: Examination, wanted: Wanted) -> _Own:
    """Run the chosen probes on the profile's server, and ask what is wanted besides."""
    try:
        with bench.serving("profile") as server:
            info = server_info(lambda request: server.ask(request, timeout_s=INFO_TIMEOUT_S))
            version = info.get("version")
            interview = bench.interview("profile", server, bench.subject.informed(info))
            examine(
                interview,
                [probe for probe in chosen if probe is not STOPS_CLEAN],
                into,
                seconds_to_ready=server.seconds_to_ready,
                control=control.answered,
            )
            afterwards = ask_afterwards(interview, into.observed, wanted)
            bench.progress("stopping")
            stops = (*control.stops, ("profile", server.stop()))
    except SmokeError as error:
        if error.code == "port-taken":
            raise
        _not_started(bench, chosen, error, into)
        return _Own()
    if STOPS_CLEAN in chosen:
        stopped = Observed(subject=bench.subject, stops=stops)
        into.judge(STOPS_CLEAN, stopped, sum(stopped.seconds for _, stopped in stops))
    return _Own(
        argv=server.argv,
        seconds_to_ready=server.seconds_to_ready,
        sglang=version if isinstance(version, str) else None,
        afterwards=afterwards,
    )


def _weights(bench: Bench) -> Sha256 | None:
    """Return a hash of the model files, None where some of them are a hub's."""
    profile = bench.profile
    folders = server_options(profile, catalog_root=bench.catalog_root).model_folders
    models = [profile.model, profile.speculation and profile.speculation.draft_model]
    return weights_digest(folders) if len(folders) == sum(map(bool, models)) else None


def _not_started(bench: Bench, chosen: Sequence[Probe], error: SmokeError, into: Examination) -> None:
    """Add the results when there was no server to probe: one failure, whatever was chosen."""
    finding = error.as_findings()[0]
    fault = (finding.code, finding.message, finding.hint)
    into.judge(STARTED, Observed(subject=bench.subject, log=serverlog.read(bench.log("profile")), fault=fault), 0.0)
    for probe in chosen:
        if probe is not STARTED:
            into.skip(probe, bench.subject, "the server did not start")


def _of_control(finding: Finding) -> Finding:
    """Return a fault of the control server as a remark: the profile's own may still be fine."""
    return replace(
        finding,
        severity=Severity.WARNING,
        subject="control server",
        message=f"the control server, the same profile without speculation: {finding.message}",
    )
