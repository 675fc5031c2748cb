"""From the start of the rendered script to the first decoded token."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, spread, summary
from benchmarks.setting import ROOT, Setting

from sglforge.base import files, proc
from sglforge.config.model import Profile
from sglforge.launch.render import render_bash
from sglforge.pipeline import serving
from sglforge.provision.receipt import Environment
from sglforge.smoke import ports
from sglforge.smoke.server import stop

ROUNDS = 3
POLL_S = 0.05
STOP_S = 20.0
LONGEST_START_S = 600.0
PLAIN, SPECULATIVE = "plain", "speculative"


def measure(setting: Setting) -> dict[str, object]:
    """Measure until one token is decoded over HTTP, with and without speculation; CPU is not counted."""
    planned = setting.planned()
    profile = serving.default_profile(planned.selection)
    environment = serving.installed(setting.request(), planned.selection)
    healthy: dict[str, list[float]] = {PLAIN: [], SPECULATIVE: []}
    with setting.folder() as folder:
        cases = {
            PLAIN: lambda: _start(
                profile.model_copy(update={"speculation": None}), environment, folder, setting, healthy[PLAIN]
            ),
            SPECULATIVE: lambda: _start(profile, environment, folder, setting, healthy[SPECULATIVE]),
        }
        samples = interleave(cases, setting.rounds or ROUNDS)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "health_answers_s": {name: spread(values) for name, values in healthy.items()},
        "aims": {"both": "about 15 s on an idle machine with two cores"},
        "profile": profile.name,
    }


def _start(profile: Profile, environment: Environment, folder: Path, setting: Setting, healthy: list[float]) -> Sample:
    """Start the script, wait for a token, end its group; also note when the health route answered."""
    port = ports.free_port()
    script = render_bash(profile.model_copy(update={"port": port}), environment=environment, catalog_root=ROOT)
    path = folder / script.name
    files.write_text(path, script.text, mode=0o755)
    log, deadline = folder / "server.log", profile.start_timeout_s or LONGEST_START_S
    log.unlink(missing_ok=True)
    start = time.perf_counter()
    server = proc.spawn([path], log=log, env=setting.environment)
    try:
        while _ask(port, "GET", "/health") is None:
            _alive(server, start, deadline, log)
        healthy.append(time.perf_counter() - start)
        request = {"text": "The capital of France is", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        while _ask(port, "POST", "/generate", json.dumps(request)) is None:
            _alive(server, start, deadline, log)
        return Sample(wall_s=time.perf_counter() - start)
    finally:
        stop(server, port, grace_s=STOP_S)


def _ask(port: int, method: str, path: str, body: str | None = None) -> bytes | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body=body, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return content if answer.status == http.HTTPStatus.OK else None


def _alive(server: proc.Service, start: float, deadline_s: float, log: Path) -> None:
    ended = server.poll() is not None
    if ended or time.perf_counter() - start > deadline_s:
        tail = log.read_text(errors="replace").splitlines()[-10:]
        raise BenchError("\n".join(["the server ended" if ended else "the server does not get ready", *tail]))
    time.sleep(POLL_S)
