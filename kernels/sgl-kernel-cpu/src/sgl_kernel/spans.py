"""Ranges per request, flattened: the index arithmetic that several kernels share."""

import torch
from torch import Tensor

from sgl_kernel.checks import require, require_shape


def flat_spans(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """List the positions of all half-open ranges ``[start[i], end[i])``, one range after the other.

    Args:
        start: [bs] integer.
        end: [bs] integer, ``end[i] >= start[i]``.

    Returns:
        ``(owner, position)``, both [sum(end - start)] int64: the range an entry belongs to, and its place.
        For start [5, 0] and end [7, 1] that is owner [0, 0, 1] and position [5, 6, 0].

    Raises:
        ValueError: when the shapes differ or a range ends before it starts.
    """
    require_shape("start", start, (None,))
    require_shape("end", end, tuple(start.shape))
    first = start.to(torch.int64)
    lengths = end.to(torch.int64) - first
    require(not bool((lengths < 0).any()), "a range ends before it starts")
    owner = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    before = lengths.cumsum(0) - lengths
    position = torch.arange(owner.numel()) - before[owner] + first[owner]
    return owner, position
