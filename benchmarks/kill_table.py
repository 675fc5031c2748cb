"""Which faults smoke catches, beside what is usually asked of a server; and how often it cries wolf."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measure import BenchError, spread
from benchmarks.setting import ROOT, Setting

from sglforge.base import proc, runrecord
from sglforge.config.model import Profile, Target
from sglforge.errors import SmokeError
from sglforge.launch.render import ServingEnvironment, render_bash
from sglforge.pipeline import serving as installed
from sglforge.smoke import attached, ports
from sglforge.smoke.client import Answer, Request, send
from sglforge.smoke.deadline import Patience
from sglforge.smoke.generation import generation, greedy
from sglforge.smoke.run import run
from sglforge.smoke.server import serving, stop
from sglforge.smoke.verdict import SmokeReport

sys.path.insert(0, str(ROOT / "tests"))  # where the fake server and the table of its faults are
from fake_serving import make_environment
from fake_sglang.options import VERSION
from kill_cases import SOUND, TABLE, TREE, Case, profile_of

CLEAN_RUNS = 20
AT_ONCE = 2
UP_S = 20.0
# What a load balancer waits for an answer.
ASK_S = 5.0
HEALTH = Request(name="health", path="/health")
HEALTH_GENERATE = Request(name="health-generate", path="/health_generate")
ONE_PROMPT = greedy("one-prompt", "The capital of France is", 16)
CPU = Target(name="cpu", description="This machine's CPU.", kind="cpu")
US, AFTERWARDS = "smoke", " after the probes"
USUAL: Mapping[str, Request] = {"/health": HEALTH, "/health_generate": HEALTH_GENERATE, "one prompt": ONE_PROMPT}


def measure(setting: Setting) -> dict[str, object]:
    """Let smoke, and the usual questions, look for every fault of the fake server; then count false alarms."""
    with setting.folder() as folder:
        environment = make_environment(folder / "environment", sglang_version=VERSION)
        cases = TABLE
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda item: _row(item[0], item[1], environment, folder), cases.items())
            rows = dict(zip(cases, found, strict=True))
        with _started("", SOUND[""], environment, folder / "clean") as (url, _):
            if url is None:
                raise BenchError("the sound fake server does not start")
            clean = [_attached(url, profile_of("", SOUND[""]), folder) for _ in range(CLEAN_RUNS)]
    for name, row in rows.items():
        marks = " ".join(f"{by}:{'yes' if caught else 'no'}" for by, caught in row.items() if isinstance(caught, bool))
        print(f"{name:28} {marks}  {row['probes']}", file=sys.stderr)
    return {
        "faults": len(rows),
        "caught": {by: sum(bool(row[by]) for row in rows.values()) for by in _columns()},
        "false_alarms": _alarms(clean),
        "table": rows,
        "aims": {US: "all", "false alarms": 0},
    }


def measure_real(setting: Setting) -> dict[str, object]:
    """Ask one real server, over its address, whether it is sound, many times: it is."""
    planned = setting.planned()
    profile = installed.default_profile(planned.selection)
    environment = installed.installed(setting.request(), planned.selection)
    with (
        setting.folder() as folder,
        serving(
            lambda port: render_bash(profile, environment=environment, catalog_root=ROOT, port=port, folder=folder),
            folder=folder,
            log=folder / "server.log",
            pinned_port=None,
            patience=Patience(start_s=600.0, request_s=60.0, stop_s=20.0),
            progress=lambda _note: None,
        ) as server,
    ):
        reports = []
        for number in range(setting.rounds or CLEAN_RUNS):
            reports.append(_attached(server.url, profile, folder))
            print(f"run {number}: {reports[-1].verdict} in {reports[-1].seconds:.1f} s", file=sys.stderr)
    return {
        "profile": profile.name,
        "sglang": reports[0].versions["sglang"],
        "false_alarms": _alarms(reports),
        "suite_after_ready_s": spread([report.seconds for report in reports]),
        "aims": {"false alarms": 0, "suite": "below 60 s"},
    }


def _columns() -> tuple[str, ...]:
    return (US, *USUAL, *(f"{name}{AFTERWARDS}" for name in USUAL if name != "one prompt"))


def _alarms(reports: list[SmokeReport]) -> dict[str, object]:
    """Count runs that did not pass, and say what they said."""
    loud = [report for report in reports if report.verdict != "pass"]
    said = sorted({f"{finding.subject}: {finding.code}" for report in loud for finding in report.findings})
    passes = sorted({one.name for report in reports for one in report.probes if one.verdict == "pass"})
    return {"runs": len(reports), "alarms": len(loud), "said": said, "probes": passes}


def _row(fault: str, case: Case, environment: ServingEnvironment, folder: Path) -> dict[str, object]:
    """Return who catches a fault, each on a server of its own."""
    place = folder / fault
    report = run(
        profile_of(fault, case, compiles_into=place / "jit"),
        environment=environment,
        catalog_root=ROOT,
        target=CPU,
        record=runrecord.start(place / "runs"),
        tree=TREE,
        stop_grace_s=2.0,
    )
    print(f"{fault}: {report.verdict}", file=sys.stderr)
    row: dict[str, object] = {
        US: report.verdict == "fail",
        "probes": {one.name: one.finding.code for one in report.probes if one.verdict == "fail" and one.finding},
    }
    for name, request in USUAL.items():
        with _started(fault, case, environment, place / request.name) as (url, _):
            row[name] = not _sound(url, request)
    with _started(fault, case, environment, place / "probed") as (url, _):
        if url:
            with suppress(SmokeError):
                _attached(url, profile_of(fault, case), place)
            time.sleep(1.0)
        for name, request in USUAL.items():
            if name != "one prompt":
                row[f"{name}{AFTERWARDS}"] = not _sound(url, request)
    return row


def _sound(url: str | None, request: Request) -> bool:
    """Say whether a server passes a usual question: status 200, and a text where one was asked for."""
    if url is None:
        return False
    answer: Answer = send(url, request, timeout_s=ASK_S)
    one = generation(answer.response)
    return answer.status == 200 and (request is not ONE_PROMPT or bool(one and one.text))


@contextmanager
def _started(
    fault: str, case: Case, environment: ServingEnvironment, folder: Path
) -> Iterator[tuple[str | None, proc.Service]]:
    """Yield the address of a server whose port is open; None where it ends or opens none."""
    port = ports.free_port()
    folder.mkdir(parents=True)
    script = render_bash(
        profile_of(fault, case, compiles_into=folder / "jit"),
        environment=environment,
        catalog_root=ROOT,
        port=port,
        tree=TREE,
        folder=folder,
    )
    server = proc.spawn([script.write(folder)], log=folder / "server.log", env=None)
    try:
        yield (f"http://127.0.0.1:{port}" if _listens(port, server, min(UP_S, case.start_s)) else None), server
    finally:
        stop(server, port, grace_s=2.0)


def _listens(port: int, server: proc.Service, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and server.poll() is None:
        if ports.is_open(port):
            return True
        time.sleep(0.05)
    return False


def _attached(url: str, profile: Profile, folder: Path) -> SmokeReport:
    record = runrecord.start(folder / "asked")
    timeout_s = profile.request_timeout_s
    return attached.run(url, record=record, expectations=profile.smoke, request_timeout_s=timeout_s)
