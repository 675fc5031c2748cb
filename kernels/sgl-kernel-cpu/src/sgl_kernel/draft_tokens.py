"""Bookkeeping of draft and accepted tokens in speculative decoding."""

import torch
from torch import Tensor

from sgl_kernel.checks import require_numel, require_range, require_shape
from sgl_kernel.spans import flat_spans


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """Pick the last accepted token of each request: the bonus token, where the next draft starts.

    Called by ``kernels/ops/speculative/eagle.py``, ``fill_bonus_tokens_func``.

    Args:
        accept_tokens: [bs, accept_stride] or flat, int32.
        accept_lens: [bs] integer, accepted tokens per request with the bonus token, so at least 1.
        bonus_tokens: [>= bs] int32, the front is **written**.
        accept_stride: tokens per request in ``accept_tokens``.

    Raises:
        ValueError: when shapes do not fit or a length lies outside ``[1, accept_stride]``.
    """
    batch = accept_lens.numel()
    require_numel("accept_tokens", accept_tokens, batch * accept_stride)
    require_numel("bonus_tokens", bonus_tokens, batch)
    require_range("accept_lens", accept_lens, 1, accept_stride)
    last = torch.arange(batch) * accept_stride + accept_lens.to(torch.int64) - 1
    bonus_tokens[:batch] = accept_tokens.reshape(-1)[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor, size: int | None = None
) -> None:
    """Collect the KV slots of the accepted tokens, without gaps.

    Called by ``kernels/ops/speculative/eagle.py``, ``fill_accept_out_cache_loc_func``, before the accepted
    rows are moved to the front (``srt/speculative/spec_utils.py``, ``move_accept_tokens_to_target_kvcache``).

    Args:
        accept_index: [bs, depth + 1] or flat, integer: places in ``out_cache_loc``, -1 for none.
        out_cache_loc: [bs * num_draft_tokens] int64, the KV slots of all draft tokens.
        accept_out_cache_loc: [>= number of accepted] int64, the front is **written**.
        size: how many entries of ``accept_index`` count; all when None. Older callers pass it.

    Raises:
        ValueError: when an index lies outside ``out_cache_loc`` or the result does not fit.
    """
    index = accept_index.reshape(-1)[:size].to(torch.int64)
    require_range("accept_index", index, -1, out_cache_loc.numel() - 1)
    accepted = index[index >= 0]
    require_numel("accept_out_cache_loc", accept_out_cache_loc, accepted.numel())
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc.reshape(-1)[accepted].to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens left by one and put a new token last, in place.

    Called by ``kernels/ops/speculative/multi_layer_eagle.py``, ``rotate_input_ids``.

    Args:
        input_ids: [num_tokens] int64, **written**; request ``i`` owns ``extend_seq_lens[i]`` tokens from
            ``extend_start_loc[i]`` on.
        extend_start_loc: [bs] integer.
        extend_seq_lens: [bs] integer; a request of length 0 is left alone.
        topk_index: [bs] or [bs, 1] int64, the new tokens.
        select_index: [bs] integer or None, where in ``input_ids`` the new token goes, if not last.

    Raises:
        ValueError: when shapes or ranges do not fit.
    """
    batch = extend_seq_lens.numel()
    require_shape("input_ids", input_ids, (None,))
    require_shape("extend_start_loc", extend_start_loc, (batch,))
    require_numel("topk_index", topk_index, batch)
    start, length = extend_start_loc.to(torch.int64), extend_seq_lens.to(torch.int64)
    require_range("extend_start_loc", start, 0, input_ids.numel())
    require_range("extend_start_loc + extend_seq_lens", start + length, 0, input_ids.numel())
    _, position = flat_spans(start, start + (length - 1).clamp_min(0))
    input_ids[position] = input_ids[position + 1]
    if select_index is None:
        place = start + length - 1
    else:
        require_shape("select_index", select_index, (batch,))
        require_range("select_index", select_index, 0, input_ids.numel() - 1)
        place = select_index.to(torch.int64)
    present = length > 0
    input_ids[place[present]] = topk_index.reshape(-1)[:batch][present].to(input_ids.dtype)
