"""Start runs of sglforge, watch them, hurt them from outside, and find what is left of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "TORTURE_ROUND"
POLL_S = 0.01
HINTED = re.compile(r"\b(?:nox -s|sglforge) ([a-z]+)(?: -- ([^;,()]+)|( [^;,()]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that ended, or was ended because it did not (``hung``)."""

    words: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float
    victim: bool
    hung: bool = False

    @property
    def document(self) -> Mapping[str, Any] | None:
        try:
            document = json.loads(self.stdout)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None

    @property
    def findings(self) -> list[dict[str, Any]]:
        found = (self.document or {}).get("findings", [])
        return found if isinstance(found, list) else []

    def hinted(self) -> tuple[str, ...] | None:
        """Return the first command that the hints name, without the program's name; None where there is none."""
        for finding in self.findings:
            if found := HINTED.search(finding.get("hint") or ""):
                return (found[1], *shlex.split(found[2] or ""))
        return None


@dataclass(slots=True, kw_only=True)
class Running:
    """A run that was started; what it says goes to files, so that nothing has to be read meanwhile."""

    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    said: Path
    started: float
    victim: bool
    hurt: list[str] = field(default_factory=list)

    def tree(self) -> list[int]:
        """Return its live descendants, without itself."""
        parents = process_table()
        members = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in members and pid not in members}:
            members |= more
        return sorted(members - {self.process.pid})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How runs are started in one round: where, with which variables, with fewer rights if asked."""

    cwd: Path
    environment: Mapping[str, str]
    talk: Path
    facts: Path | None = None
    without_override: bool = False

    def start(self, words: Sequence[str], *, plan: Mapping[str, object] | None = None) -> Running:
        """Start one run; ``plan`` makes it the victim of a fault inside."""
        self.talk.mkdir(parents=True, exist_ok=True)
        facts = ("--facts", str(self.facts)) if self.facts and words[0] != "store" else ()
        argv = [sys.executable, "-m", "sglforge", *words, "--json", *facts]
        if self.without_override and os.geteuid() == 0:
            argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *argv]
        environment = dict(self.environment)
        if plan is not None:
            environment["TORTURE_PLAN"] = json.dumps(plan)
        said = self.talk / f"{len(list(self.talk.iterdir()))}-{words[0]}"
        with said.with_suffix(".out").open("wb") as out, said.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                argv, cwd=self.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        # the name in /proc is that of setpriv for a moment; the pid is the same
        return Running(
            words=tuple(words), process=process, said=said, started=time.monotonic(), victim=plan is not None
        )

    def call(self, words: Sequence[str], *, deadline_s: float, plan: Mapping[str, object] | None = None) -> Ended:
        """Start one run and wait for its end."""
        return wait([self.start(words, plan=plan)], deadline_s=deadline_s)[0]


def wait(runs: Sequence[Running], *, deadline_s: float) -> list[Ended]:
    """Wait for the end of runs; one that has not ended in time is made to show where it is, and ended."""
    deadline = time.monotonic() + deadline_s
    ended = []
    for run in runs:
        hung = False
        try:
            run.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            hung = True
            _end_hung(run)
        ended.append(
            Ended(
                words=run.words,
                code=run.process.returncode,
                stdout=run.said.with_suffix(".out").read_text(errors="replace"),
                stderr=run.said.with_suffix(".err").read_text(errors="replace"),
                seconds=time.monotonic() - run.started,
                victim=run.victim or bool(run.hurt),
                hung=hung,
            )
        )
    return ended


def _end_hung(run: Running) -> None:
    """End a run that hangs; with PYTHONFAULTHANDLER set, SIGABRT prints where its threads are."""
    members = run.tree()
    for number in (signal.SIGCONT, signal.SIGABRT):
        with contextlib.suppress(ProcessLookupError):
            run.process.send_signal(number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(timeout=5)
    send(members, signal.SIGKILL)
    run.process.kill()
    run.process.wait()


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def process_table() -> dict[int, int]:
    """Return the parent of every live process."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in {"Z", "X"}:
                    table[int(entry.name)] = int(fields[1])
    return table


def state(pid: int) -> str:
    """Return the state letter of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def leftovers(mark: str, folder: Path, *, grace_s: float) -> list[str]:
    """Return the command lines of processes that a round has left, after a grace for those that are ending."""
    deadline = time.monotonic() + grace_s
    while (found := _belonging(mark, folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [f"{pid} {' '.join(command(pid))[:200]}" for pid in found]


def _belonging(mark: str, folder: Path) -> list[int]:
    found = []
    needle, place = f"{MARK}={mark}".encode(), str(folder)
    for pid in process_table():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            marked = needle in Path(f"/proc/{pid}/environ").read_bytes()
            if (
                marked
                or any(place in word for word in command(pid))
                or str(Path(f"/proc/{pid}/cwd").readlink()).startswith(place)
            ):
                found.append(pid)
    return found
