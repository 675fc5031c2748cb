"""The life of one server: start it, have it waited for, end it, look for remains."""

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
from sglforge.launch.render import LaunchScript
from sglforge.smoke import ports, serverlog
from sglforge.smoke.client import Answer, Request, send
from sglforge.smoke.deadline import Patience
from sglforge.smoke.ending import describe
from sglforge.smoke.remains import Remains, Watch
from sglforge.smoke.starting import HEALTH_TIMEOUT_S, Start

Progress = Callable[[str], None]

ATTEMPTS = 3
# SGLang lets its warm-up outlive a SIGTERM by two minutes, in which nothing is served: not worth waiting for.
UNREADY_STOP_S = 5.0
# What is left of a server that has ended may need it: its children, and on a busy machine its sockets.
MOMENT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How a server ended when it was asked to: what was left of it is gone now.

    Of shared memory, names and sizes: ``shared_memory`` was the server's and has been removed; ``known_leaks`` too, but
    every server of that SGLang leaves it; ``perhaps`` came while it ran, may be somebody else's, and stays. ``ports``
    are those that something still listened on when its first process had ended.
    """

    seconds: float
    status: str
    ended_before: bool
    forced: bool
    orphans: tuple[str, ...]
    port_open: bool
    shared_memory: tuple[str, ...] = ()
    known_leaks: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def untidy(self) -> bool:
        """Whether it left shared memory that it had the time to remove."""
        return bool(self.shared_memory) and not (self.ended_before or self.forced)

    @property
    def clean(self) -> bool:
        """Whether SIGTERM to its first process was all it took."""
        return not (self.forced or self.orphans or self.port_open or self.ports or self.untidy)


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
    watch: Watch | None = None

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
        return stop(self.service, self.port, grace_s=self.stop_s, watch=self.watch)


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
            raise ports.taken(port)
        script = render(port)
        script.write(folder)
        log.unlink(missing_ok=True)
        watch = Watch()
        service = _spawn(folder / script.name, log)
        grace_s = min(UNREADY_STOP_S, patience.stop_s)
        try:
            try:
                start = Start(service=service, port=port, log=log, patience=patience, watch=watch, progress=progress)
                seconds = start.wait()
            except SmokeError as error:
                if error.code == "port-taken" and pinned_port is None and attempt < ATTEMPTS:
                    continue
                raise
            grace_s = patience.stop_s
            yield Server(
                url=start.url,
                port=port,
                argv=script.argv,
                log=log,
                service=service,
                seconds_to_ready=seconds,
                stop_s=patience.stop_s,
                ready_log=serverlog.read(log),
                watch=watch,
            )
            return
        finally:
            stop(service, port, grace_s=grace_s, watch=watch)


def stop(service: proc.Service, port: int, *, grace_s: float, watch: Watch | None = None) -> Stopped:
    """End a server; whatever happens meanwhile, nothing of it survives.

    Only the first process gets SIGTERM: SGLang then ends its own children, and takes a child that was
    signalled beside it for a crash.

    Args:
        service: Its processes.
        port: What it listens on.
        grace_s: Seconds that it may take after SIGTERM.
        watch: What was there before it started; None looks for processes and its port only.
    """
    start = time.monotonic()
    ended_before = service.poll() is not None
    left: tuple[int, ...] = ()
    orphans: tuple[str, ...] = ()
    forced = False
    try:
        if watch:
            watch.look(service.members())
        if not ended_before:
            os.kill(service.pid, signal.SIGTERM)
        forced = not _until(lambda: service.poll() is not None, grace_s)
        if not forced:
            _until(lambda: not service.members(), MOMENT_S)
            orphans = tuple(ports.process(pid) for pid in service.members() if pid != service.pid)
            left = _still_listening(watch, within_s=0.0 if orphans else MOMENT_S)
    finally:
        if watch:
            watch.look(service.members())
        service.stop(grace_s=0.0)
        _still_listening(watch, within_s=MOMENT_S)
        remains = watch.clear() if watch else Remains()
    return Stopped(
        seconds=time.monotonic() - start,
        status=describe(service.poll()),
        ended_before=ended_before,
        forced=forced,
        orphans=orphans,
        port_open=ports.is_open(port),
        shared_memory=tuple(str(segment) for segment in remains.removed if not segment.known_leak),
        known_leaks=tuple(str(segment) for segment in remains.removed if segment.known_leak),
        perhaps=tuple(map(str, remains.perhaps)),
        ports=left or remains.ports,
    )


def _still_listening(watch: Watch | None, *, within_s: float) -> tuple[int, ...]:
    """Return the ports that do not close in time: threads of a process that has ended may hold them for a moment."""
    if watch is None:
        return ()
    _until(lambda: not watch.listening(), within_s)
    return watch.listening()


def _spawn(script: Path, log: Path) -> proc.Service:
    try:
        return proc.spawn(["bash", script], log=log)
    except proc.ProcessError as error:
        raise SmokeError(code=error.code, message=error.message, hint=error.hint) from error


def _until(happened: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not (done := happened()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done
