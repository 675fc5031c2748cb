"""Provide the import name ``sgl_kernel`` for SGLang's CPU engine, in plain PyTorch.

SGLang takes these kernels by name from ``sgl_kernel`` and the two attention kernels from
``torch.ops.sgl_kernel``; importing this package registers the latter. ``convert_weight_packed`` is
left out on purpose: SGLang reads that op as "the AMX kernels are here" (``srt/utils/common.py``,
``_is_intel_amx_backend_available``). Every other name can be imported and fails when it is called.
"""

from sgl_kernel import attention
from sgl_kernel.draft_tokens import fill_accept_out_cache_loc_cpu, fill_bonus_tokens_cpu, rotate_input_ids_cpu
from sgl_kernel.draft_tree import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)
from sgl_kernel.kv_cache import copy_all_layer_kv_cache_cpu
from sgl_kernel.missing import MissingKernel, MissingKernelError, missing_kernel
from sgl_kernel.request_tables import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
)

__version__ = "0.1.0"

__all__ = [
    "MissingKernelError",
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "reconstruct_indices_from_tree_mask",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

attention.register()


def __getattr__(name: str) -> MissingKernel:
    """Return a stand-in for a kernel that this package does not have."""
    return missing_kernel(__name__, name)
