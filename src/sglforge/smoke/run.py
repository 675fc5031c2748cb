"""Run a smoke test: start the profile's server, ask what the probes ask, judge, stop, report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import sglforge
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import Profile, Target
from sglforge.errors import Finding, Severity, SmokeError
from sglforge.launch.render import LaunchScript, ServingEnvironment, render_bash
from sglforge.launch.threshold import ServedTree
from sglforge.smoke import serverlog, transcript
from sglforge.smoke.client import Answer, Request
from sglforge.smoke.probes.catalog import select
from sglforge.smoke.probes.lifecycle import ALIVE_AFTER, STARTED, STOPS_CLEAN
from sglforge.smoke.probes.model import Observed, Probe, Subject, Waves, judge
from sglforge.smoke.server import Patience, Progress, Server, Stopped, serving
from sglforge.smoke.transcript import Exchange, Role
from sglforge.smoke.verdict import ProbeResult, SmokeReport

_SERVER_INFO_TIMEOUT_S = 10.0
_SETTLE_S = 1.0


def run(
    profile: Profile,
    *,
    environment: ServingEnvironment,
    catalog_root: Path,
    target: Target,
    record: RunRecord,
    tree: ServedTree | None = None,
    probes: Sequence[str] | None = None,
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
        probes: Names of the probes to run; None means all.
        progress: Is told what happens now.
        stop_grace_s: Seconds that a server may take to end after SIGTERM.

    Raises SmokeError ``port-taken``, RenderError for a profile that cannot be rendered, ConfigError
    ``unknown-probe``.
    """
    start = time.monotonic()
    bench = _Bench(
        subject=Subject(profile=profile, scope="cpu-logic" if target.kind == "cpu" else "gpu"),
        environment=environment,
        catalog_root=catalog_root,
        tree=tree,
        record=record,
        progress=progress,
        stop_grace_s=stop_grace_s,
    )
    chosen = select(probes)
    bench.render("profile", profile.port)  # what cannot be rendered is said before anything starts
    control = _run_control(bench, chosen)
    own = _run_profile(bench, chosen, control)
    log, steps = bench.log("profile"), record.folder / "transcript.json"
    transcript.write(
        steps,
        steps=(*control.exchanges, *own.exchanges),
        log=serverlog.read(log),
        argv=own.argv or bench.render("profile", profile.port).argv,
    )
    return SmokeReport(
        profile=profile.name,
        scope=bench.subject.scope,
        probes=own.results,
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
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What stays the same during a smoke test."""

    subject: Subject
    environment: ServingEnvironment
    catalog_root: Path
    tree: ServedTree | None
    record: RunRecord
    progress: Progress
    stop_grace_s: float

    def log(self, role: Role) -> Path:
        return self.record.log("smoke", role)

    def render(self, role: Role, port: int) -> LaunchScript:
        return render_bash(
            self.subject.profile,
            environment=self.environment,
            catalog_root=self.catalog_root,
            port=port,
            speculation=role == "profile",
            tree=self.tree,
            folder=self.record.folder,
        )

    def serving(self, role: Role) -> AbstractContextManager[Server]:
        profile = self.subject.profile
        return serving(
            lambda port: self.render(role, port),
            folder=self.record.folder,
            log=self.log(role),
            pinned_port=profile.port if "port" in profile.model_fields_set else None,
            patience=Patience(
                start_s=profile.start_timeout_s, request_s=profile.request_timeout_s, stop_s=self.stop_grace_s
            ),
            progress=lambda note: self.progress(f"{role} server: {note}"),
        )

    def ask(self, server: Server, role: Role, probe: Probe, waves: Waves) -> tuple[Exchange, ...]:
        """Send the waves of a probe, one after the other, until an answer is missing."""
        self.progress(f"{role} server: {probe.name}")
        asked: list[Exchange] = []
        for wave in waves:
            answers = _send(server, wave, self.subject.profile.request_timeout_s)
            asked += [
                Exchange(probe=probe.name, server=role, request=request, answer=answer)
                for request, answer in zip(wave, answers, strict=True)
            ]
            if _silent(asked):
                break
        return tuple(asked)

    def result(self, probe: Probe, observed: Observed, seconds: float) -> ProbeResult:
        """Judge what was observed."""
        judgement = judge(probe, observed)
        finding = None
        if judgement.verdict in {"fail", "inconclusive"}:
            failed = judgement.verdict == "fail"
            finding = Finding(
                code=judgement.code if failed else "probe-inconclusive",
                severity=Severity.ERROR if failed else Severity.WARNING,
                subject=probe.name,
                message=judgement.message,
                hint=judgement.hint,
                detail=serverlog.tail(observed.log) if observed.health else (),
            )
        self.record.event("probe", name=probe.name, verdict=judgement.verdict, message=judgement.message)
        return ProbeResult(
            name=probe.name,
            proves=probe.proves,
            verdict=judgement.verdict,
            message=judgement.message,
            seconds=seconds,
            scope=self.subject.scope,
            evidence=judgement.evidence,
            finding=finding,
        )

    def skipped(self, probe: Probe, why: str) -> ProbeResult:
        self.record.event("probe", name=probe.name, verdict="skipped", message=why)
        return ProbeResult(
            name=probe.name,
            proves=probe.proves,
            verdict="skipped",
            message=why,
            seconds=0.0,
            scope=self.subject.scope,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Control:
    """What the control server said, and how it ended."""

    exchanges: tuple[Exchange, ...] = ()
    stops: tuple[tuple[str, Stopped], ...] = ()
    remarks: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """What the profile's own server said, and what that was worth."""

    exchanges: tuple[Exchange, ...] = ()
    results: tuple[ProbeResult, ...] = ()
    argv: tuple[str, ...] = ()
    seconds_to_ready: float | None = None
    sglang: str | None = None


def _run_control(bench: _Bench, chosen: Sequence[Probe]) -> _Control:
    """Ask the profile's server without speculation; nothing to ask means no server."""
    subject = bench.subject
    asking = [
        (probe, waves)
        for probe in chosen
        if subject.profile.speculation
        and subject.missing(probe.needs) is None
        and (waves := probe.control_requests(subject))
    ]
    if not asking:
        return _Control()
    exchanges: list[Exchange] = []
    try:
        with bench.serving("control") as server:
            for probe, waves in asking:
                exchanges += bench.ask(server, "control", probe, waves)
                if _silent(exchanges):
                    break
            stopped = server.stop()
    except SmokeError as error:
        if error.code == "port-taken":
            raise
        return _Control(remarks=tuple(_of_control(finding) for finding in error.as_findings()))
    return _Control(exchanges=tuple(exchanges), stops=(("control", stopped),))


def _run_profile(bench: _Bench, chosen: Sequence[Probe], control: _Control) -> _Own:
    """Run the chosen probes on the profile's server."""
    exchanges: list[Exchange] = []
    results: list[ProbeResult] = []
    silent_since: str | None = None
    try:
        with bench.serving("profile") as server:
            sglang = _version(server)
            for probe in chosen:
                if probe is STOPS_CLEAN:
                    continue
                if missing := bench.subject.missing(probe.needs):
                    results.append(bench.skipped(probe, missing.value))
                elif silent_since and probe is not ALIVE_AFTER:
                    results.append(bench.skipped(probe, f"the server does not answer since {silent_since}"))
                else:
                    result, asked = _run_probe(bench, probe, server, control)
                    results.append(result)
                    exchanges += asked
                    silent_since = silent_since or (probe.name if _silent(asked) else None)
            bench.progress("stopping")
            stops = (*control.stops, ("profile", server.stop()))
    except SmokeError as error:
        if error.code == "port-taken":
            raise
        return _Own(results=_not_started(bench, chosen, error))
    if STOPS_CLEAN in chosen:
        seconds = sum(stopped.seconds for _, stopped in stops)
        results.append(bench.result(STOPS_CLEAN, Observed(subject=bench.subject, stops=stops), seconds))
    return _Own(
        exchanges=tuple(exchanges),
        results=tuple(results),
        argv=server.argv,
        seconds_to_ready=server.seconds_to_ready,
        sglang=sglang,
    )


def _run_probe(
    bench: _Bench, probe: Probe, server: Server, control: _Control
) -> tuple[ProbeResult, tuple[Exchange, ...]]:
    if probe is ALIVE_AFTER:
        time.sleep(_SETTLE_S)  # a server that dies of the last request may need a moment for it
    start = time.monotonic()
    asked = bench.ask(server, "profile", probe, probe.requests(bench.subject))
    if _silent(asked):
        time.sleep(_SETTLE_S)  # and so may one that has dropped a connection
    observed = Observed(
        subject=bench.subject,
        exchanges=asked,
        control=tuple(exchange for exchange in control.exchanges if exchange.probe == probe.name),
        ready_log=server.ready_log,
        log=serverlog.read(server.log),
        ended=server.ended(),
        health=server.health() if _silent(asked) else None,
    )
    seconds = server.seconds_to_ready if probe is STARTED else time.monotonic() - start
    return bench.result(probe, observed, seconds), asked


def _not_started(bench: _Bench, chosen: Sequence[Probe], error: SmokeError) -> tuple[ProbeResult, ...]:
    """Return the results when there was no server to probe: one failure, whatever was chosen."""
    finding = replace(error.as_findings()[0], subject=STARTED.name)
    bench.record.event("probe", name=STARTED.name, verdict="fail", message=error.message)
    started = ProbeResult(
        name=STARTED.name,
        proves=STARTED.proves,
        verdict="fail",
        message=error.message,
        seconds=0.0,
        scope=bench.subject.scope,
        finding=finding,
    )
    others = (bench.skipped(probe, "the server did not start") for probe in chosen if probe is not STARTED)
    return (started, *others)


def _send(server: Server, wave: Sequence[Request], timeout_s: float) -> list[Answer]:
    """Send the requests of one wave at the same time and return the answers in order."""
    if len(wave) == 1:
        return [server.ask(wave[0], timeout_s=timeout_s)]
    pool = ThreadPoolExecutor(max_workers=len(wave))
    try:
        waiting = [pool.submit(server.ask, request, timeout_s=timeout_s) for request in wave]
        return [answer.result() for answer in waiting]
    finally:
        # after Ctrl-C nobody waits for answers: the server is about to be ended
        pool.shutdown(wait=False, cancel_futures=True)


def _silent(asked: Sequence[Exchange]) -> bool:
    """Say whether an answer is missing altogether."""
    return any(not isinstance(exchange.status, int) for exchange in asked)


def _version(server: Server) -> str | None:
    """Return SGLang's version as the server states it."""
    for path in ("/server_info", "/get_server_info"):
        answer = server.ask(Request(name="server-info", path=path), timeout_s=_SERVER_INFO_TIMEOUT_S)
        if answer.status == 200 and isinstance(answer.response, Mapping):
            version = answer.response.get("version")
            return version if isinstance(version, str) else None
    return None


def _of_control(finding: Finding) -> Finding:
    """Return a fault of the control server as a remark: the profile's own may still be fine."""
    return replace(
        finding,
        severity=Severity.WARNING,
        subject="control server",
        message=f"the control server, the same profile without speculation: {finding.message}",
    )
