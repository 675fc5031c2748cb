"""Attention in plain torch for SGLang's two Triton attention kernels: the same arguments, the same metadata.

What is tested is which metadata the kernels get: it is read here as the kernels read it, and rows and lengths must
agree. In the interpreter the kernels themselves take 20 times longer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def install() -> None:
    """Put the replacements where SGLang's Triton backend takes its kernels from; before a scheduler is built."""
    from sglang.srt.layers.attention.triton_ops import decode_attention, extend_attention

    decode_attention.decode_attention_fwd = _named(decode_attention.decode_attention_fwd, _decode)
    extend_attention.extend_attention_fwd = _named(extend_attention.extend_attention_fwd, _extend)


def _named(original: Callable[..., Any], replacement: Callable[..., None]) -> Callable[..., None]:
    """Return a function that takes the original's arguments and passes them by name: releases add some in between."""
    signature = inspect.signature(original)

    def call(*arguments: object, **named: object) -> None:
        replacement(**signature.bind(*arguments, **named).arguments)

    return call


def _decode(
    *,
    q: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    o: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    sm_scale: float,
    **_: object,
) -> None:
    """Attend from one row per request to the slots that its stretch of ``kv_indices`` names."""
    bounds = kv_indptr.tolist()
    assert len(bounds) - 1 == len(q), f"{len(q)} rows, metadata of {len(bounds) - 1}"
    for row in range(len(q)):
        slots = kv_indices[bounds[row] : bounds[row + 1]]
        o[row] = _attend(q[row : row + 1], k_buffer[slots], v_buffer[slots], sm_scale, None)[0]


def _extend(
    *,
    q_extend: Tensor,
    k_extend: Tensor,
    v_extend: Tensor,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    qo_indptr: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    custom_mask: Tensor | None,
    mask_indptr: Tensor | None,
    sm_scale: float,
    **_: object,
) -> None:
    """Attend from several new rows per request to its cached slots and to the new rows that the mask allows."""
    rows, bounds = qo_indptr.tolist(), kv_indptr.tolist()
    assert rows[-1] == len(q_extend), f"{len(q_extend)} rows, metadata of {rows[-1]}"
    for number, (first, last) in enumerate(pairwise(rows)):
        slots = kv_indices[bounds[number] : bounds[number + 1]]
        cached, new = len(slots), last - first
        keys, values = k_extend[first:last], v_extend[first:last]
        if cached:  # compressed caches hold other shapes than the rows of a prompt's beginning
            keys, values = torch.cat((k_buffer[slots], keys)), torch.cat((v_buffer[slots], values))
        mask = torch.cat((torch.ones(new, cached, dtype=torch.bool), torch.ones(new, new).tril().bool()), dim=1)
        if custom_mask is not None and mask_indptr is not None:
            start = int(mask_indptr[number])
            mask = custom_mask[start : start + mask.numel()].view(mask.shape).bool()
        o_extend[first:last] = _attend(q_extend[first:last], keys, values, sm_scale, mask)


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """Return the attention of [T, heads, d] over [N, kv heads, d]; the mask is [T, N], true where it may look."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1).transpose(0, 1) for x in (keys, values))
    scores = query.transpose(0, 1) @ keys.transpose(1, 2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(dim=-1) @ values).transpose(0, 1)
