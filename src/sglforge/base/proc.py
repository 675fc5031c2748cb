"""The one door for processes: run to the end, or keep running in a group of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from sglforge.errors import SglforgeError

TAIL_LINES = 20
UNGUARDED_S = 60.0

# The process that ends what we started if we die: then its input ends without the word that all is well.
# PR_SET_PDEATHSIG cannot do it: it reaches one process, and a child that is just starting misses the death.
_GUARD = 'read -r group || exit 0; [ "$group" = well ] && exit 0; read -r _ && exit 0; kill -KILL "-$group"'


class ProcessError(SglforgeError):
    """A program is missing, failed or took too long; callers turn it into an error of their stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A process that has ended: exit status (negative: a signal), its output and wall time in seconds."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class Runner(Protocol):
    """The signature of :func:`run`, so that stages can be handed another one."""

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        log: Path | None = None,
        stdin: str | None = None,
        check: bool = True,
    ) -> Completed: ...


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    log: Path | None = None,
    stdin: str | None = None,
    check: bool = True,
) -> Completed:
    """Run a program to its end in a process group of its own.

    ``env`` replaces the whole environment. With ``log``, command line and output are appended to that file as they
    come, so that a kill loses nothing, and are still returned. A timeout or Ctrl-C ends the whole group; so does
    our own death, also by SIGKILL, where the program may take longer than a minute.

    Raises ProcessError ``program-missing``, ``process-timeout`` and, with ``check``, ``process-failed``.
    """
    words = tuple(str(word) for word in argv)
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        out, err = _outputs(stack, log, words)
        begin = out.tell()
        guarded = timeout_s is None or timeout_s > UNGUARDED_S
        guard = stack.enter_context(_guarded()) if guarded else None
        process = _start(
            words, cwd=cwd, env=env, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, out=out, err=err
        )
        if guard:
            _tell(guard, str(process.pid))
        try:
            process.communicate(stdin.encode() if stdin else None, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            end_group(process.pid, grace_s=2.0)
            process.wait()
            raise ProcessError(
                code="process-timeout",
                message=f"{words[0]} was ended after {timeout_s:.0f} s",
                context={"command": shlex.join(words)},
                log=str(log) if log else None,
            ) from error
        except BaseException:
            end_group(process.pid, grace_s=2.0)
            process.wait()
            raise
        stdout, stderr = _read(out, begin), "" if log else _read(err, 0)
    done = Completed(
        argv=words,
        returncode=process.returncode,
        stdout=stdout,
        stderr=stderr,
        seconds=time.monotonic() - start,
    )
    if check and done.returncode:
        raise failed(done, log=log)
    return done


def failed(done: Completed, *, log: Path | None = None) -> ProcessError:
    """Return the error for a process that ended badly, with the tail of what it said."""
    tail = (done.stderr or done.stdout).strip().splitlines()[-TAIL_LINES:]
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return ProcessError(
        code="process-failed",
        message=f"{Path(done.argv[0]).name} ended with {how}",
        context={"command": shlex.join(done.argv), "output": "\n".join(tail)},
        log=str(log) if log else None,
    )


@dataclass(slots=True, kw_only=True)
class Service:
    """A process that keeps running in a session of its own, with everything that it starts."""

    argv: tuple[str, ...]
    pid: int
    _process: subprocess.Popen[bytes]
    _guard: subprocess.Popen[bytes]

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.poll()

    def members(self) -> list[int]:
        """Return the pids of every live process of the session, also those that left the group."""
        return session_members(self.pid)

    def stop(self, *, grace_s: float) -> bool:
        """Ask the session to end (SIGTERM), wait, kill what is left; return whether asking was enough."""
        clean = end_session(self.pid, grace_s=grace_s, reap=self._process.poll)
        self._process.wait()
        _tell(self._guard, "well")
        self._guard.communicate()
        return clean


def spawn(
    argv: Sequence[str | Path], *, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Service:
    """Start a program that keeps running; stdout and stderr go to ``log``.

    When this process ends without `Service.stop`, even by SIGKILL, the program's group is killed.

    Raises ProcessError ``program-missing``.
    """
    words = tuple(str(word) for word in argv)
    log.parent.mkdir(parents=True, exist_ok=True)
    guard = _guard()
    try:
        with log.open("ab") as out:
            process = _start(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, out=out, err=out)
    except BaseException:
        guard.communicate()
        raise
    _tell(guard, str(process.pid))
    return Service(argv=words, pid=process.pid, _process=process, _guard=guard)


def session_members(session: int) -> list[int]:
    """Return the live (not zombie) processes whose session id is ``session``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # comm may hold spaces and brackets: the fields start after the last ')'
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in {"Z", "X"} and int(fields[3]) == session:
                found.append(int(entry.name))
    return found


def end_session(session: int, *, grace_s: float, reap: Callable[[], object]) -> bool:
    """End every process of a session; return whether SIGTERM was enough."""
    deadline = time.monotonic() + grace_s
    _signal_all(session_members(session), signal.SIGTERM)
    while time.monotonic() < deadline:
        reap()
        if not session_members(session):
            return True
        time.sleep(0.05)
    while members := session_members(session):
        _signal_all(members, signal.SIGKILL)
        reap()
        time.sleep(0.02)
    return False


def end_group(group: int, *, grace_s: float) -> None:
    """End a process group: SIGTERM, then SIGKILL after ``grace_s`` seconds."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            if not session_members(group):
                return
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _guard() -> subprocess.Popen[bytes]:
    """Start the process that outlives us for a moment; it reads a process group, then a word."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )


@contextlib.contextmanager
def _guarded() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a guard: the process group that it is told is killed if we die inside the block."""
    guard = _guard()
    try:
        yield guard
    finally:
        _tell(guard, "well")
        guard.communicate()


def _tell(guard: subprocess.Popen[bytes], word: str) -> None:
    if guard.stdin and not guard.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.write(f"{word}\n".encode())
            guard.stdin.flush()


def _outputs(stack: contextlib.ExitStack, log: Path | None, words: Sequence[str]) -> tuple[IO[bytes], IO[bytes]]:
    if log is None:
        return (stack.enter_context(tempfile.TemporaryFile()), stack.enter_context(tempfile.TemporaryFile()))
    log.parent.mkdir(parents=True, exist_ok=True)
    out = stack.enter_context(log.open("a+b"))
    out.write(f"$ {shlex.join(words)}\n".encode())
    out.flush()
    out.seek(0, os.SEEK_END)
    return out, out


def _read(stream: IO[bytes], begin: int) -> str:
    stream.seek(begin)
    return stream.read().decode(errors="replace")


def _start(
    words: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: int,
    out: IO[bytes],
    err: IO[bytes],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(words, cwd=cwd, env=env, stdin=stdin, stdout=out, stderr=err, start_new_session=True)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        raise ProcessError(
            code="program-missing",
            message=f"cannot run {words[0]}: {error.strerror}",
            hint=f"install {Path(words[0]).name} or put it on PATH",
        ) from error
