"""The one door for processes: run to the end, or keep running in a group of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from sglforge.base.cancel import Cancellation
from sglforge.base.marks import MARK
from sglforge.errors import SglforgeError

TAIL_LINES = 20
UNGUARDED_S = 60.0
LOOK_EVERY_S = 0.1
"""How often a running program's cancellation is looked at."""

# The process that ends what we started if we die: then its input ends without the word that all is well.
# PR_SET_PDEATHSIG cannot do it: it reaches one process, and a child that is just starting misses the death.
# It is told the mark of the processes before there are any, then their group. They inherit the mark as a variable, and
# keep it where they leave the session (setsid) or lose their parent (a second fork). It looks until nobody is left, and
# a while longer, for what was just being started.
_GUARD = """
read -r mark || exit 0
[ "$mark" = well ] && exit 0
if read -r group; then
  [ "$group" = well ] && exit 0
  read -r _ && exit 0
  kill -KILL "-$group"
fi
round=0
while [ $((round += 1)) -lt 200 ]; do
  left=
  for stat in /proc/[0-9]*/stat; do
    read -r line <"$stat" || continue
    set -- ${line##*) }
    [ "$4" = "$group" ] && [ "$1" != Z ] && [ "$1" != X ] && left="$left $(basename "${stat%/stat}")"
  done
  for environ in $(grep -lzs "^$mark=" /proc/[0-9]*/environ); do
    left="$left $(basename "${environ%/environ}")"
  done
  if [ "$left" ]; then kill -KILL $left; elif [ "$round" -gt 10 ]; then exit 0; fi
  sleep 0.05
done
"""
# py-setproctitle, with which SGLang names its processes, overwrites what /proc shows of the environment, unless told.
_KEEP_ENVIRON = {"SPT_NOENV": "1"}


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
        pass_fds: Sequence[int] = (),
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
    cancellation: Cancellation | None = None,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run a program to its end in a process group of its own.

    ``env`` replaces the whole environment. With ``log``, command line and output are appended to that file as they
    come, so that a kill loses nothing, and are still returned. A timeout or Ctrl-C ends the whole group; so does
    our own death, also by SIGKILL, where the program may take longer than a minute: such a one has a variable more
    (``base.marks``), by which it is found. A thread that is not the main one sees no Ctrl-C: it is handed a
    ``cancellation`` (``functools.partial(run, cancellation=...)`` is a Runner).
    The program inherits the descriptors ``pass_fds``, under the same numbers.

    Raises ProcessError ``program-missing``, ``process-timeout`` and, with ``check``, ``process-failed``;
    Cancelled, like Ctrl-C.
    """
    if cancellation:
        cancellation.check()
    words = tuple(str(word) for word in argv)
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        out, err = _outputs(stack, log, words)
        begin = out.tell()
        guarded = timeout_s is None or timeout_s > UNGUARDED_S
        guard, env = stack.enter_context(_guarded(env)) if guarded else (None, env)
        source = _input(stack, stdin)
        process = _start(words, cwd=cwd, env=env, stdin=source, out=out, err=err, pass_fds=pass_fds)
        if guard:
            _tell(guard, str(process.pid))
        try:
            _wait(process, timeout_s, cancellation)
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


def _wait(process: subprocess.Popen[bytes], timeout_s: float | None, cancellation: Cancellation | None) -> None:
    """Wait for the end of a process, with an eye on the cancellation.

    Raises subprocess.TimeoutExpired and Cancelled.
    """
    if cancellation is None:
        process.wait(timeout=timeout_s)
        return
    deadline = time.monotonic() + timeout_s if timeout_s is not None else None
    while True:
        left = LOOK_EVERY_S if deadline is None else min(LOOK_EVERY_S, deadline - time.monotonic())
        try:
            process.wait(timeout=max(left, 0.0))
        except subprocess.TimeoutExpired:
            cancellation.check()
            if deadline is not None and time.monotonic() >= deadline:
                raise
        else:
            return


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


def missing(program: str, why: str) -> ProcessError:
    """Return the error for a program that could not be started."""
    return ProcessError(
        code="program-missing",
        message=f"cannot run {program}: {why}",
        hint=f"install {Path(program).name} or put it on PATH",
    )


@dataclass(slots=True, kw_only=True)
class Service:
    """A process that keeps running in a session of its own, with everything that it starts."""

    argv: tuple[str, ...]
    pid: int
    mark: str
    _process: subprocess.Popen[bytes]
    _guard: subprocess.Popen[bytes]

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.poll()

    def members(self) -> list[int]:
        """Return the pids of its live processes: of the session, those that left it, and children of either."""
        return service_members(self.pid, self.mark)

    def stop(self, *, grace_s: float) -> bool:
        """Ask its processes to end (SIGTERM), wait, kill what is left; return whether asking was enough."""
        clean = _end(self.members, grace_s=grace_s, reap=self._process.poll)
        self._process.wait()
        _tell(self._guard, "well")
        self._guard.communicate()
        return clean


def spawn(
    argv: Sequence[str | Path], *, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Service:
    """Start a program that keeps running; stdout and stderr go to ``log``.

    When this process ends without `Service.stop`, even by SIGKILL, all processes of the service are killed.

    Raises ProcessError ``program-missing``.
    """
    words = tuple(str(word) for word in argv)
    log.parent.mkdir(parents=True, exist_ok=True)
    mark = _new_mark()
    marked = {**(os.environ if env is None else env), **_KEEP_ENVIRON, mark: "1"}
    guard = _guard(mark)
    try:
        with log.open("ab") as out:
            process = _start(words, cwd=cwd, env=marked, stdin=subprocess.DEVNULL, out=out, err=out)
    except BaseException:
        _tell(guard, "well")
        guard.communicate()
        raise
    _tell(guard, str(process.pid))
    return Service(argv=words, pid=process.pid, mark=mark, _process=process, _guard=guard)


def service_members(session: int, mark: str) -> list[int]:
    """Return the live processes of a session, those whose environment holds the mark, and the children of all these.

    A process escapes only if it leaves the session, loses its parent and wipes its environment as well.
    """
    table = _process_table()
    members = {pid for pid, (_, its_session) in table.items() if its_session == session or _is_marked(pid, mark)}
    while children := {pid for pid, (parent, _) in table.items() if parent in members and pid not in members}:
        members |= children
    return sorted(members)


def session_members(session: int) -> list[int]:
    """Return the live (not zombie) processes whose session id is ``session``."""
    return [pid for pid, (_, its_session) in _process_table().items() if its_session == session]


def _process_table() -> dict[int, tuple[int, int]]:
    """Return the parent and the session of every live process."""
    table = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # comm may hold spaces and brackets: the fields start after the last ')'
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in {"Z", "X"}:
                table[int(entry.name)] = (int(fields[1]), int(fields[3]))
    return table


def _is_marked(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        return variables.startswith(f"{mark}=".encode()) or f"\0{mark}=".encode() in variables
    return False


def _end(members: Callable[[], list[int]], *, grace_s: float, reap: Callable[[], object]) -> bool:
    """End processes, also those that come while they end; return whether SIGTERM was enough."""
    deadline = time.monotonic() + grace_s
    _signal_all(members(), signal.SIGTERM)
    while time.monotonic() < deadline:
        reap()
        if not members():
            return True
        time.sleep(0.05)
    while left := members():
        _signal_all(left, signal.SIGKILL)
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


def _new_mark() -> str:
    return f"{MARK}{secrets.token_hex(8)}"


def _guard(mark: str) -> subprocess.Popen[bytes]:
    """Start the process that outlives us for a moment; after the mark it is told a process group, then a word."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # whoever ends a service that we run in must not end the guard: it is the one that ends what we started
        env={name: value for name, value in os.environ.items() if not name.startswith(MARK)},
    )
    _tell(guard, mark)
    return guard


@contextlib.contextmanager
def _guarded(env: Mapping[str, str] | None) -> Iterator[tuple[subprocess.Popen[bytes], Mapping[str, str]]]:
    """Yield a guard and the environment of a program: what runs with it is killed if we die inside the block."""
    mark = _new_mark()
    guard = _guard(mark)
    try:
        yield guard, {**(os.environ if env is None else env), mark: "1"}
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


def _input(stack: contextlib.ExitStack, text: str | None) -> IO[bytes] | int:
    """Return what a program reads: a file with the text, which no slow reader makes us wait for."""
    if not text:
        return subprocess.DEVNULL
    stream = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    stream.write(text.encode())
    stream.seek(0)
    return stream


def _read(stream: IO[bytes], begin: int) -> str:
    stream.seek(begin)
    return stream.read().decode(errors="replace")


def _start(
    words: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: IO[bytes] | int,
    out: IO[bytes],
    err: IO[bytes],
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=out,
            stderr=err,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        raise missing(words[0], error.strerror or str(error)) from error
