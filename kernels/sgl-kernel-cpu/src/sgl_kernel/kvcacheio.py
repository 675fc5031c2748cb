"""The import name ``sgl_kernel.kvcacheio``, without kernels.

SGLang imports host-offload kernels from here at module top (0.5.23: ``srt/mem_cache/pool_host``) even when
no host cache is configured.
"""

from sgl_kernel.missing import MissingKernel, missing_kernel


def __getattr__(name: str) -> MissingKernel:
    """Return a stand-in for a kernel that this package does not have."""
    return missing_kernel(__name__, name)
