"""Attention over the KV cache, as operators ``torch.ops.sgl_kernel.{decode,extend}_attention_cpu``.

SGLang calls them from ``srt/layers/attention/intel_amx_backend.py``, ``IntelAMXAttnBackend``, with positional
arguments. Scores, softmax and the weighted sum are computed in float32 (float64 for float64 queries), one
request at a time. The cache may have a lower precision; an fp8 cache is read through its scale.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgl_kernel.checks import require, require_numel, require_shape

# torch.library has no annotations. The handle has to live as long as the operators.
_torch_library: Any = torch.library
_LIBRARY = _torch_library.Library("sgl_kernel", "FRAGMENT")
_DECODE_SCHEMA = (
    "decode_attention_cpu(Tensor query, Tensor(a!) k_cache, Tensor(b!) v_cache, "
    "float k_scale, float v_scale, Tensor(c!) output, Tensor? key, Tensor? value, Tensor? loc, "
    "Tensor attn_logits, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size, "
    "Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_EXTEND_SCHEMA = (
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend, "
    "Tensor k_buffer, Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, "
    "Tensor req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, Tensor extend_start_loc, "
    "int max_len_extend, float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size, "
    "Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How scores become weights.

    Args:
        scale: factor on ``q . k``.
        logit_cap: scores become ``cap * tanh(score / cap)``; 0 or less for none.
        sinks: [num_heads] or None, one extra logit per head that takes weight and gives no value.
    """

    scale: float
    logit_cap: float
    sinks: Tensor | None


