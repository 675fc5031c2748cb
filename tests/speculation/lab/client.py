"""A laboratory as tests see it: one process with one scheduler, which jobs are sent to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from speculation.lab.protocol import Algorithm, Job, Outcome, Setup

TESTS = Path(__file__).parents[2]
START_S = 240
JOB_S = 600
# What makes SGLang run without a GPU, with the overlapped EAGLE worker.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "SGLANG_ENABLE_SPEC_V2": "True",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "TRITON_INTERPRET": "1",
}


class LaboratoryDied(Exception):  # noqa: N818 - what happened, not what is wrong
    """The process ended or does not answer; the message has the end of its log."""


@dataclass(kw_only=True)
class Laboratory:
    """A scheduler in a process of its own.

    A job that ends the scheduler's loop with an exception leaves it in an unknown state: the next job gets a new one.
    """

    setup: Setup
    log: Path
    _process: subprocess.Popen[bytes] | None = None
    _link: Connection | None = None

    def run(self, job: Job) -> Outcome:
        """Send a job and wait for what comes of it.

        Raises LaboratoryDied.
        """
        link = self._connect()
        link.send(job)
        outcome = self._receive(link, JOB_S)
        assert isinstance(outcome, Outcome)
        if outcome.error:
            self.close()
        return outcome

    def close(self) -> None:
        """End the process."""
        if self._link:
            self._link.close()
        if self._process:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._process.kill()
            self._process.wait()
        self._process = self._link = None

    def _connect(self) -> Connection:
        if self._link is None:
            ours, theirs = socket.socketpair()
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "speculation.lab.process", str(theirs.fileno())],
                    env={**os.environ, **ENVIRONMENT, "PYTHONPATH": _search_path()},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            theirs.close()
            self._link = Connection(ours.detach())
            self._link.send(self.setup)
            self._receive(self._link, START_S)
        return self._link

    def _receive(self, link: Connection, timeout_s: float) -> object:
        try:
            if link.poll(timeout_s):
                return link.recv()
            why = f"no answer within {timeout_s} s"
        except (EOFError, ConnectionError):
            why = "the process ended"
        self.close()
        raise LaboratoryDied(f"{why}; its log ends with\n{self.log.read_text(errors='replace')[-3000:]}")


class OpenLaboratory(Protocol):
    """What the fixture `open_laboratory` is."""

    def __call__(self, algorithm: Algorithm = "EAGLE", **changes: object) -> Laboratory:
        """Return the laboratory of a setup, the shipped models by default."""


def _search_path() -> str:
    """Return where the process looks for modules: where we do, these tests and the models' own code."""
    own = [str(TESTS), str(TESTS.parent / "models")]
    return os.pathsep.join([*own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
