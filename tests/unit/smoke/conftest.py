"""A bench with a fake environment: its interpreter is a script that starts the fake server."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sglforge.base import files, runrecord
from sglforge.base.ids import Sha256
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import FactProbe, Profile, SmokeExpectations, Speculation, Target
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport

ROOT = Path(__file__).parents[3]
SCHEMA = (
    '{"type": "object", "properties": {"city": {"type": "string"}, "country": {"type": "string"}},'
    ' "required": ["city", "country"], "additionalProperties": false}'
)


@dataclass(frozen=True, kw_only=True)
class FakeEnvironment:
    path: Path
    name: str = "fake.cpu"
    sglang_version: str | None = "0.5.23"

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def receipt_sha256(self) -> Sha256:
        return files.sha256_file(self.path / "receipt.json")


def make_environment(path: Path) -> FakeEnvironment:
    environment = FakeEnvironment(path=path)
    program = shlex.join([sys.executable, str(Path(__file__).parent / "fake_server.py")])
    files.write_text(environment.python, f'#!/bin/sh\nexec {program} "$@"\n', mode=0o755)
    files.write_text(path / "receipt.json", "{}\n")
    return environment


def make_profile(fault: str = "", *, speculative: bool = False, **changes: object) -> Profile:
    profile = Profile(
        name="fake",
        description="The fake server.",
        target="cpu",
        model="nobody/nothing",
        environment={"FAKE_FAULT": fault, "FAKE_SPARE_CONTROL": "1"},
        speculation=Speculation(algorithm="EAGLE", draft_model="nobody/draft") if speculative else None,
        start_timeout_s=20.0,
        request_timeout_s=10.0,
        smoke=SmokeExpectations(
            facts=[
                FactProbe(prompt="The capital of France is", contains="Paris"),
                FactProbe(prompt="One and one is", contains="two"),
            ],
            long_prompt="Tell me a story.",
            json_prompt="The capital of France as JSON:",
            json_schema=SCHEMA,
        ),
    )
    return profile.model_copy(update=changes)


@dataclass(frozen=True, kw_only=True)
class Bench:
    environment: FakeEnvironment
    record: RunRecord
    target: Target = field(default_factory=lambda: Target(name="cpu", description="This machine's CPU.", kind="cpu"))

    def run(
        self,
        profile: Profile,
        *,
        probes: list[str] | None = None,
        progress: Callable[[str], None] = lambda _: None,
        target: Target | None = None,
        stop_grace_s: float = 10.0,
    ) -> SmokeReport:
        return run(
            profile,
            environment=self.environment,
            catalog_root=ROOT,
            target=target or self.target,
            record=self.record,
            probes=probes,
            progress=progress,
            stop_grace_s=stop_grace_s,
        )

    def survivors(self) -> list[str]:
        """Return the command lines of all processes that came from this bench's run record or fake server."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid():
                try:
                    environ = (process / "environ").read_bytes()
                    command = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                if f"BENCH={self.record.folder}".encode() in environ and command:
                    found.append(command.replace(b"\0", b" ").decode())
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a bench whose servers all carry its mark in their environment."""
    record = runrecord.start(tmp_path / "runs")
    monkeypatch.setenv("BENCH", str(record.folder))
    return Bench(environment=make_environment(tmp_path / "a folder's env"), record=record)
