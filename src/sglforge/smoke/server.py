"""The life of one server: start it, wait until it decodes, say why it ended, end it, look for remains."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sglforge.base import proc
from sglforge.errors import SmokeError
from sglforge.launch.render import LaunchScript, ScriptExit
from sglforge.smoke import ports, serverlog
from sglforge.smoke.client import Answer, Request, send
from sglforge.smoke.generation import generation, greedy

Progress = Callable[[str], None]

ATTEMPTS = 3
HEALTH_TIMEOUT_S = 3.0
# SGLang lets its warm-up outlive a SIGTERM by two minutes, in which nothing is served: not worth waiting for.
UNREADY_STOP_S = 5.0
_POLL_S = 0.2
_MODEL_INFO_TIMEOUT_S = 5.0
# model_info since 0.5.10; get_model_info before, deprecated after
_MODEL_INFO_PATHS = ("/model_info", "/get_model_info")
_FIRST_TOKEN = greedy("first-token", "Hello", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How a server ended when it was asked to: what was left of it is gone now."""

    seconds: float
    status: str
    ended_before: bool
    forced: bool
    orphans: tuple[str, ...]
    port_open: bool

    @property
    def clean(self) -> bool:
        """Whether SIGTERM to its first process was all it took."""
        return not (self.forced or self.orphans or self.port_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that has decoded its first token; ``ready_log`` is what it had logged by then."""

    url: str
    port: int
    argv: tuple[str, ...]
    log: Path
    service: proc.Service
    seconds_to_ready: float
    stop_s: float
    ready_log: str

    def ask(self, request: Request, *, timeout_s: float) -> Answer:
        """Send a request."""
        return send(self.url, request, timeout_s=timeout_s)

    def health(self) -> str:
        """Return what the server's own health route says: an HTTP status, ``timeout`` or ``disconnected``."""
        return str(self.ask(Request(name="health", path="/health"), timeout_s=HEALTH_TIMEOUT_S).status)

    def logged(self) -> str:
        """Return what the server has logged by now."""
        return serverlog.read(self.log)

    def ended(self) -> str | None:
        """Return how the server ended by itself, None while it runs."""
        return None if (status := self.service.poll()) is None else describe(status)

    def stop(self) -> Stopped:
        """Ask the first process to end, as a supervisor would, and report what that leaves behind."""
        return stop(self.service, self.port, grace_s=self.stop_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Deadlines in seconds: from the start to the first token, for one request, from SIGTERM to the end."""

    start_s: float
    request_s: float
    stop_s: float


@contextmanager
def serving(
    render: Callable[[int], LaunchScript],
    *,
    folder: Path,
    log: Path,
    pinned_port: int | None,
    patience: Patience,
    progress: Progress,
) -> Iterator[Server]:
    """Start a server, yield it when it has decoded a token, and leave nothing of it behind.

    Args:
        render: Returns the launch script for a port.
        folder: Where the script is written.
        log: The file that gets all output of the server.
        pinned_port: The port to use; None takes a free one, and another if somebody else is faster.
        patience: How long to wait.
        progress: Is told what the server waits for.

    Raises SmokeError ``port-taken``, ``launch-refused``, ``server-died``, ``server-start-timeout`` and
    ``healthy-but-no-decode``.
    """
    for attempt in range(1, ATTEMPTS + 1):
        port = pinned_port or ports.free_port()
        if ports.is_open(port):
            raise port_taken(port)
        script = render(port)
        script.write(folder)
        log.unlink(missing_ok=True)
        service = _spawn(folder / script.name, log)
        grace_s = min(UNREADY_STOP_S, patience.stop_s)
        try:
            try:
                server = _wait(service, script, port, log=log, patience=patience, progress=progress)
            except SmokeError as error:
                if error.code == "port-taken" and pinned_port is None and attempt < ATTEMPTS:
                    continue
                raise
            grace_s = patience.stop_s
            yield server
            return
        finally:
            stop(service, port, grace_s=grace_s)


def stop(service: proc.Service, port: int, *, grace_s: float) -> Stopped:
    """End a server; whatever happens meanwhile, nothing of its session survives.

    Only the first process gets SIGTERM: SGLang then ends its own children, and takes a child that was
    signalled beside it for a crash.
    """
    start = time.monotonic()
    ended_before = service.poll() is not None
    try:
        if not ended_before:
            os.kill(service.pid, signal.SIGTERM)
        forced = not _until(lambda: service.poll() is not None, grace_s)
        # a child may need a moment longer than its parent
        if not forced:
            _until(lambda: not service.members(), 1.0)
        orphans = tuple(_process(pid) for pid in service.members() if pid != service.pid)
    finally:
        service.stop(grace_s=0.0)
    return Stopped(
        seconds=time.monotonic() - start,
        status=describe(service.poll()),
        ended_before=ended_before,
        forced=forced,
        orphans=() if forced else orphans,
        port_open=ports.is_open(port),
    )


def describe(status: int | None) -> str:
    """Put an exit status into words; negative is a signal."""
    if status is None:
        return "still running"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def port_taken(port: int) -> SmokeError:
    """Return the error for a port that somebody else listens on."""
    pid = ports.holder(port)
    return SmokeError(
        code="port-taken",
        message=f"port {port} is taken by {_process(pid) if pid else 'a process that /proc does not show'}",
        hint="stop that process, or take `port` out of the profile: smoke then finds a free one",
    )


def _spawn(script: Path, log: Path) -> proc.Service:
    try:
        return proc.spawn(["bash", script], log=log)
    except proc.ProcessError as error:
        raise SmokeError(code=error.code, message=error.message, hint=error.hint) from error


def _wait(
    service: proc.Service, script: LaunchScript, port: int, *, log: Path, patience: Patience, progress: Progress
) -> Server:
    """Wait until the server has decoded one token."""
    url = f"http://{ports.LOOPBACK}:{port}"
    start = time.monotonic()
    follower = serverlog.LogFollower(path=log)
    paths = list(_MODEL_INFO_PATHS)
    answers = False
    reply: Answer | None = None
    while (left := start + patience.start_s - time.monotonic()) > 0:
        progress(f"{follower.update()} ({time.monotonic() - start:.0f} s)")
        if (status := service.poll()) is not None:
            raise _died(status, port, log)
        if not answers:
            asked = Request(name="model-info", path=paths[0])
            reply = send(url, asked, timeout_s=min(left, _MODEL_INFO_TIMEOUT_S))
            answers = reply.status == 200
            if answers and (pid := ports.holder(port)) and pid not in service.members():
                raise port_taken(port)  # somebody else was faster, and answers in its place
            if reply.status == 404 and len(paths) > 1:
                paths.pop(0)
        else:
            reply = send(url, _FIRST_TOKEN, timeout_s=min(left, patience.request_s))
            if reply.status == 200 and (first := generation(reply.response)) and first.completion_tokens:
                seconds = time.monotonic() - start
                return Server(
                    url=url,
                    port=port,
                    argv=script.argv,
                    log=log,
                    service=service,
                    seconds_to_ready=seconds,
                    stop_s=patience.stop_s,
                    ready_log=serverlog.read(log),
                )
            if reply.status == "timeout" and serverlog.exceptions(serverlog.read(log)):
                break
        time.sleep(_POLL_S)
    seconds = time.monotonic() - start
    raise (_no_decode(url, reply, seconds, log) if answers and reply else _too_late(seconds, follower.update(), log))


def _died(status: int, port: int, log: Path) -> SmokeError:
    """Return the error for a server that ended before it was ready."""
    text = serverlog.read(log)
    cause = serverlog.cause(text)
    if status == ScriptExit.PORT_TAKEN or (cause and "address already in use" in cause.lower()):
        return port_taken(port)
    if status in set(ScriptExit):
        refusals = [line for line in serverlog.tail(text) if "is not started" in line]
        return SmokeError(
            code="launch-refused",
            message=refusals[-1] if refusals else f"the launch script refused with status {status}",
            hint="put the model there, or correct the profile"
            if status == ScriptExit.MODEL_MISSING
            else "nox -s build",
            log=str(log),
        )
    oom = status == -signal.SIGKILL and not serverlog.exceptions(text)
    return SmokeError(
        code="server-died",
        message=f"the server ended before it was ready ({describe(status)}): {cause or 'it did not say why'}",
        context={"log": "\n".join(serverlog.tail(text))},
        hint="perhaps the kernel ran out of memory: dmesg | grep -i oom" if oom else f"read {log}",
        log=str(log),
    )


def _no_decode(url: str, last: Answer, seconds: float, log: Path) -> SmokeError:
    """Return the error for a server that answers and does not decode."""
    text = serverlog.read(log)
    health = send(url, Request(name="health", path="/health"), timeout_s=HEALTH_TIMEOUT_S).status
    return SmokeError(
        code="healthy-but-no-decode",
        message=f"the server answers (health is {health}), but after {seconds:.0f} s there was no completion "
        f"of one token (last answer: {last.status}){_because(text)}",
        context={"log": "\n".join(serverlog.tail(text))},
        hint=f"its scheduler is dead or stuck: read {log}",
        log=str(log),
    )


def _too_late(seconds: float, phase: str, log: Path) -> SmokeError:
    """Return the error for a server that was not up in time."""
    text = serverlog.read(log)
    return SmokeError(
        code="server-start-timeout",
        message=f"the server was not ready after {seconds:.0f} s; it was {phase}{_because(text)}",
        context={"log": "\n".join(serverlog.tail(text))},
        hint=f"if it was only slow, raise start-timeout-s in the profile; else read {log}",
        log=str(log),
    )


def _process(pid: int) -> str:
    return f"pid {pid} ({serverlog.shorten(ports.command_of(pid))})"


def _because(text: str) -> str:
    raised = serverlog.exceptions(text)
    return f"; its log holds {raised[-1]}" if raised else ""


def _until(happened: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not (done := happened()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done
