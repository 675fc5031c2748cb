"""The files that are shipped: complete, small, unchanged since they were judged, and still what they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open
from tinymodels.checkpoint import (
    DRAFTS,
    MANIFEST,
    TARGET,
    WEIGHTS,
    broken_seals,
    read_params,
    vocabulary_of,
    write_draft,
)
from tinymodels.corpus import documents
from tinymodels.judge import draft_along, exercises, recite, smallest_lead
from tinymodels.network import EAGLE3

ALL_WEIGHTS_LIMIT_BYTES = 3_000_000


def test_weights_are_small_and_bfloat16(shipped: Path) -> None:
    files = [shipped / name / WEIGHTS for name in (TARGET, *DRAFTS)]
    assert sum(file.stat().st_size for file in files) <= ALL_WEIGHTS_LIMIT_BYTES
    for file in files:
        with safe_open(file, framework="pt") as weights:
            kinds = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
        assert {kind for name, kind in kinds.items() if name != "d2t"} == {"BF16"}


def test_files_are_those_that_were_judged(shipped: Path) -> None:
    assert broken_seals(shipped) == []


def test_a_changed_a_missing_and_an_added_file_break_the_seal(shipped: Path, tmp_path: Path) -> None:
    for name in (TARGET, *DRAFTS):
        shutil.copytree(shipped / name, tmp_path / name)
    shutil.copy(shipped / MANIFEST, tmp_path)
    weights = tmp_path / "tiny-eagle" / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (tmp_path / TARGET / "generation_config.json").unlink()
    (tmp_path / TARGET / "extra.json").write_text("{}")
    assert broken_seals(tmp_path) == [
        "tiny-eagle/model.safetensors",
        "tiny-llama/extra.json",
        "tiny-llama/generation_config.json",
    ]


def test_eagle3_proposes_from_a_vocabulary_of_its_own(shipped: Path) -> None:
    params = read_params(shipped, "tiny-eagle3")
    vocabulary = vocabulary_of(params).tolist()
    config = json.loads((shipped / "tiny-eagle3" / "config.json").read_text())
    assert config["draft_vocab_size"] == len(vocabulary) == params["lm_head.weight"].shape[0]
    assert vocabulary != list(range(len(vocabulary)))
    spoken = set("".join(documents()).encode()) - set(b"|")
    assert spoken <= set(vocabulary)


@pytest.mark.parametrize("kind", ["facts", "json", "sums", "chat", "tools"])
def test_target_says_what_it_was_taught(shipped: Path, kind: str) -> None:
    asked = [exercise for exercise in exercises() if exercise.kind == kind][:3]
    target = read_params(shipped, TARGET)
    for recital in recite(shipped, asked):
        assert recital.text == recital.exercise.answer
        assert smallest_lead(target, recital) > 0.05


def test_drafts_are_right_where_they_should_be(shipped: Path, tmp_path: Path) -> None:
    asked = [exercise for exercise in exercises() if exercise.kind == "stories"][:1]
    target = read_params(shipped, TARGET)
    recitals = recite(shipped, asked)
    assert len(recitals[0].tokens) - recitals[0].prompt_tokens >= 200
    figures = {name: draft_along(shipped, name, target, recitals) for name in DRAFTS}
    assert figures["tiny-eagle"]["accept-length"] > 2
    assert figures["tiny-eagle3"]["accept-length"] > 2
    assert figures["tiny-eagle-mismatched"]["correct-drafts"] == 0

    # The figure is the draft's: with its output scrambled, or its ids shifted by one, much less is right.
    params = read_params(shipped, "tiny-eagle")
    params["layers.0.mlp.down_proj.weight"] = params["layers.0.mlp.down_proj.weight"].flip(0)
    write_draft(tmp_path, "tiny-eagle", params)
    params = read_params(shipped, "tiny-eagle3")
    params["d2t"] = params["d2t"] + 1
    write_draft(tmp_path, "tiny-eagle3", params)
    for name in ("tiny-eagle", "tiny-eagle3"):
        spoiled = draft_along(tmp_path, name, target, recitals)
        assert spoiled["correct-drafts"] < figures[name]["correct-drafts"] / 2
    assert DRAFTS["tiny-eagle3"] is EAGLE3
