"""What SGLang sees of the package as a whole: names, operators, and honest failure for the rest."""

import importlib

import pytest
import sgl_kernel
import torch


def test_the_attention_kernels_are_torch_operators() -> None:
    assert torch.ops.sgl_kernel.decode_attention_cpu.default is not None
    assert torch.ops.sgl_kernel.extend_attention_cpu.default is not None


def test_sglang_must_not_take_the_package_for_the_amx_build() -> None:
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")


@pytest.mark.parametrize("module", ["sgl_kernel", "sgl_kernel.speculative", "sgl_kernel.kvcacheio"])
def test_an_unknown_kernel_imports_and_fails_with_its_name_when_called(module: str) -> None:
    kernel = importlib.import_module(module).transfer_kv_per_layer

    with pytest.raises(sgl_kernel.MissingKernelError) as caught:
        kernel(torch.zeros(1), page_size=1)

    assert f"{module}.transfer_kv_per_layer" in str(caught.value)
    assert "sglforge-sgl-kernel-cpu" in str(caught.value)
    assert isinstance(caught.value, NotImplementedError)


@pytest.mark.parametrize("module", ["sgl_kernel", "sgl_kernel.speculative", "sgl_kernel.kvcacheio"])
def test_a_dunder_name_is_not_taken_for_a_kernel(module: str) -> None:
    assert not hasattr(importlib.import_module(module), "__wrapped__")


def test_only_the_submodules_that_sglang_imports_unconditionally_exist() -> None:
    for name in ("flash_attn", "scalar_type", "quantization", "mamba", "allreduce"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"sgl_kernel.{name}")


def test_every_public_name_is_a_real_kernel() -> None:
    for name in sgl_kernel.__all__:
        assert name in vars(sgl_kernel)


def test_the_ngram_kernel_has_both_import_names() -> None:
    speculative = importlib.import_module("sgl_kernel.speculative")

    assert speculative.reconstruct_indices_from_tree_mask is sgl_kernel.reconstruct_indices_from_tree_mask
