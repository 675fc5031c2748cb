"""The import name ``sgl_kernel.speculative``.

SGLang 0.5.23 takes the NGRAM kernel from here (``kernels/ops/speculative/reconstruct_tree.py``).
"""

from sgl_kernel.draft_tree import reconstruct_indices_from_tree_mask
from sgl_kernel.missing import MissingKernel, missing_kernel

__all__ = ["reconstruct_indices_from_tree_mask"]


def __getattr__(name: str) -> MissingKernel:
    """Return a stand-in for a kernel that this package does not have."""
    return missing_kernel(__name__, name)
