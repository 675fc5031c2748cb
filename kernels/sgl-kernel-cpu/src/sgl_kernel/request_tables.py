"""Read and write ``req_to_token``, the table that maps (request, position) to a KV slot.

``req_to_token`` is [max_requests, pool_len] int32; row ``r`` lists the KV slots of request ``r`` in
order of position. Index arguments may be int32 or int64 independently of each other: SGLang passes
int64 request indices beside int32 lengths (``srt/mem_cache/allocation.py``, ``alloc_for_spec_decode``).
"""

import torch
from torch import Tensor

from sgl_kernel.checks import require, require_numel, require_range, require_shape
from sgl_kernel.spans import flat_spans


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write freshly allocated KV slots into each request's row, in place.

    ``req_to_token[req_pool_indices[i], start_offset[i]:end_offset[i]]`` receives the next
    ``end_offset[i] - start_offset[i]`` entries of ``out_cache_loc``; nothing else changes.
    Called by ``srt/mem_cache/allocation.py``, ``assign_req_to_token_pool_func``.

    Args:
        req_pool_indices: [bs] integer, rows of the table.
        req_to_token: [max_requests, pool_len] int32, **written**.
        start_offset: [bs] integer, first position to write.
        end_offset: [bs] integer, one past the last.
        out_cache_loc: [sum(end_offset - start_offset)] int64, KV slots, request after request.
        pool_len: width of the table.

    Raises:
        ValueError: when shapes or ranges do not fit.
    """
    rows, columns = _cells(req_pool_indices, req_to_token, start_offset, end_offset, pool_len)
    require_numel("out_cache_loc", out_cache_loc, rows.numel())
    req_to_token[rows, columns] = out_cache_loc.reshape(-1)[: rows.numel()].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Collect the KV slots of each request's positions ``[start_offset, end_offset)``.

    The reverse of :func:`assign_req_to_token_pool_cpu`. Called by
    ``kernels/ops/speculative/cache_locs.py``, ``assign_extend_cache_locs_func``, before a verify pass.

    Args:
        req_pool_indices: [bs] integer, rows of the table.
        req_to_token: [max_requests, pool_len] int32.
        start_offset: [bs] integer, first position to read.
        end_offset: [bs] integer, one past the last.
        out_cache_loc: [>= sum(end_offset - start_offset)] int64, the front is **written**.
        pool_len: width of the table.

    Raises:
        ValueError: when shapes or ranges do not fit.
    """
    rows, columns = _cells(req_pool_indices, req_to_token, start_offset, end_offset, pool_len)
    require_numel("out_cache_loc", out_cache_loc, rows.numel())
    out_cache_loc[: rows.numel()] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Collect the ``topk * num_steps`` KV slots that follow each request's committed tokens.

    Called by ``kernels/ops/speculative/cache_locs.py``, ``assign_draft_cache_locs_contiguous_func``, before
    a draft pass.

    Args:
        req_pool_indices: [bs] integer, rows of the table.
        req_to_token: [max_requests, pool_len] int32.
        seq_lens: [bs] integer, number of committed tokens: where the draft slots start.
        out_cache_loc: [bs * topk * num_steps] int64, **written**.
        pool_len: width of the table.
        topk: branches per request.
        num_steps: slots per branch.

    Raises:
        ValueError: when shapes or ranges do not fit.
    """
    length = topk * num_steps
    rows, columns = _cells(req_pool_indices, req_to_token, seq_lens, seq_lens + length, pool_len)
    require_shape("out_cache_loc", out_cache_loc, (rows.numel(),))
    out_cache_loc[:] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """Give every draft branch a row of its own: the committed prefix, then the branch's own slots.

    The slots of branch ``t`` of request ``b`` lie at ``seq_lens[b] + t * num_steps`` of the request's
    row (:func:`assign_draft_cache_locs_contiguous_cpu`); attention wants them right behind the prefix.
    Called by ``srt/layers/attention/intel_amx_backend.py``,
    ``IntelAMXMultiStepDraftBackend.init_forward_metadata``.

    Args:
        req_to_token: [max_requests, pool_len] int32.
        req_pool_indices: [bs] integer, rows of the table.
        seq_lens: [bs] integer, number of committed tokens.
        topk: branches per request.
        num_steps: slots per branch.
        pool_len: width of the table.

    Returns:
        [bs * topk, pool_len] in the table's dtype, row ``b * topk + t`` for branch ``t`` of request ``b``.
        Only the first ``seq_lens[b] + num_steps`` entries of a row mean something.

    Raises:
        ValueError: when shapes or ranges do not fit.
    """
    _check_table(req_pool_indices, req_to_token, pool_len)
    require_shape("seq_lens", seq_lens, (req_pool_indices.numel(),))
    require_range("seq_lens", seq_lens, 0, pool_len - topk * num_steps)
    branches = req_to_token[req_pool_indices.to(torch.int64)].repeat_interleave(topk, dim=0)
    target = seq_lens.to(torch.int64).repeat_interleave(topk).unsqueeze(1) + torch.arange(num_steps)
    branch = torch.arange(topk).repeat(req_pool_indices.numel()).unsqueeze(1)
    branches.scatter_(1, target, branches.gather(1, target + branch * num_steps))
    return branches


def _cells(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, pool_len: int
) -> tuple[Tensor, Tensor]:
    """Turn a range per request into table coordinates ``(row, column)``, both [sum(end - start)]."""
    _check_table(req_pool_indices, req_to_token, pool_len)
    require_shape("start", start, (req_pool_indices.numel(),))
    require_range("start", start, 0, pool_len)
    require_range("end", end, 0, pool_len)
    owner, columns = flat_spans(start, end)
    return req_pool_indices.to(torch.int64)[owner], columns


def _check_table(req_pool_indices: Tensor, req_to_token: Tensor, pool_len: int) -> None:
    """Check the table's width and that the rows exist."""
    require_shape("req_to_token", req_to_token, (None, pool_len))
    require(req_pool_indices.dim() == 1, f"req_pool_indices has rank {req_pool_indices.dim()}, expected 1")
    require_range("req_pool_indices", req_pool_indices, 0, req_to_token.shape[0] - 1)
