"""Attention over lists of KV slots: the arithmetic of SGLang's ``triton`` attention backend.

``srt/layers/attention/triton_backend.py`` describes a batch by index lists instead of rows of ``req_to_token``:
``kv_indices[kv_indptr[i]:kv_indptr[i + 1]]`` are the slots of request ``i``, in order of position. The patch topic
``cpu-triton-attention-in-torch`` sends CPU tensors here with that metadata unchanged. The contract is read off the
Triton kernels of SGLang 0.5.9 to 0.5.12.post1 (``srt/layers/attention/triton_ops/decode_attention.py`` and
``extend_attention.py``). Scores, softmax and the weighted sum are computed in float32 (float64 for float64 queries).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgl_kernel.attention import Scoring, attend, check_heads
from sgl_kernel.checks import require, require_numel, require_range, require_shape


def decode_attention_indexed_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    output: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    sm_scale: float,
    logit_cap: float = 0.0,
    sinks: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """Attend with one token per request, whose own K and V are in the cache already.

    Stands in for ``decode_attention_fwd``, called by ``TritonAttnBackend.forward_decode``.

    Args:
        query: [bs, num_heads, head_dim].
        k_buffer: [num_slots, num_kv_heads, head_dim].
        v_buffer: [num_slots, num_kv_heads, v_head_dim].
        output: [bs, num_heads, v_head_dim], **written**.
        kv_indptr: [>= bs + 1] integer, where each request's slots begin and end in ``kv_indices``.
        kv_indices: [>= kv_indptr[bs]] integer.
        sm_scale: factor on the scores.
        logit_cap: scores become ``cap * tanh(score / cap)``; 0 for none.
        sinks: [num_heads] or None, one extra logit per head that takes weight and gives no value.
        k_scale: what a value read from ``k_buffer`` is multiplied with.
        v_scale: the same for ``v_buffer``.

    Raises:
        ValueError: when shapes do not fit, a slot is not in the cache, or a request has no token.
    """
    batch = query.shape[0]
    check_heads(query, k_buffer, v_buffer, output)
    bounds = _bounds("kv_indptr", kv_indptr, batch, kv_indices.numel())
    slots = _slots(kv_indices, bounds[-1], k_buffer)
    scoring = Scoring(scale=sm_scale, logit_cap=logit_cap, sinks=sinks)
    for i in range(batch):
        require(bounds[i] < bounds[i + 1], f"request {i} has no token to attend to")
        own = slots[bounds[i] : bounds[i + 1]]
        keys, values = k_buffer[own] * k_scale, v_buffer[own] * v_scale
        output[i : i + 1] = attend(query[i : i + 1], keys, values, None, scoring).to(output.dtype)


def extend_attention_indexed_cpu(
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
    is_causal: bool,
    mask_indptr: Tensor | None,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    skip_prefix_custom_mask: bool = True,
    sliding_window_size: int = -1,
    sinks: Tensor | None = None,
    window_kv_offsets: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """Attend with several new tokens per request: prefill, verification of a draft tree, extension of a draft.

    ``kv_indices`` lists the prefix only; new tokens are read from ``k_extend`` and ``v_extend``. Stands in for
    ``extend_attention_fwd``, called by ``TritonAttnBackend.forward_extend``.

    Args:
        q_extend: [num_tokens, num_heads, head_dim]; request ``i`` owns rows ``qo_indptr[i]`` to ``qo_indptr[i + 1]``.
        k_extend: [num_tokens, num_kv_heads, head_dim].
        v_extend: [num_tokens, num_kv_heads, v_head_dim].
        o_extend: [num_tokens, num_heads, v_head_dim], **written** in the rows of the requests.
        k_buffer: [num_slots, num_kv_heads, head_dim].
        v_buffer: [num_slots, num_kv_heads, v_head_dim].
        qo_indptr: [bs + 1] integer; its length says how many requests there are.
        kv_indptr: [>= bs + 1] integer, where each prefix begins and ends in ``kv_indices``.
        kv_indices: [>= kv_indptr[bs]] integer.
        custom_mask: flat bool or None. The cells of request ``i`` begin at ``mask_indptr[i]``: one row per new token,
            one column per token of the request (with a sliding window also those in front of it). It replaces
            causality among the new tokens.
        is_causal: without a mask, whether a new token sees only itself and earlier ones.
        mask_indptr: [>= bs + 1] integer, needed with a mask.
        sm_scale: factor on the scores; ``head_dim ** -0.5`` when None.
        logit_cap: as in :func:`decode_attention_indexed_cpu`.
        skip_prefix_custom_mask: whether every new token sees the whole prefix, whatever the mask says of it.
        sliding_window_size: how many tokens before itself a token sees; 0 or less for all. The prefix list begins at
            the window of the first new token then. A tree node counts from its row, not from its depth.
        sinks: as in :func:`decode_attention_indexed_cpu`.
        window_kv_offsets: [>= bs] integer, tokens in front of each prefix list; needed with a mask and a window.
        k_scale: as in :func:`decode_attention_indexed_cpu`; new tokens are not scaled.
        v_scale: the same.

    Raises:
        ValueError: when shapes do not fit, or a slot is not in the cache.
    """
    batch = qo_indptr.numel() - 1
    check_heads(q_extend, k_buffer, v_buffer, o_extend)
    require_shape("k_extend", k_extend, (q_extend.shape[0], *k_buffer.shape[1:]))
    require_shape("v_extend", v_extend, (q_extend.shape[0], *v_buffer.shape[1:]))
    rows = _bounds("qo_indptr", qo_indptr, batch, q_extend.shape[0])
    prefixes = _bounds("kv_indptr", kv_indptr, batch, kv_indices.numel())
    slots = _slots(kv_indices, prefixes[-1], k_buffer)
    scale = q_extend.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    scoring = Scoring(scale=scale, logit_cap=logit_cap, sinks=sinks)
    masks = _custom_masks(custom_mask, mask_indptr, window_kv_offsets if sliding_window_size > 0 else None, batch)
    for i in range(batch):
        own, prefix = slice(rows[i], rows[i + 1]), slots[prefixes[i] : prefixes[i + 1]]
        extent = Extent(prefix=prefix.numel(), new=rows[i + 1] - rows[i])
        if extent.new == 0:
            continue
        visible = masks.of(i, extent, prefix_too=not skip_prefix_custom_mask) if masks else extent.all_of(is_causal)
        if sliding_window_size > 0:
            visible = visible & extent.window(sliding_window_size)
        keys = torch.cat([k_buffer[prefix].to(k_extend.dtype) * k_scale, k_extend[own]])
        values = torch.cat([v_buffer[prefix].to(v_extend.dtype) * v_scale, v_extend[own]])
        o_extend[own] = attend(q_extend[own], keys, values, visible, scoring).to(o_extend.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The tokens of one request: so many listed prefix tokens, then so many new ones."""

    prefix: int
    new: int

    def all_of(self, causal: bool) -> Tensor:
        """Return what each new token sees by itself, [new, prefix + new] bool."""
        visible = torch.ones(self.new, self.prefix + self.new, dtype=torch.bool)
        return visible.tril(self.prefix) if causal else visible

    def window(self, size: int) -> Tensor:
        """Return what lies at most ``size`` tokens before each new token, or behind it, [new, prefix + new] bool."""
        return torch.ones(self.new, self.prefix + self.new, dtype=torch.bool).triu(self.prefix - size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Masks:
    """The custom masks of a batch: flat cells, where each request's begin, columns in front of its prefix list."""

    cells: Tensor
    starts: list[int]
    skipped: list[int]

    def of(self, request: int, extent: Extent, *, prefix_too: bool) -> Tensor:
        """Return what the new tokens of a request see, [new, prefix + new] bool."""
        skipped, start = self.skipped[request], self.starts[request]
        width = skipped + extent.prefix + extent.new
        require_numel("custom_mask", self.cells, start + extent.new * width)
        rows = self.cells[start : start + extent.new * width].view(extent.new, width).to(torch.bool)
        visible = rows[:, skipped:].clone()
        if not prefix_too:
            visible[:, : extent.prefix] = True
        return visible


def _custom_masks(
    custom_mask: Tensor | None, mask_indptr: Tensor | None, window_kv_offsets: Tensor | None, batch: int
) -> _Masks | None:
    """Put together what describes custom masks; None without one."""
    if custom_mask is None:
        return None
    if mask_indptr is None:
        raise ValueError("custom_mask is given, but mask_indptr is not")
    require_numel("mask_indptr", mask_indptr, batch)
    skipped = [0] * batch
    if window_kv_offsets is not None:
        require_numel("window_kv_offsets", window_kv_offsets, batch)
        skipped = window_kv_offsets[:batch].tolist()
    return _Masks(cells=custom_mask.reshape(-1), starts=mask_indptr[:batch].tolist(), skipped=skipped)


def _bounds(name: str, indptr: Tensor, batch: int, total: int) -> list[int]:
    """Read ``batch`` half-open ranges, one after the other, out of the front of an index pointer."""
    require_numel(name, indptr, batch + 1)
    bounds: list[int] = indptr[: batch + 1].tolist()
    require(bounds == sorted(bounds) and bounds[0] >= 0, f"{name} does not ascend: {bounds}")
    require(bounds[-1] <= total, f"{name} ends at {bounds[-1]}, there are only {total} entries")
    return bounds


def _slots(kv_indices: Tensor, count: int, buffer: Tensor) -> Tensor:
    """Return the used front of the slot list as int64."""
    slots = kv_indices[:count].to(torch.int64)
    require_range("kv_indices", slots, 0, buffer.shape[0] - 1)
    return slots
