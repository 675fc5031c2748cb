"""Laboratories for the speculation threshold. They need a patched SGLang: `nox -s speculation` provides it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "models"
sys.path.insert(0, str(MODELS))

for _module in ("torch", "transformers", "sglang"):
    if importlib.util.find_spec(_module) is None:
        raise pytest.UsageError(f"tests/speculation needs {_module}, which cannot be imported: nox -s speculation")

from speculation.lab.client import ENVIRONMENT, Laboratory, OpenLaboratory  # noqa: E402 - said above what is missing
from speculation.lab.protocol import Algorithm, Setup  # noqa: E402

os.environ.update(ENVIRONMENT)
DRAFTS: dict[Algorithm, str] = {"EAGLE": "tiny-eagle", "EAGLE3": "tiny-eagle3"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch between the quick selection and everything."""
    parser.addoption("--sweep", action="store_true", help="run every speculation test: half an hour")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the sweep runs."""
    if not config.getoption("--sweep"):
        dropped = [item for item in items if item.get_closest_marker("sweep")]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


@pytest.fixture(scope="session")
def open_laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenLaboratory]:
    """Return what opens the laboratory of a setup; the same setup gives the same one."""
    opened: dict[Setup, Laboratory] = {}
    logs = tmp_path_factory.mktemp("laboratories")

    def open_one(algorithm: Algorithm = "EAGLE", **changes: object) -> Laboratory:
        values: dict[str, object] = {
            "algorithm": algorithm,
            "target": str(MODELS / "tiny-llama"),
            "draft": str(MODELS / DRAFTS.get(algorithm, "tiny-eagle")),
            **changes,
        }
        setup = Setup(**values)  # type: ignore[arg-type]
        if setup not in opened:
            opened[setup] = Laboratory(setup=setup, log=logs / f"{len(opened)}.log")
        return opened[setup]

    yield open_one
    for laboratory in opened.values():
        laboratory.close()


@pytest.fixture(scope="session")
def noisy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a language model that is often, not always, of the target's opinion: the target with noise in it."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("models") / "noisy-llama"
    shutil.copytree(MODELS / "tiny-llama", folder)
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: (tensor.float() + 0.02 * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def compressed_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a target whose attention keeps compressed KV (MLA), with random weights and dense layers."""
    import json

    import torch
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    folder = tmp_path_factory.mktemp("models") / "tiny-mla"
    torch.manual_seed(11)
    config = DeepseekV3Config(
        vocab_size=264,
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        first_k_dense_replace=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        q_lora_rank=24,
        kv_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        v_head_dim=16,
        max_position_embeddings=512,
        num_nextn_predict_layers=0,
        rope_scaling={
            "rope_type": "yarn",
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    )
    DeepseekV3ForCausalLM(config).float().save_pretrained(folder)
    path = folder / "config.json"
    written = json.loads(path.read_text())
    # what SGLang asks for and transformers leaves out
    written |= {"moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    path.write_text(json.dumps(written))
    return folder
