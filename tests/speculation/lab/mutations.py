"""Ways to break the fall-back: each takes away one thing that it must do, by an edit of its payload's text.

The edited payload is compiled in the module that the real one lives in, and bound to the worker in its place: the
same functions as installed (`test_installed` holds both against each other), with one difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, MethodType
from typing import Any

from speculation.lab.release import RELEASE

TOPIC = Path(__file__).parents[3] / "patches" / "sglang" / "speculation-threshold"
DECODE = "worker_decode.py"
NAMES = next(
    name
    for first, name in (((0, 5, 12), "names_0_5_12.py"), ((0, 5, 11), "names_0_5_11.py"), ((0,), "names_0_5_9.py"))
    if first <= RELEASE
)

Edit = tuple[str, str, str]
"""A payload, text in it that is there once, and what stands there instead."""

_SLOT = "[batch.req_pool_indices, batch.seq_lens]"
_LENGTHS = "batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum"
_PROPOSAL = "topk_p, topk_index = fast_topk(probs, self.topk, dim=-1)"
_DRAFT_HIDDEN = "hidden_states=draft_output.hidden_states"
_OLD_DRAFT_HIDDEN: Edit = (DECODE, _DRAFT_HIDDEN, "hidden_states=old.hidden_states")
_KEEP_OLD: Edit = (DECODE, "    # The lengths were made", "    old = batch.spec_info\n    # The lengths were made")

MUTATIONS: Mapping[str, tuple[Edit, ...]] = MappingProxyType(
    {
        "slot-of-next-token": ((DECODE, _SLOT, "[batch.req_pool_indices, batch.seq_lens + 1]"),),
        "target-lengths-not-advanced": (
            (DECODE, "batch.seq_lens_sum = batch.seq_lens_sum + len(batch.seq_lens)", "pass"),
            (DECODE, "batch.seq_lens_cpu = batch.seq_lens_cpu + 1", "pass"),
            (DECODE, "batch.seq_lens = batch.seq_lens + 1", "pass"),
        ),
        "lengths-advanced-in-place": ((DECODE, "batch.seq_lens = batch.seq_lens + 1", "batch.seq_lens.add_(1)"),),
        "lengths-not-restored": ((DECODE, f"{_LENGTHS} = seq_lens, seq_lens_cpu, seq_lens_sum", "pass"),),
        "spec-info-kept": ((DECODE, "batch.spec_info = None", "pass"),),
        "no-hidden-states": ((NAMES, "return CaptureHiddenMode.FULL", "return CaptureHiddenMode.NULL"),),
        "ids-not-padded": ((DECODE, "padded_ids.flatten()", "tokens"),),
        "nothing-accepted": ((DECODE, "accept_lens = torch.ones(", "accept_lens = torch.zeros("),),
        "no-draft-extend": (
            _KEEP_OLD,
            (DECODE, "return runner.forward(forward_batch, skip_attn_backend_init=True).logits_output", "return None"),
            (DECODE, "probs = torch.softmax(draft_output.next_token_logits, dim=-1)", "pass"),
            (DECODE, _PROPOSAL, "topk_p, topk_index = old.topk_p, old.topk_index"),
            _OLD_DRAFT_HIDDEN,
        ),
        "stale-draft-hidden": (_KEEP_OLD, _OLD_DRAFT_HIDDEN),
        "stale-proposal": (_KEEP_OLD, (DECODE, "topk_index=topk_index", "topk_index=old.topk_index")),
        "zero-hidden-to-draft": (
            (DECODE, "hidden_states=hidden_states,", "hidden_states=torch.zeros_like(hidden_states),"),
        ),
        "next-lengths-not-advanced": ((DECODE, "new_seq_lens=seq_lens + 1", "new_seq_lens=seq_lens"),),
        "penalties-kept": ((NAMES, "sampling_info.acc_linear_penalties = None", "pass"),),
        "logit-bias-kept": ((NAMES, "sampling_info.logit_bias = None", "pass"),),
        "logprobs-as-of-plain-decode": ((DECODE, "logprobs.unsqueeze(1)", "logprobs"),),
    }
)
"""Mutations by name."""

RIGHT_TOKENS = (
    "lengths-not-restored",
    "no-draft-extend",
    "stale-draft-hidden",
    "stale-proposal",
    "zero-hidden-to-draft",
)
"""Those under which every request still says what it should: only state and acceptance show them."""


def mutated(worker: Any, name: str) -> Callable[[Any], Any]:
    """Return the worker's plain decode with a mutation; the worker itself keeps its own."""
    from sglang.srt.speculative import eagle_worker_v2

    functions: dict[str, Any] = {}
    for payload in (DECODE, NAMES):
        functions |= _compiled(_edited(payload, MUTATIONS[name]), vars(eagle_worker_v2))
    return MethodType(functions["_forward_decode_without_spec"], _Overlay(worker, functions))


def _edited(payload: str, edits: tuple[Edit, ...]) -> str:
    text = (TOPIC / "payload" / payload).read_text()
    for file, old, new in edits:
        if file == payload:
            assert text.count(old) == 1, f"{payload} has {text.count(old)} times {old!r}"
            text = text.replace(old, new)
    return text


def _compiled(text: str, module: Mapping[str, object]) -> dict[str, Any]:
    namespace = dict(module)
    exec(compile(text, "mutated payload", "exec"), namespace)
    return {name: value for name, value in namespace.items() if module.get(name) is not value and callable(value)}


class _Overlay:
    """A worker with other methods for as long as a mutation runs: what is not in them is the worker's."""

    def __init__(self, worker: Any, functions: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_worker", worker)
        object.__setattr__(self, "_functions", functions)

    def __getattr__(self, name: str) -> Any:
        if name in self._functions:
            return MethodType(self._functions[name], self)
        return getattr(self._worker, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._worker, name, value)
