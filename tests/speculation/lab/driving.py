"""Drive a scheduler's own loop: requests go in where the tokenizer's arrive, tokens come out where they leave."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speculation.lab.protocol import Ask, Client, Job

IDLE_TURNS = 4
LIMIT_S = 540


class _Done(Exception):  # noqa: N818 - the loop of a scheduler has no other end
    """Every request has ended."""


@dataclass(kw_only=True)
class Received:
    """Stands where the detokenizer's socket is."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, list[float]] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)

    def send_output(self, output: Any, _request: object = None) -> None:
        """Take a batch of what requests have to say since last time."""
        if not hasattr(output, "output_ids"):
            if getattr(output, "rid", None):  # ended before it ran
                self.finished[output.rid] = "abort"
            return
        for number, name in enumerate(output.rids):
            self.tokens.setdefault(name, []).extend(output.output_ids[number])
            if output.output_token_logprobs_val and output.output_token_logprobs_val[number]:
                self.logprobs.setdefault(name, []).extend(output.output_token_logprobs_val[number])
            reason = output.finished_reasons[number]
            if reason is not None:
                assert name not in self.finished, f"{name} ended twice"
                self.finished[name] = reason["type"]
                self.cached[name] = output.cached_tokens[number]


@dataclass(kw_only=True)
class Driver:
    """Sends the requests of a job as its clients would."""

    job: Job
    scheduler: Any
    received: Received = field(default_factory=Received)
    turn: int = 0
    idle: int = 0
    deadline: float = 0.0
    sent: dict[int, int] = field(default_factory=dict)
    due: dict[tuple[int, int], int] = field(default_factory=dict)

    def run(self) -> Received:
        """Run the scheduler's loop until every request has ended; what it raises comes out."""
        scheduler = self.scheduler
        scheduler.send_to_detokenizer = self.received
        scheduler.recv_requests = self._turn
        scheduler.last_batch = None
        self.deadline = time.monotonic() + LIMIT_S
        try:
            scheduler.run_event_loop() if hasattr(scheduler, "run_event_loop") else scheduler.event_loop_overlap()
        except _Done:
            return self.received
        raise AssertionError("the loop ended by itself")

    def _turn(self) -> list[object]:
        self.turn += 1
        total = sum(len(client) for client in self.job.clients)
        if len(self.received.finished) == total:
            self.idle += 1
            if self.idle > IDLE_TURNS:
                raise _Done
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"ended: {sorted(self.received.finished)} of {total}")
        new = [_request(ask, self.scheduler.tokenizer) for ask in self._ready()]
        if name := self.job.aborts.get(self.turn):
            new.append(_abort(name))
        return new

    def _ready(self) -> list[Ask]:
        ready: list[Ask] = []
        for number, client in enumerate(self.job.clients):
            position = self.sent.get(number, 0)
            if position < len(client) and self._is_due(number, position, client):
                ready.append(client[position])
                self.sent[number] = position + 1
        return ready

    def _is_due(self, number: int, position: int, client: Client) -> bool:
        if position == 0:
            return self.turn >= number * self.job.start_gap
        if client[position - 1].name not in self.received.finished:
            return False
        pause = (7 * number + 5 * position) % self.job.pause if self.job.pause else 0
        return self.turn >= self.due.setdefault((number, position), self.turn + pause)


def threshold_chooser(worker: Any, thresholds: Sequence[int]) -> Any:
    """Return what sets the worker's threshold before each step: the only one, or one at random."""
    drawn = random.Random(5)

    def choose() -> None:
        worker.spec_disable_batch_threshold = drawn.choice(thresholds)

    return choose


def _request(ask: Ask, tokenizer: Any) -> Any:
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    wanted: Mapping[str, Any] = {"temperature": 0, "ignore_eos": True, **ask.sampling}
    sampling = SamplingParams(max_new_tokens=ask.tokens, **wanted)
    sampling.normalize(tokenizer)
    return TokenizedGenerateReqInput(
        rid=ask.name,
        input_text="",
        input_ids=list(ask.prompt),
        mm_inputs=None,
        sampling_params=sampling,
        return_logprob=ask.logprobs,
        logprob_start_len=-1,
        top_logprobs_num=2 if ask.logprobs else 0,
        token_ids_logprob=None,
        stream=True,
    )


def _abort(name: str) -> Any:
    from sglang.srt.managers.io_struct import AbortReq

    return AbortReq(rid=name)
