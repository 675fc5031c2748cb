"""Record each decode step of a worker, and compare the whole state after it with the references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from speculation.lab.protocol import Fault, Row, Step
from speculation.lab.references import References, Truth

KV_TOLERANCE = 1e-4
HIDDEN_TOLERANCE = 1e-3


@dataclass(kw_only=True)
class Watcher:
    """Stands in front of a worker's ``forward_batch_generation``.

    ``texts`` are the whole texts by request, longer than what is asked for. ``choose`` sets the worker up before each
    step.
    """

    scheduler: Any
    references: References
    texts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    check_state: bool = True
    choose: Callable[[], None] = lambda: None
    steps: list[Step] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    checked_rows: int = 0
    _plain: bool = False

    @property
    def worker(self) -> Any:
        """The worker that is watched."""
        return self.scheduler.model_worker

    def attach(self) -> None:
        """Begin to watch."""
        forward = self.worker.forward_batch_generation

        def watched(batch: Any) -> Any:
            if not batch.forward_mode.is_decode():
                return forward(batch)
            self.choose()
            names = [request.rid for request in batch.reqs]
            slots, lengths = batch.req_pool_indices.tolist(), batch.seq_lens.tolist()
            self._plain = False
            result = forward(batch)
            self._record(names, slots, lengths, result)
            return result

        self.worker.forward_batch_generation = watched

    def watch_fallback(self, fallback: Callable[[Any], Any]) -> None:
        """Take a function as the worker's plain decode, and note when it runs."""

        def noted(batch: Any) -> Any:
            self._plain = True
            return fallback(batch)

        self.worker._forward_decode_without_spec = noted

    def _record(self, names: list[str], slots: list[int], lengths: list[int], result: Any) -> None:
        accepted = [length - 1 for length in result.accept_lens.tolist()]
        steps = self.references.setup.steps
        rows = tuple(
            Row(
                name=name,
                length=length,
                accepted=count,
                expected=None
                if self._plain or name not in self.texts
                else self.references.accepted(self.texts[name], length, steps),
            )
            for name, length, count in zip(names, lengths, accepted, strict=True)
        )
        self.steps.append(Step(plain=self._plain, rows=rows))
        if self.check_state:
            for number, row in enumerate(rows):
                if row.name in self.texts:
                    self._check(number, row, slots[number], result.next_draft_input)

    def _check(self, number: int, row: Row, slot: int, draft_input: Any) -> None:
        """Compare target KV, draft KV, last token, length and proposal of one request."""
        truth = self.references.truth(self.texts[row.name])
        length = row.length + row.accepted + 1
        if length >= len(truth.tokens) - 1:
            return
        self.checked_rows += 1
        places = self.scheduler.req_to_token_pool.req_to_token[slot, :length].long()
        if len(set(places.tolist())) != length:
            self._fault("slots not unique", row)
        target, draft = self.worker.target_worker.model_runner, self.worker.draft_worker.draft_runner
        self._check_kv("target KV", row, target.token_to_kv_pool, places, truth.target_kv)
        self._check_kv("draft KV", row, draft.token_to_kv_pool, places, truth.draft_kv)
        self._check_input(number, row, length, draft_input, truth)

    def _check_kv(self, kind: str, row: Row, pool: Any, places: Any, layers: Any) -> None:
        for layer, (keys, values) in enumerate(layers):
            pairs = ((pool.get_key_buffer(layer), keys), (pool.get_value_buffer(layer), values))
            worst = max(_distance(buffer[places], right[: len(places)]) for buffer, right in pairs)
            if worst > KV_TOLERANCE:
                self._fault(kind, row, f"layer {layer}: {worst:.2e}")

    def _check_input(self, number: int, row: Row, length: int, draft_input: Any, truth: Truth) -> None:
        last = getattr(draft_input, "verified_id", None)
        last = draft_input.bonus_tokens if last is None else last
        if int(last[number]) != truth.tokens[length]:
            self._fault("last token", row)
        if int(draft_input.new_seq_lens[number]) != length:
            self._fault("length", row)
        if int(draft_input.topk_index[number, 0]) != int(truth.drafted[length - 1]):
            self._fault("proposal", row)
        if truth.draft_hidden is not None:
            worst = _distance(draft_input.hidden_states[number], truth.draft_hidden[length - 1])
            if worst > HIDDEN_TOLERANCE:
                self._fault("draft hidden state", row, f"{worst:.2e}")

    def _fault(self, kind: str, row: Row, detail: str = "") -> None:
        self.faults.append(Fault(kind=kind, name=row.name, length=row.length, plain=self._plain, detail=detail))


def _distance(one: torch.Tensor, two: torch.Tensor) -> float:
    return float((one - two).abs().max())