def decode_attention_cpu(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor | None,
    attn_logits: Tensor,  # noqa: ARG001 - part of the operator's signature
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Attend with one new token per request, after storing its K and V.

    Called by ``IntelAMXAttnBackend.forward_decode``.

    Args:
        query: [bs, num_heads, head_dim].
        k_cache: [num_slots, num_kv_heads, head_dim], **written** at ``loc`` unless ``key`` is None.
        v_cache: [num_slots, num_kv_heads, v_head_dim], **written** at ``loc`` unless ``key`` is None.
        k_scale: what a value read from an fp8 ``k_cache`` is multiplied with; unused for other dtypes.
        v_scale: the same for ``v_cache``.
        output: [bs, num_heads, v_head_dim], **written**.
        key: [bs, num_kv_heads, head_dim], or None when the caller has stored it already; cross attention
            stores nothing.
        value: [bs, num_kv_heads, v_head_dim] or None.
        loc: [bs] integer, the slots for ``key`` and ``value``.
        attn_logits: scratch space of the compiled kernel, unused here.
        req_to_token: [max_requests, pool_len] integer, KV slots by request and position.
        req_pool_indices: [bs] integer, rows of ``req_to_token``.
        seq_lens: [bs] integer, tokens per request with the new one.
        sm_scale: factor on the scores.
        logit_cap: see :class:`Scoring`.
        is_cross_attn: attend to the encoder's tokens, positions ``[0, encoder_lens[i])`` of the row.
        sliding_window_size: how many last tokens are seen, the new one included; 0 or less for all.
        encoder_lens: [bs] integer or None, encoder tokens in front of the request's own in its row.
        sinks: [num_heads] or None.

    Raises:
        ValueError: when shapes do not fit.
    """
    batch = seq_lens.numel()
    check_heads(query, k_cache, v_cache, output)
    require_shape("query", query, (batch, None, None))
    require_shape("req_pool_indices", req_pool_indices, (batch,))
    if key is not None and not is_cross_attn:
        if value is None or loc is None:
            raise ValueError("key is given, but value or loc is not")
        slots = loc.to(torch.int64)
        k_cache[slots] = key.reshape(batch, *k_cache.shape[1:]).to(k_cache.dtype)
        v_cache[slots] = value.reshape(batch, *v_cache.shape[1:]).to(v_cache.dtype)
    scoring = Scoring(scale=sm_scale, logit_cap=logit_cap, sinks=sinks)
    encoder = _encoder_lengths(encoder_lens, batch, is_cross_attn)
    rows = zip(req_pool_indices.tolist(), seq_lens.tolist(), encoder, strict=True)
    for i, (request, length, encoder_length) in enumerate(rows):
        start, end = (0, encoder_length) if is_cross_attn else (encoder_length, encoder_length + length)
        if sliding_window_size > 0:
            start = max(start, end - sliding_window_size)
        slots = _slots(req_to_token, request, start, end)
        keys = _read(k_cache, slots, k_scale)
        values = _read(v_cache, slots, v_scale)
        output[i : i + 1] = attend(query[i : i + 1], keys, values, None, scoring).to(output.dtype)


def extend_attention_cpu(
    q_extend: Tensor,
    k_extend: Tensor | None,
    v_extend: Tensor | None,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,  # noqa: ARG001 - part of the operator's signature
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Attend with several new tokens per request: prefill, or verification of a draft tree.

    A new token sees the request's whole prefix and, of the new tokens, those up to itself or those that
    ``tree_mask`` names. Called by ``IntelAMXAttnBackend.forward_extend``, which has stored K and V before.

    Args:
        q_extend: [num_tokens, num_heads, head_dim]; request ``i`` owns ``extend_seq_lens[i]`` rows from
            ``extend_start_loc[i]`` on.
        k_extend: [num_tokens, num_kv_heads, head_dim], or None to read the new tokens from the cache as well.
        v_extend: [num_tokens, num_kv_heads, v_head_dim] or None.
        o_extend: [num_tokens, num_heads, v_head_dim], **written** in the rows of the requests.
        k_buffer: [num_slots, num_kv_heads, head_dim].
        v_buffer: [num_slots, num_kv_heads, v_head_dim].
        k_scale: what a value read from an fp8 ``k_buffer`` is multiplied with; unused for other dtypes.
        v_scale: the same for ``v_buffer``.
        req_to_token: [max_requests, pool_len] integer, KV slots by request and position.
        req_pool_indices: [bs] integer, rows of ``req_to_token``.
        seq_lens: [bs] integer, prefix plus new tokens.
        extend_seq_lens: [bs] integer, new tokens.
        extend_start_loc: [bs] integer.
        max_len_extend: largest of ``extend_seq_lens``; sizes the compiled kernel's buffers, unused here.
        sm_scale: factor on the scores.
        logit_cap: see :class:`Scoring`.
        is_cross_attn: attend to the encoder's tokens only, all of them.
        sliding_window_size: how many last tokens are seen, the token itself included; 0 or less for all.
            Counted in positions, so a tree node sees what the same token would see in plain decode.
        encoder_lens: [bs] integer or None, encoder tokens in front of the request's own in its row.
        sinks: [num_heads] or None.
        tree_mask: flat bool or None, [n, n] per request with ``n = extend_seq_lens[i]``, one after the other
            (QLEN_ONLY of :mod:`sgl_kernel.draft_tree`).
        is_causal: False lets every new token see all tokens of its request.

    Raises:
        ValueError: when shapes do not fit, or for a sliding window without causality.
    """
    batch = seq_lens.numel()
    check_heads(q_extend, k_buffer, v_buffer, o_extend)
    for name, tensor in (
        ("req_pool_indices", req_pool_indices),
        ("extend_seq_lens", extend_seq_lens),
        ("extend_start_loc", extend_start_loc),
    ):
        require_shape(name, tensor, (batch,))
    causal = is_causal and not is_cross_attn
    require(causal or is_cross_attn or sliding_window_size <= 0, "a sliding window needs causal attention")
    scoring = Scoring(scale=sm_scale, logit_cap=logit_cap, sinks=sinks)
    encoder = _encoder_lengths(encoder_lens, batch, is_cross_attn)
    mask_start = 0
    rows = zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_seq_lens.tolist(),
        extend_start_loc.tolist(),
        encoder,
        strict=True,
    )
    for request, length, new, start, encoder_length in rows:
        if new == 0:
            continue
        require(new <= length, f"a request of {length} tokens cannot have {new} new ones")
        own = slice(start, start + new)
        if is_cross_attn:
            slots = _slots(req_to_token, request, 0, encoder_length)
            keys, values = _read(k_buffer, slots, k_scale), _read(v_buffer, slots, v_scale)
        else:
            slots = _slots(req_to_token, request, encoder_length, encoder_length + length)
            keys = _with_new(_read(k_buffer, slots, k_scale), k_extend, own)
            values = _with_new(_read(v_buffer, slots, v_scale), v_extend, own)
        mask = None
        if causal:
            tree = None
            if tree_mask is not None:
                require_numel("tree_mask", tree_mask, mask_start + new * new)
                tree = tree_mask.reshape(-1)[mask_start : mask_start + new * new].view(new, new).to(torch.bool)
                mask_start += new * new
            mask = _visible(length - new, new, sliding_window_size, tree)
        o_extend[own] = attend(q_extend[own], keys, values, mask, scoring).to(o_extend.dtype)


