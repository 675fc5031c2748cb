"""The import name ``sgl_kernel.speculative``.

SGLang takes the NGRAM kernel from here (0.5.23: ``kernels/ops/speculative/reconstruct_tree.py``; 0.5.9:
``srt/speculative/ngram_worker.py``, at module top).
"""

from sgl_kernel.draft_tree import reconstruct_indices_from_tree_mask
from sgl_kernel.missing import MissingKernel, missing_kernel

__all__ = ["reconstruct_indices_from_tree_mask"]


def __getattr__(name: str) -> MissingKernel:
    """Return a stand-in for a kernel that this package does not have."""
    return missing_kernel(__name__, name)
