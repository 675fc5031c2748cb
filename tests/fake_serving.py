"""An environment whose interpreter starts the fake server, and what the fake server's model is known to say."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sglforge.base import files
from sglforge.base.ids import Sha256
from sglforge.config.model import FactProbe, SmokeExpectations, ToolProbe
from sglforge.smoke import ports

_SERVER = Path(__file__).parent / "fake_sglang"

SMOKE = SmokeExpectations(
    facts=[
        FactProbe(prompt="The capital of France is", contains="Paris"),
        FactProbe(prompt="One and one is", contains="two"),
    ],
    chat=[FactProbe(prompt="What is the capital of France?", contains="Paris")],
    tool=ToolProbe(
        prompt="What is the weather in Paris?",
        name="get_weather",
        description="Tell the weather in a city.",
        parameters='{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
        contains="Paris",
    ),
    far=FactProbe(prompt="The capital of France is", contains="Paris"),
    long_prompt="Tell me a story.",
    json_prompt="The capital of France as JSON:",
    json_schema=(
        '{"type": "object", "properties": {"city": {"type": "string"}, "country": {"type": "string"}},'
        ' "required": ["city", "country"], "additionalProperties": false}'
    ),
)


@dataclass(frozen=True, kw_only=True)
class FakeEnvironment:
    """An environment whose interpreter starts the fake server."""

    path: Path
    name: str = "fake.cpu"
    sglang_version: str | None = None

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def receipt_sha256(self) -> Sha256:
        return files.sha256_file(self.path / "receipt.json")


def make_environment(path: Path, *, sglang_version: str | None = None) -> FakeEnvironment:
    environment = FakeEnvironment(path=path, sglang_version=sglang_version)
    program = shlex.join([sys.executable, str(_SERVER)])
    files.write_text(environment.python, f'#!/bin/sh\nexec {program} "$@"\n', mode=0o755)
    files.write_text(path / "receipt.json", "{}\n")
    return environment


def marked(name: str, value: Path) -> list[str]:
    """Return the command lines of the processes with a variable in their environment, but for our own."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                environment = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{name}={value}\0".encode() in environment and command:
                found.append(command.replace(b"\0", b" ").decode())
    return found


@contextmanager
def fake_process(*argv: str, fault: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Yield a fake server that nobody of us started, and its port; kill what is left of it afterwards."""
    port = ports.free_port()
    with subprocess.Popen(
        [sys.executable, _SERVER, "--port", str(port), *argv],
        env={**os.environ, "FAKE_FAULT": fault},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            deadline = time.monotonic() + 30
            while not ports.is_open(port):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield server, port
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
