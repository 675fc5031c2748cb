"""Write and read the model directories: configs, bfloat16 weights, and the manifest that seals them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tinymodels.network import AUX_LAYERS, EAGLE, EAGLE3, SHAPE, Params
from tinymodels.tokenizer import END_ID, PAD_ID, write_tokenizer

TARGET = "tiny-llama"
DRAFTS = {"tiny-eagle": EAGLE, "tiny-eagle3": EAGLE3, "tiny-eagle-mismatched": EAGLE}
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"


def round_params(params: Params) -> Params:
    """Return the parameters as they are shipped and judged: rounded to bfloat16, held in float32."""
    return {
        name: value.to(torch.bfloat16).to(torch.float32) if value.is_floating_point() else value
        for name, value in params.items()
    }


def vocabulary_of(params: Params) -> torch.Tensor:
    """Return the target ids that a draft can propose, in the order of its logits, [draft vocabulary]."""
    if "d2t" in params:
        return params["d2t"] + torch.arange(len(params["d2t"]))
    return torch.arange(SHAPE.vocab_size)


def write_target(root: Path, params: Params) -> None:
    """Write the target's directory below root."""
    directory = root / TARGET
    directory.mkdir(parents=True)
    _write_json(directory / "config.json", _config("LlamaForCausalLM"))
    _write_json(
        directory / "generation_config.json",
        {"eos_token_id": END_ID, "pad_token_id": PAD_ID, "do_sample": False},
    )
    write_tokenizer(directory, max_length=SHAPE.max_position_embeddings)
    _write_weights(directory, params)


def write_draft(root: Path, name: str, params: Params) -> None:
    """Write a draft's directory below root; tokenizer, embedding (and EAGLE's head) are the target's."""
    draft = DRAFTS[name]
    config = _config(draft.architecture) | {"num_hidden_layers": 1}
    if draft is EAGLE3:
        config["draft_vocab_size"] = len(params["d2t"])
        config["eagle_config"] = {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        }
    directory = root / name
    directory.mkdir(parents=True)
    _write_json(directory / "config.json", config)
    _write_weights(directory, params)


def read_params(root: Path, name: str) -> Params:
    """Read a model's parameters as float32."""
    return round_params(load_file(root / name / WEIGHTS))


def seal(root: Path, *, made_with: dict[str, Any], judgement: dict[str, Any]) -> None:
    """Write the manifest: size and sha256 of every file, what made them, and how they were judged."""
    files = {
        path.relative_to(root).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for name in (TARGET, *DRAFTS)
        for path in sorted((root / name).iterdir())
    }
    _write_json(root / MANIFEST, {"files": files, "made-with": made_with, "judgement": judgement})


def broken_seals(root: Path) -> list[str]:
    """Return the files that are missing, extra or not what the manifest says."""
    sealed = json.loads((root / MANIFEST).read_text())["files"]
    present = {
        path.relative_to(root).as_posix(): _sha256(path)
        for name in (TARGET, *DRAFTS)
        for path in (root / name).glob("*")
    }
    wanted = {name: entry["sha256"] for name, entry in sealed.items()}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def _config(architecture: str) -> dict[str, Any]:
    # Keys that transformers 4 and 5 both read: the latter turns rope_theta and torch_dtype into its own.
    return {
        "architectures": [architecture],
        "model_type": "llama",
        **asdict(SHAPE),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": END_ID,
        "pad_token_id": PAD_ID,
        "torch_dtype": "bfloat16",
    }


def _write_weights(directory: Path, params: Params) -> None:
    stored = {
        name: (value.to(torch.bfloat16) if value.is_floating_point() else value).contiguous()
        for name, value in params.items()
    }
    save_file(stored, directory / WEIGHTS, metadata={"format": "pt"})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
