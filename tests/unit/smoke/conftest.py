"""A bench with a fake environment: its interpreter is a script that starts the fake server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_serving import SMOKE, FakeEnvironment, make_environment, marked

from sglforge.base import runrecord
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import Profile, Speculation, Target
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport

ROOT = Path(__file__).parents[3]


def make_profile(fault: str = "", *, speculative: bool = False, **changes: object) -> Profile:
    profile = Profile(
        name="fake",
        description="The fake server.",
        target="cpu",
        model="nobody/nothing",
        flags={"tool-call-parser": "hermes"},
        environment={"FAKE_FAULT": fault, **({"FAKE_SPARE_CONTROL": "1"} if speculative else {})},
        speculation=Speculation(algorithm="EAGLE", draft_model="nobody/draft") if speculative else None,
        start_timeout_s=20.0,
        request_timeout_s=10.0,
        smoke=SMOKE,
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
        return marked("BENCH", self.record.folder)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a bench whose servers all carry its mark in their environment."""
    record = runrecord.start(tmp_path / "runs")
    monkeypatch.setenv("BENCH", str(record.folder))
    return Bench(environment=make_environment(tmp_path / "a folder's env", sglang_version="0.5.23"), record=record)
