"""Our networks against independent ones: transformers for the target, a draft run one token at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from tinymodels.checkpoint import DRAFTS, TARGET, round_params, write_target
from tinymodels.network import EAGLE, EAGLE3, SHAPE, Draft, Params, mlp, rms_norm, rotate, run_target, unroll
from tinymodels.training import (
    DRAFT_STEPS,
    Packer,
    Phase,
    draft_loss,
    eagle3_params,
    eagle_params,
    fit,
    target_loss,
    target_params,
)
from torch import Tensor

TOKENS = torch.tensor([[84, 104, 101, 256, 32, 99, 97, 112, 105, 116, 97, 108]])


@pytest.fixture(scope="module")
def target() -> Params:
    return round_params(target_params(7))


def draft_params(draft: Draft) -> Params:
    params = eagle_params(8) if draft is EAGLE else eagle3_params(8, draft_vocab_size=40)
    generator = torch.Generator().manual_seed(9)
    if draft is EAGLE:
        params["fc.bias"] = torch.randn(SHAPE.hidden_size, generator=generator)
    else:
        params["midlayer.hidden_norm.weight"] = torch.rand(SHAPE.hidden_size, generator=generator)
    return params


def test_target_computes_what_transformers_computes(tmp_path: Path, target: Params) -> None:
    from transformers import AutoModelForCausalLM

    write_target(tmp_path, target)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / TARGET, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(TOKENS, output_hidden_states=True)
    ours = run_target(target, TOKENS)
    torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.hidden, theirs.hidden_states[-1], atol=1e-4, rtol=1e-4)
    # The outputs of layers 0, 1, 2 are what goes into layers 1, 2, 3.
    torch.testing.assert_close(ours.aux, torch.cat(theirs.hidden_states[1:4], dim=-1), atol=1e-4, rtol=1e-4)


class OneByOne:
    """Run a draft as a server does: one token a call, with a key and value cache."""

    def __init__(self, draft: Draft, params: Params, target: Params) -> None:
        self.draft, self.params, self.target = draft, params, target
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def feed(self, token: int, hidden: Tensor, position: int) -> tuple[Tensor, Tensor]:
        params, prefix = self.params, self.draft.layer
        embedded = self.target["model.embed_tokens.weight"][token]
        if self.draft is EAGLE:
            residual = params["fc.weight"] @ torch.cat((embedded, hidden)) + params["fc.bias"]
            inputs = residual
        else:
            residual = hidden
            inputs = torch.cat(
                (
                    rms_norm(embedded, params[f"{prefix}.input_layernorm.weight"]),
                    rms_norm(hidden, params[f"{prefix}.hidden_norm.weight"]),
                )
            )
        heads = {
            name: (params[f"{prefix}.self_attn.{name}_proj.weight"] @ inputs).view(1, -1, 1, SHAPE.head_dim)
            for name in "qkv"
        }
        at = torch.tensor([position])
        query = rotate(heads["q"], at)[0, :, 0]
        self.keys.append(rotate(heads["k"], at)[0, :, 0])
        self.values.append(heads["v"][0, :, 0])
        group = SHAPE.num_attention_heads // SHAPE.num_key_value_heads
        attended = []
        for head in range(SHAPE.num_attention_heads):
            keys = torch.stack([key[head // group] for key in self.keys])
            values = torch.stack([value[head // group] for value in self.values])
            attended.append((keys @ query[head] / SHAPE.head_dim**0.5).softmax(0) @ values)
        x = residual + params[f"{prefix}.self_attn.o_proj.weight"] @ torch.cat(attended)
        x = x + mlp(params, prefix, x)
        if self.draft is EAGLE:
            return self.target["lm_head.weight"] @ x, x
        return params["lm_head.weight"] @ rms_norm(x, params["norm.weight"]), x


@pytest.mark.parametrize("draft", [EAGLE, EAGLE3], ids=["eagle", "eagle3"])
def test_unrolled_chains_are_those_of_a_server(draft: Draft, target: Params) -> None:
    params = draft_params(draft)
    output = run_target(target, TOKENS)
    entered = draft.enter(params, output)[0]
    chains = unroll(draft, params, target, TOKENS, output, steps=DRAFT_STEPS)
    tokens = TOKENS[0].tolist()
    for base in range(chains[0].shape[1]):
        server = OneByOne(draft, params, target)
        fed = [server.feed(tokens[at + 1], entered[at], at) for at in range(base + 1)]
        logits, hidden = fed[-1]
        for step in range(DRAFT_STEPS):
            torch.testing.assert_close(chains[step][0, base], logits, atol=1e-4, rtol=1e-4)
            logits, hidden = server.feed(tokens[base + step + 2], hidden, base + step + 1)


def test_rows_are_full_and_repeat_with_the_seed() -> None:
    documents = [[1, 2, 3, 256], list(range(100, 160)), [7, 256]]
    phase = Phase(steps=1, rows=6, window=25)
    first = Packer(documents=documents, random=random.Random(3)).rows(phase)
    assert first.shape == (6, 25)
    assert torch.equal(first, Packer(documents=documents, random=random.Random(3)).rows(phase))
    assert not torch.equal(first, Packer(documents=documents, random=random.Random(4)).rows(phase))


def test_rows_reach_the_end_of_a_document_longer_than_they_are() -> None:
    documents = [list(range(100))]
    rows = Packer(documents=documents, random=random.Random(5)).rows(Phase(steps=1, rows=64, window=10))
    assert 99 in rows
    assert (rows[:, 0] == 0).sum() >= 16


def test_training_repeats_to_the_bit_and_lowers_the_loss() -> None:
    documents = [[*b"one two three. ", 256]]

    def trained() -> tuple[Params, float, float]:
        params = target_params(1)
        packer = Packer(documents=documents, random=random.Random(1))
        phase = Phase(steps=12, rows=2, window=32)
        loss = target_loss(params)
        rows = packer.rows(phase)
        before = loss(rows).item()
        fit(params, (phase,), packer, loss, lambda _: None)
        return params, before, loss(rows).item()

    first, before, after = trained()
    second, _, _ = trained()
    assert after < before / 2
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_a_draft_leaves_the_target_alone(target: Params) -> None:
    before = {name: value.clone() for name, value in target.items()}
    params = eagle_params(2)
    drawn = {name: value.clone() for name, value in params.items()}
    loss = draft_loss(EAGLE, params, target, torch.arange(SHAPE.vocab_size))
    packer = Packer(documents=[[*b"one two three. ", 256]], random=random.Random(1))
    fit(params, (Phase(steps=2, rows=1, window=24),), packer, loss, lambda _: None)
    assert all(torch.equal(target[name], before[name]) for name in target)
    assert not any(torch.equal(params[name], drawn[name]) for name in params)


def test_every_draft_has_its_kind() -> None:
    assert {draft.architecture for draft in DRAFTS.values()} == {"LlamaForCausalLMEagle", "LlamaForCausalLMEagle3"}
