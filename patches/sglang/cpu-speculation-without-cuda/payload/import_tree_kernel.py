# sglforge: the same tree in plain torch.
from sglang.srt.utils import is_cpu

if is_cpu():
    from sgl_kernel import build_tree_kernel_efficient_cpu as sgl_build_tree_kernel_efficient
