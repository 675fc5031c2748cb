"""Wait until a server has decoded a token, and say why it has not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.base import proc
from sglforge.errors import SmokeError
from sglforge.launch.render import ScriptExit
from sglforge.smoke import ports, serverlog
from sglforge.smoke.client import Answer, Request, send
from sglforge.smoke.deadline import Deadline, Patience
from sglforge.smoke.ending import describe, explain
from sglforge.smoke.generation import generation, greedy
from sglforge.smoke.oom import oom_kills
from sglforge.smoke.remains import Watch
from sglforge.smoke.startlog import StartLog

HEALTH_TIMEOUT_S = 3.0
_POLL_S = 0.2
_LOOK_S = 2.0
_MODEL_INFO_TIMEOUT_S = 5.0
# model_info since 0.5.10; get_model_info before, deprecated after
_MODEL_INFO_PATHS = ("/model_info", "/get_model_info")
_FIRST_TOKEN = greedy("first-token", "Hello", 1)


@dataclass(slots=True, kw_only=True)
class Start:
    """One start of a server, from its first process to its first token."""

    service: proc.Service
    port: int
    log: Path
    patience: Patience
    watch: Watch
    progress: Callable[[str], None]
    follower: StartLog = field(init=False)
    deadline: Deadline = field(init=False)
    _oom_kills: int = field(init=False)
    _paths: list[str] = field(default_factory=lambda: list(_MODEL_INFO_PATHS))
    _answers: bool = False
    _reply: Answer | None = None
    _looked: float = 0.0

    def __post_init__(self) -> None:
        """Count from now."""
        self.follower = StartLog(path=self.log)
        self.deadline = Deadline(patience=self.patience, members=self.service.members)
        self._oom_kills = oom_kills()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{ports.LOOPBACK}:{self.port}"

    def wait(self) -> float:
        """Return after how many seconds it decoded its first token.

        Raises SmokeError ``port-taken``, ``launch-refused``, ``server-died``, ``server-start-timeout``,
        ``server-start-stuck`` and ``healthy-but-no-decode``.
        """
        while True:
            self.progress(f"{self._look()} ({self.deadline.waited:.0f} s)")
            if (status := self.service.poll()) is not None:
                raise _died(status, self.port, self.log, oom_kills() - self._oom_kills)
            left = self.deadline.left(self.follower.progress)
            if left <= 0:
                raise self._late()
            if (idle := self.deadline.stuck_since(self.follower.news)) is not None:
                raise self._stuck(idle)
            if self._decodes(left):
                return self.deadline.waited
            if self._answers and self._reply and self._reply.status == "timeout" and serverlog.exceptions(self._text()):
                raise self._late()
            time.sleep(_POLL_S)

    def _look(self) -> str:
        """See what log and processes say."""
        note = self.follower.update()
        self.deadline.activity.update()
        if time.monotonic() - self._looked >= _LOOK_S:
            self._looked = time.monotonic()
            self.watch.look(self.service.members())
        compiling = self.deadline.activity.note()
        return f"{note}; {compiling}" if compiling else note

    def _decodes(self, left: float) -> bool:
        """Ask once: first whether it answers at all, then for a token."""
        if self._answers:
            self._reply = send(self.url, _FIRST_TOKEN, timeout_s=min(left, self.patience.request_s))
            first = generation(self._reply.response) if self._reply.status == 200 else None
            return bool(first and first.completion_tokens)
        asked = Request(name="model-info", path=self._paths[0])
        self._reply = send(self.url, asked, timeout_s=min(left, _MODEL_INFO_TIMEOUT_S))
        self._answers = self._reply.status == 200
        if self._answers and (pid := ports.holder(self.port)) and pid not in self.service.members():
            raise ports.taken(self.port)  # somebody else was faster, and answers in its place
        if self._reply.status == 404 and len(self._paths) > 1:
            self._paths.pop(0)
        return False

    def _text(self) -> str:
        return serverlog.read(self.log)

    def _late(self) -> SmokeError:
        """Return the error for a server that was not ready in time."""
        seconds = self.deadline.waited
        if self._answers and self._reply:
            return _no_decode(self.url, self._reply, seconds, self.log)
        text = self._text()
        cap = f", extended up to {self.patience.cap_s:.0f} s while it got on" if self.patience.cap_s else ""
        return SmokeError(
            code="server-start-timeout",
            message=f"the server was not ready after {seconds:.0f} s; it was {self._look()}{_because(text)}",
            context={
                "allowed": f"{self.patience.start_s:.0f} s ({self.patience.because}){cap}",
                "log": "\n".join(serverlog.tail(text)),
            },
            hint=f"if it was only slow, raise start-timeout-s in the profile; else read {self.log}",
            log=str(self.log),
        )

    def _stuck(self, idle: float) -> SmokeError:
        """Return the error for a server that does nothing at all."""
        text = self._text()
        return SmokeError(
            code="server-start-stuck",
            message=f"the server is stuck: since {idle:.0f} s it says, computes and reads nothing; the last that it "
            f"said is {self.follower.step.name}{_because(text)}",
            context={"log": "\n".join(serverlog.tail(text))},
            hint="it waits for somebody: a peer, a download, a lock; if it needs that long, set start-timeout-s in the "
            "profile",
            log=str(self.log),
        )


def _died(status: int, port: int, log: Path, kills: int) -> SmokeError:
    """Return the error for a server that ended before it was ready."""
    text = serverlog.read(log)
    ending = explain(status, text, oom_kills=kills)
    if status == ScriptExit.PORT_TAKEN or (ending.name == "port" and str(port) in ending.evidence):
        return ports.taken(port)
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
    where = f" ({log.name}, line {ending.line}: {ending.evidence})" if ending.line else ""
    return SmokeError(
        code="server-died",
        message=f"the server ended before it was ready, {describe(status)}: {ending.sentence}{where}",
        context={"cause": ending.name, "log": "\n".join(serverlog.tail(text))},
        hint=ending.then or f"read {log}",
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


def _because(text: str) -> str:
    raised = serverlog.exceptions(text)
    return f"; its log holds {raised[-1]}" if raised else ""
