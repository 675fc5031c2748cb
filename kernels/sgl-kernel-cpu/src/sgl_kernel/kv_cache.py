"""Move rows inside the KV cache."""

import ctypes

import torch
from torch import Tensor

from sgl_kernel.checks import require, require_shape


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy KV rows ``src_loc[i]`` to ``tgt_loc[i]`` in every buffer, in place.

    All rows are read before any is written, so the two lists may overlap (accepted drafts move towards
    the front of their own window). A target that occurs twice must have the same source both times.
    Called by ``kernels/ops/kvcache/cache_move.py``, ``copy_all_layer_kv_cache_func``.

    Args:
        data_ptrs: [num_buffers] uint64, the address of each layer's K or V buffer. The buffers are contiguous
            and **written**; an address carries no size, so a row past the end cannot be refused here.
        strides: [num_buffers] integer, bytes per row of each buffer.
        tgt_loc: [n] integer, rows to write.
        src_loc: [n] integer, rows to read.

    Raises:
        ValueError: when the lists do not pair up or a row is negative.
    """
    require_shape("strides", strides, tuple(data_ptrs.shape))
    require_shape("src_loc", src_loc, tuple(tgt_loc.shape))
    if tgt_loc.numel() == 0:
        return
    target, source = tgt_loc.to(torch.int64), src_loc.to(torch.int64)
    require(int(target.min()) >= 0 and int(source.min()) >= 0, "tgt_loc and src_loc must not be negative")
    rows_spanned = max(int(target.max()), int(source.max())) + 1
    for address, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows_spanned * row_bytes)).from_address(address)
        rows = torch.frombuffer(memory, dtype=torch.uint8).view(rows_spanned, row_bytes)
        rows[target] = rows[source]