def register() -> None:
    """Define both kernels as torch operators for the CPU; done once, when the package is imported."""
    _LIBRARY.define(_DECODE_SCHEMA)
    _LIBRARY.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
    _LIBRARY.define(_EXTEND_SCHEMA)
    _LIBRARY.impl("extend_attention_cpu", extend_attention_cpu, "CPU")


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scoring: Scoring) -> Tensor:
    """Compute softmax attention of one request.

    Args:
        query: [t, num_heads, head_dim].
        key: [s, num_kv_heads, head_dim]; a KV head serves ``num_heads / num_kv_heads`` heads in a row.
        value: [s, num_kv_heads, v_head_dim].
        mask: [t, s] bool, what is seen, or None for everything.
        scoring: how scores become weights.

    Returns:
        [t, num_heads, v_head_dim] in the precision of the computation.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    tokens, heads, head_dim = query.shape
    kv_heads = key.shape[1]
    grouped = query.to(dtype).view(tokens, kv_heads, heads // kv_heads, head_dim).permute(1, 2, 0, 3)
    scores = grouped @ key.to(dtype).permute(1, 2, 0).unsqueeze(1) * scoring.scale
    if scoring.logit_cap > 0:
        scores = scoring.logit_cap * torch.tanh(scores / scoring.logit_cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if scoring.sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        sink = scoring.sinks.to(dtype).view(kv_heads, heads // kv_heads, 1, 1).expand(-1, -1, tokens, 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]
    mixed = weights @ value.to(dtype).permute(1, 0, 2).unsqueeze(1)
    return mixed.permute(2, 0, 1, 3).reshape(tokens, heads, value.shape[2])


def _visible(prefix: int, new: int, window: int, tree: Tensor | None) -> Tensor:
    """Say what each new token sees of prefix and new tokens, [new, prefix + new] bool."""
    among_new = torch.ones(new, new, dtype=torch.bool).tril() if tree is None else tree
    mask = torch.cat([torch.ones(new, prefix, dtype=torch.bool), among_new], dim=1)
    if window > 0:
        position = prefix + among_new.sum(dim=1) - 1
        seen_from = torch.cat([torch.arange(prefix), position])
        mask &= seen_from > position.unsqueeze(1) - window
    return mask


def _with_new(cached: Tensor, new: Tensor | None, own: slice) -> Tensor:
    """Put a request's new K or V, where given, in place of its last cached rows."""
    if new is None:
        return cached
    rows = new.reshape(-1, *cached.shape[1:])[own]
    return torch.cat([cached[: cached.shape[0] - rows.shape[0]].to(rows.dtype), rows])


def _read(buffer: Tensor, slots: Tensor, scale: float) -> Tensor:
    """Gather K or V rows [s, num_kv_heads, dim], undoing the scale of an fp8 cache."""
    if buffer.dtype.is_floating_point and buffer.dtype.itemsize == 1:
        return buffer.view(torch.uint8)[slots].view(buffer.dtype).to(torch.float32) * scale
    return buffer[slots]


def _slots(req_to_token: Tensor, request: int, start: int, end: int) -> Tensor:
    """Look up the KV slots of positions ``[start, end)`` of a request, int64."""
    require(0 <= request < req_to_token.shape[0], f"request {request} is not in req_to_token")
    pool_len = req_to_token.shape[1]
    require(0 <= start <= end <= pool_len, f"positions [{start}, {end}) are not in req_to_token")
    return req_to_token[request, start:end].to(torch.int64)


def _encoder_lengths(encoder_lens: Tensor | None, batch: int, is_cross_attn: bool) -> list[int]:
    """List the encoder tokens of each request, 0 where there is no encoder."""
    if encoder_lens is None:
        require(not is_cross_attn, "cross attention needs encoder_lens")
        return [0] * batch
    require_shape("encoder_lens", encoder_lens, (batch,))
    lengths: list[int] = encoder_lens.tolist()
    return lengths


def check_heads(query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
    """Check that queries, cache and output fit together."""
    require_shape("query", query, (None, None, None))
    tokens, heads, head_dim = query.shape
    require_shape("key cache", key, (None, None, head_dim))
    slots, kv_heads, _ = key.shape
    require_shape("value cache", value, (slots, kv_heads, None))
    require_shape("output", output, (tokens, heads, value.shape[2]))
    require(heads % kv_heads == 0, f"{heads} heads cannot share {kv_heads} KV heads evenly")
