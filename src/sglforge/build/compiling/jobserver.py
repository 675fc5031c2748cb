"""One fifo jobserver for all builds of a run: so many processes as there are jobs, however many builds there are.

Its protocol is GNU make's (`--jobserver-auth=fifo:`); ninja takes part from 1.13 on, unless it is told a number of jobs
itself. Each build tool has one slot that needs no token, so a build takes one out for as long as it runs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace

OVERRIDING = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "NINJAFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS")
"""Variables that give a build tool a number of jobs of its own; builds do not get to see them."""
LONGEST_PAUSE_S = 0.5


@dataclass(slots=True, kw_only=True)
class Jobserver:
    """A fifo with a token for each job beyond those of the builds that run. ``folder`` must be writable for them."""

    fifo: Path
    jobs: int
    _descriptor: int
    _builds: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folder(self) -> Path:
        """The folder of the fifo."""
        return self.fifo.parent

    @property
    def variables(self) -> Mapping[str, str]:
        """What tells build tools of it."""
        return {"MAKEFLAGS": f"-j{self.jobs} --jobserver-auth=fifo:{self.fifo}"}

    @contextlib.contextmanager
    def slot(self, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
        """Hold one job: the one that a build tool has without asking. What ``pause`` raises ends the waiting."""
        pause_s = 0.02
        while not self._begin():
            pause(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
        try:
            yield
        finally:
            self._end()

    def _begin(self) -> bool:
        with self._turn:
            taken = self._take() if self._builds else self._fill(self.jobs - 1)
            self._builds += taken
            return taken

    def _end(self) -> None:
        with self._turn:
            self._builds -= 1
            os.write(self._descriptor, b"+")

    def _fill(self, tokens: int) -> bool:
        """Have exactly so many tokens: a killed build tool took some along, a killed launcher may have left one."""
        while self._take():
            pass
        os.write(self._descriptor, b"+" * tokens)
        return True

    def _take(self) -> bool:
        try:
            return bool(os.read(self._descriptor, 1))
        except BlockingIOError:
            return False


@contextlib.contextmanager
def serving(workspace: Workspace, jobs: int) -> Iterator[Jobserver]:
    """Serve so many jobs (at least one) until the block ends."""
    with working_folder(workspace, "jobs") as folder:
        fifo = folder / "fifo"
        os.mkfifo(fifo, 0o600)
        descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield Jobserver(fifo=fifo, jobs=max(jobs, 1), _descriptor=descriptor)
        finally:
            os.close(descriptor)


def without_jobs(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those that give a build tool its own number of jobs."""
    return {name: value for name, value in variables.items() if name not in OVERRIDING}
