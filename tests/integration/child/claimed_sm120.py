"""Run parts of an SGLang tree in a process that claims a GPU of compute capability 12.0; print what they do as JSON.

    python -P claimed_sm120.py TREE backends [OPTION...]   what is chosen with these options and this environment
    python -P claimed_sm120.py TREE symmetric-memory       the all-reduce communicator for eight GPUs
    python -P claimed_sm120.py TREE kimi                   what EAGLE workers ask of Kimi-K2.5 (no GPU claimed)

The tree's own code does it, with the environment's own torch. Stand-ins are: what torch says about the GPU, the kernel
packages, and the ``__init__`` of packages that would import the whole engine. Nothing is computed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import json
import logging
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

KERNELS = ("flashinfer", "deep_gemm", "sgl_kernel")


class AnyKernel(types.ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Kernels(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the kernel packages, which a machine without a GPU does not have."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in KERNELS:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return AnyKernel(spec.name)

    def exec_module(self, module):
        module.__version__ = "0.0"


def claim_sm120():
    import torch

    gpu = types.SimpleNamespace(
        major=12, minor=0, name="NVIDIA RTX PRO 6000", multi_processor_count=188, total_memory=96 << 30, warp_size=32
    )
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    torch.cuda.get_device_capability = lambda device=None: (gpu.major, gpu.minor)
    torch.cuda.get_device_properties = lambda device=None: gpu
    torch.cuda.get_device_name = lambda device=None: gpu.name
    torch.version.cuda = "13.0"
    torch.library.register_fake = lambda *args, **kwargs: lambda function: function  # shapes of missing kernels
    sys.meta_path.insert(0, Kernels())


def leave_out(tree, *names):
    """Put empty packages in the place of these, whose modules are still the tree's."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(tree.joinpath(*name.split(".")))]
        package.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = package


def backends(tree, options):
    claim_sm120()
    leave_out(tree, "sglang", "sglang.srt.layers", "sglang.srt.layers.quantization")
    from sglang.srt.layers.deep_gemm_wrapper import configurer
    from sglang.srt.layers.quantization import fp4_utils, fp8_utils
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.utils import common

    parser = argparse.ArgumentParser(allow_abbrev=False)
    ServerArgs.add_cli_args(parser)
    asked = parser.parse_args(["--model-path", "x", *options])
    configurations = [
        (fp4_utils, fp4_utils.initialize_fp4_gemm_config),
        (fp8_utils, fp8_utils.initialize_fp8_gemm_config),
    ]
    for module, configure in configurations:
        if hasattr(module, "get_exec"):  # 0.5.19 and later read the published configuration
            module.get_exec = lambda: types.SimpleNamespace(kernel=asked)
            configure()
        else:
            configure(asked)
    return {
        "sm120": common.is_sm120_supported(),
        "sm100": common.is_sm100_supported(),
        "fp4": fp4_utils.get_fp4_gemm_runner_backend().get_flashinfer_backend(),
        "fp8": fp8_utils.dispatch_w8a8_block_fp8_linear().__name__,
        "deep_gemm": configurer.ENABLE_JIT_DEEPGEMM,
        "pcie": pcie(),
        "fusion": fusion(),
    }


def pcie():
    """Return whether the PCIe all-reduce is built for eight GPUs; None where the tree has none."""
    if not importlib.util.find_spec("sglang.srt.distributed.device_communicators.pcie_ipc_ar"):
        return None
    from sglang.srt.distributed.device_communicators import pcie_ipc_ar

    return pcie_ipc_ar.eligible_group(group_name="tp", world_size=8, deterministic=False)


def fusion():
    """Return what becomes of FlashInfer's all-reduce fusion when it is asked for; None where nothing resolves it."""
    from sglang.srt.layers import flashinfer_comm_fusion

    resolve = getattr(flashinfer_comm_fusion, "_resolve_backend", None)
    if resolve is None:
        return None
    try:
        return resolve("auto", False)
    except ValueError as error:
        return f"refused: {error}"


def symmetric_memory(tree):
    claim_sm120()
    leave_out(tree, "sglang", "sglang.srt.distributed", "sglang.srt.distributed.device_communicators")
    import torch.distributed

    torch.distributed.get_world_size = lambda group=None: 8
    from sglang.srt.distributed.device_communicators import torch_symm_mem

    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    torch_symm_mem.logger.addHandler(handler)
    try:
        communicator = torch_symm_mem.TorchSymmMemCommunicator(None, "cuda:0")
    except KeyError as error:
        return {"error": f"KeyError: {error}"}
    return {
        "available": torch_symm_mem.torch_symm_mem_available,
        "disabled": communicator.disabled,
        "used": communicator.should_torch_symm_mem_allreduce(torch.zeros(8, dtype=torch.bfloat16)),
        "said": said,
    }


def kimi(tree):
    leave_out(tree, "sglang")
    import torch
    from sglang.srt.models.deepseek_v2 import DeepseekV3ForCausalLM
    from sglang.srt.models.kimi_k25 import KimiK25ForConditionalGeneration

    asked = []

    class LanguageModel:
        """Note what is asked; the real one must have the same methods."""

        def get_embed_and_head(self):
            asked.append("get_embed_and_head")
            return "embedding", "head"

        def set_embed_and_head(self, *tensors):
            asked.append(["set_embed_and_head", *tensors])

        def set_eagle3_layers_to_capture(self, layers=None):
            asked.append(["set_eagle3_layers_to_capture", layers])

    names = [name for name in vars(LanguageModel) if not name.startswith("__")]
    assert all(callable(getattr(DeepseekV3ForCausalLM, name)) for name in names)
    model = KimiK25ForConditionalGeneration.__new__(KimiK25ForConditionalGeneration)
    torch.nn.Module.__init__(model)
    model.language_model = LanguageModel()
    try:
        shared = model.get_embed_and_head()
        model.set_embed_and_head("e", "h")
        model.set_eagle3_layers_to_capture([1, 2])
        model.set_eagle3_layers_to_capture()
    except AttributeError as error:
        return {"error": str(error)}
    return {"shared": shared, "asked": asked}


def main():
    tree, what, *options = Path(sys.argv[1]), *sys.argv[2:]
    sys.path.insert(0, str(tree))
    from transformers.models.auto import configuration_auto

    # older releases register model types that a newer transformers brings itself
    configuration_auto.CONFIG_MAPPING.register = lambda *args, **kwargs: None
    match what:
        case "backends":
            result = backends(tree, options)
        case "symmetric-memory":
            result = symmetric_memory(tree)
        case "kimi":
            result = kimi(tree)
        case _:
            sys.exit(__doc__)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
