"""Real processes: what they hold, what they were given, when they began."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.smoke.observe.processes import environment_of, resident, started

MIB = 2**20
NOBODY = 2**22 + 1
PROGRAM = """
import time
held = bytearray(b"x" * (40 * 2**20))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[proc.Service]:
    log = tmp_path / "log"
    service = proc.spawn([sys.executable, "-c", PROGRAM], log=log, env={"SECRET": "a=b"})
    try:
        deadline = time.monotonic() + 20
        while "ready" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield service
    finally:
        service.stop(grace_s=0.0)


def test_memory_is_what_the_processes_hold(running: proc.Service) -> None:
    one = resident([running.pid])
    assert 40 * MIB < one < 80 * MIB
    assert resident([running.pid, running.pid, NOBODY]) == 2 * one
    assert resident([]) == resident([NOBODY]) == 0


def test_memory_is_read_without_smaps_rollup(running: proc.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    real = resident([running.pid])
    read_text = Path.read_text

    def refuse(self: Path, *args: str | None, **kwargs: str | None) -> str:
        if self.name == "smaps_rollup":
            raise PermissionError(13, "refused", str(self))
        return read_text(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert resident([running.pid]) == pytest.approx(real, rel=0.1)


def test_a_start_is_a_time_and_that_of_nobody_never_comes(running: proc.Service) -> None:
    assert time.time() - 60 < started(running.pid) < time.time() + 1
    assert started(NOBODY) > time.time() * 2


def test_the_environment_is_read_as_it_was_given(running: proc.Service) -> None:
    assert environment_of(running.pid)["SECRET"] == "a=b"
    assert environment_of(NOBODY) == {}
