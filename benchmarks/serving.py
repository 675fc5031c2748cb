"""From the start of the rendered script to the first decoded token."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, spread, summary
from benchmarks.setting import ROOT, Setting

from sglforge.base import files
from sglforge.config.model import Profile
from sglforge.launch.render import render_bash
from sglforge.pipeline import serving
from sglforge.provision.receipt import Environment

ROUNDS = 3
POLL_S = 0.05
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
    port = _free_port()
    script = render_bash(profile.model_copy(update={"port": port}), environment=environment, catalog_root=ROOT)
    path = folder / script.name
    files.write_text(path, script.text, mode=0o755)
    deadline = profile.start_timeout_s
    with (folder / "server.log").open("wb") as log:
        start = time.perf_counter()
        server = subprocess.Popen(
            [path],
            env=setting.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while _ask(port, "GET", "/health") is None:
                _alive(server, start, deadline, folder / "server.log")
            healthy.append(time.perf_counter() - start)
            request = {"text": "The capital of France is", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
            while _ask(port, "POST", "/generate", json.dumps(request)) is None:
                _alive(server, start, deadline, folder / "server.log")
            return Sample(wall_s=time.perf_counter() - start)
        finally:
            _end(server)


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


def _alive(server: subprocess.Popen[bytes], start: float, deadline_s: float, log: Path) -> None:
    ended = server.poll() is not None
    if ended or time.perf_counter() - start > deadline_s:
        tail = log.read_text(errors="replace").splitlines()[-10:]
        raise BenchError("\n".join(["the server ended" if ended else "the server does not get ready", *tail]))
    time.sleep(POLL_S)


def _end(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(timeout=30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
