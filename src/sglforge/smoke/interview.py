"""Ask a server what probes want to know, and keep everything that a judge may need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from sglforge.smoke.client import Answer, Request
from sglforge.smoke.openai import translated
from sglforge.smoke.probes.lifecycle import ALIVE_AFTER
from sglforge.smoke.probes.model import Probe, Waves, unanswered
from sglforge.smoke.server import Progress
from sglforge.smoke.site import Site
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Look, Observed, Role

SETTLE_S = 2.0
_ROUNDS = 8
"""How often a probe may ask again after it has seen answers."""


class Served(Protocol):
    """A server that can be asked: one of ours, or one that somebody else runs."""

    @property
    def ready_log(self) -> str:
        """What it had logged when it was ready; nothing where its log is not ours."""

    def ask(self, request: Request, *, timeout_s: float) -> Answer:
        """Send a request."""

    def health(self) -> str:
        """Return what its own health route says."""

    def ended(self) -> str | None:
        """Return how it ended by itself, None while it runs."""

    def logged(self) -> str:
        """Return what it has logged by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interview:
    """The conversation with one server.

    Attributes:
        subject: What is asked.
        role: Which of the two servers it is.
        server: Who answers.
        timeout_s: How long an answer may take, unless its request says otherwise.
        site: Where it runs, None where that cannot be seen.
        noise: By how much equal requests differed here before, in nats.
        progress: Is told what happens now.
    """

    subject: Subject
    role: Role
    server: Served
    timeout_s: float
    site: Site | None = None
    noise: float | None = None
    progress: Progress = field(default=lambda _note: None)
    _at_ready: dict[str, Look] = field(default_factory=dict)

    def look_first(self, probes: Sequence[Probe]) -> None:
        """Let the probes that look from outside see the server before anything is asked."""
        for probe in probes:
            if seen := self._look(probe):
                self._at_ready[probe.name] = seen

    def ask(self, probe: Probe, waves: Waves) -> tuple[Exchange, ...]:
        """Send waves, one after the other, until an answer is missing."""
        return self._asked(probe, waves, [])

    def send(self, wave: Sequence[Request]) -> list[tuple[Request, Answer]]:
        """Send requests at the same time, in the words that the server understands; return them with their answers."""
        words = wave if self.subject.api == "sglang" else [translated(one, self.subject.model) for one in wave]
        return list(zip(words, _send(self.server, words, self.timeout_s), strict=True))

    def observe(self, probe: Probe, control: tuple[Exchange, ...] = ()) -> Observed:
        """Ask everything that a probe wants to know; ``control`` is what the control server answered it."""
        self.progress(f"{self.role} server: {probe.name}")
        if probe is ALIVE_AFTER:
            time.sleep(SETTLE_S)  # a server that dies of the last request may need a moment for it
        looks = [self._at_ready[probe.name]] if probe.name in self._at_ready else []
        if probe.look and (seen := self._look(probe)):
            looks.append(seen)
        asked = self._asked(probe, probe.requests(self.subject), looks)
        for _ in range(_ROUNDS):
            if silent(asked):
                break
            so_far = self._observed(asked, control, looks)
            if unanswered(probe, so_far) or not (more := probe.follow_up(so_far)):
                break
            asked += self._asked(probe, more, looks)
        if silent(asked):
            time.sleep(SETTLE_S)  # so may one that has dropped a connection
        return self._observed(asked, control, looks)

    def _asked(self, probe: Probe, waves: Waves, looks: list[Look]) -> tuple[Exchange, ...]:
        asked: list[Exchange] = []
        for native in waves:
            asked += [
                Exchange(probe=probe.name, server=self.role, request=request, answer=answer)
                for request, answer in self.send(native)
            ]
            if silent(asked):
                break
            if seen := self._look(probe):
                looks.append(seen)
        return tuple(asked)

    def _look(self, probe: Probe) -> Look | None:
        return probe.look(self.site) if probe.look and self.site else None

    def _observed(self, asked: tuple[Exchange, ...], control: tuple[Exchange, ...], looks: Sequence[Look]) -> Observed:
        return Observed(
            subject=self.subject,
            exchanges=asked,
            control=control,
            ready_log=self.server.ready_log,
            log=self.server.logged(),
            ended=self.server.ended(),
            health=self.server.health() if silent(asked) else None,
            looks=tuple(looks),
            noise=self.noise,
        )


def silent(asked: Sequence[Exchange]) -> bool:
    """Say whether an answer is missing altogether; one that we did not wait for is not."""
    return any(not isinstance(exchange.status, int) for exchange in asked)


def server_info(ask: Callable[[Request], Answer]) -> Mapping[str, object]:
    """Return what SGLang says of itself (``/server_info``; ``/get_server_info`` before 0.5.10), else nothing."""
    for path in ("/server_info", "/get_server_info"):
        answer = ask(Request(name="server-info", path=path))
        if answer.status == 200 and isinstance(answer.response, Mapping):
            return answer.response
    return {}


def _send(server: Served, wave: Sequence[Request], timeout_s: float) -> list[Answer]:
    """Send the requests of one wave at the same time and return the answers in order."""
    if len(wave) == 1:
        return [server.ask(wave[0], timeout_s=timeout_s)]
    pool = ThreadPoolExecutor(max_workers=len(wave))
    try:
        waiting = [pool.submit(server.ask, request, timeout_s=timeout_s) for request in wave]
        return [answer.result() for answer in waiting]
    finally:
        # after Ctrl-C nobody waits for answers: the server is about to be ended
        pool.shutdown(wait=False, cancel_futures=True)
