"""Hosts that are not this one: programs on PATH, and the files that the kernel shows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sglforge.host.facts import HostFacts
from sglforge.host.probe import probe

HOSTS = Path(__file__).parents[2] / "hosts"
NAMES = sorted(path.name for path in HOSTS.iterdir() if path.is_dir())

Probe = Callable[[str], HostFacts]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Probe:
    """Return a function that probes a recorded host by name."""

    def probe_host(name: str) -> HostFacts:
        monkeypatch.setenv("PATH", str(HOSTS / name / "bin"))
        monkeypatch.setitem(sys.modules, "uv", None)
        return probe(tmp_path, root=HOSTS / name / "root")

    return probe_host
