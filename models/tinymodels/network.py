"""Compute the tiny networks in plain torch: the Llama target and the two kinds of EAGLE draft.

Parameters are dictionaries whose keys are the names in the checkpoint, so what is trained here is what is
written, and what is judged is what was read back. Shapes: B rows, T positions, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tinymodels.tokenizer import VOCAB_SIZE

Params = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Describe a Llama network; the names follow config.json where they can."""

    vocab_size: int = VOCAB_SIZE
    hidden_size: int = 64
    intermediate_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 4096


SHAPE = Shape()

# The target's layers whose output EAGLE-3 reads. A server captures in front of a layer, so the last
# layer's output cannot be among them, and three different ones need at least four layers.
AUX_LAYERS = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOutput:
    """Hold what the drafts read from the target.

    Args:
        hidden: normed output of the last layer, [B, T, H].
        aux: outputs of AUX_LAYERS side by side, [B, T, 3 H].
        logits: [B, T, V].
    """

    hidden: Tensor
    aux: Tensor
    logits: Tensor


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Scale the last dimension to root mean square 1, then by weight."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE.rms_norm_eps) * weight


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Apply rotary position embedding (half-split form).

    Args:
        x: [B, heads, T, head_dim].
        positions: [T], tokens.
    """
    half = SHAPE.head_dim // 2
    frequencies = SHAPE.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions.to(torch.float32)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def project(params: Params, prefix: str, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make rotated queries and keys, and values, each [B, heads, T, head_dim]; keys repeated per query head."""

    def heads(name: str) -> Tensor:
        y = F.linear(x, params[f"{prefix}.self_attn.{name}_proj.weight"])
        return y.view(*y.shape[:2], -1, SHAPE.head_dim).transpose(1, 2)

    group = SHAPE.num_attention_heads // SHAPE.num_key_value_heads
    query, key = rotate(heads("q"), positions), rotate(heads("k"), positions)
    return query, key.repeat_interleave(group, 1), heads("v").repeat_interleave(group, 1)


def merge(params: Params, prefix: str, attended: Tensor) -> Tensor:
    """Join the heads and project back to H."""
    return F.linear(attended.transpose(1, 2).flatten(-2), params[f"{prefix}.self_attn.o_proj.weight"])


def mlp(params: Params, prefix: str, x: Tensor) -> Tensor:
    """Apply the gated feed-forward block behind its norm."""
    x = rms_norm(x, params[f"{prefix}.post_attention_layernorm.weight"])
    gate = F.linear(x, params[f"{prefix}.mlp.gate_proj.weight"])
    up = F.linear(x, params[f"{prefix}.mlp.up_proj.weight"])
    return F.linear(F.silu(gate) * up, params[f"{prefix}.mlp.down_proj.weight"])


def run_target(params: Params, tokens: Tensor) -> TargetOutput:
    """Run the Llama target over whole rows.

    Args:
        params: checkpoint of LlamaForCausalLM.
        tokens: [B, T] token ids.
    """
    positions = torch.arange(tokens.shape[1])
    x = F.embedding(tokens, params["model.embed_tokens.weight"])
    outputs: list[Tensor] = []
    for layer in range(SHAPE.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        normed = rms_norm(x, params[f"{prefix}.input_layernorm.weight"])
        query, key, value = project(params, prefix, normed, positions)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + merge(params, prefix, attended)
        x = x + mlp(params, prefix, x)
        outputs.append(x)
    hidden = rms_norm(x, params["model.norm.weight"])
    aux = torch.cat([outputs[layer] for layer in AUX_LAYERS], dim=-1)
    return TargetOutput(hidden=hidden, aux=aux, logits=F.linear(hidden, params["lm_head.weight"]))


# Maps a layer's attention input to its attention output.
Attend = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Bind a kind of draft to its functions.

    Args:
        architecture: SGLang's class name for it.
        layer: checkpoint prefix of its only layer.
        enter: target output -> hidden state of the first step, [B, T, H].
        step: (params, lm_head of the target, embedded tokens, hidden, attend) -> (logits, next hidden).
    """

    architecture: str
    layer: str
    enter: Callable[[Params, TargetOutput], Tensor]
    step: Callable[[Params, Tensor, Tensor, Tensor, Attend], tuple[Tensor, Tensor]]


def _eagle_enter(_params: Params, target: TargetOutput) -> Tensor:
    return target.hidden


def _eagle_step(
    params: Params, head: Tensor, embedded: Tensor, hidden: Tensor, attend: Attend
) -> tuple[Tensor, Tensor]:
    x = F.linear(torch.cat((embedded, hidden), dim=-1), params["fc.weight"], params["fc.bias"])
    x = x + attend(x)
    x = x + mlp(params, EAGLE.layer, x)
    return F.linear(x, head), x


def _eagle3_enter(params: Params, target: TargetOutput) -> Tensor:
    return F.linear(target.aux, params["fc.weight"])


def _eagle3_step(
    params: Params, _head: Tensor, embedded: Tensor, hidden: Tensor, attend: Attend
) -> tuple[Tensor, Tensor]:
    layer = EAGLE3.layer
    sides = (
        rms_norm(embedded, params[f"{layer}.input_layernorm.weight"]),
        rms_norm(hidden, params[f"{layer}.hidden_norm.weight"]),
    )
    x = hidden + attend(torch.cat(sides, dim=-1))
    x = x + mlp(params, layer, x)
    return F.linear(rms_norm(x, params["norm.weight"]), params["lm_head.weight"]), x


# The first layer of EAGLE has no input norm, its head and embedding are the target's.
EAGLE = Draft(architecture="LlamaForCausalLMEagle", layer="layers.0", enter=_eagle_enter, step=_eagle_step)
# EAGLE-3 reads three hidden states of the target, feeds back its own before the norm, and has a head of its
# own over a smaller vocabulary (d2t: target id minus draft id).
EAGLE3 = Draft(architecture="LlamaForCausalLMEagle3", layer="midlayer", enter=_eagle3_enter, step=_eagle3_step)


def unroll(
    draft: Draft, params: Params, target_params: Params, tokens: Tensor, target: TargetOutput, *, steps: int
) -> list[Tensor]:
    """Draft from every position of a text at once, as a server would from each.

    Step k at base position i reads token i+1+k and proposes token i+2+k; it sees the first step's keys up to i
    and its own chain's keys after that. The tokens are the text's, not the draft's: up to the first wrong
    proposal, which ends a chain anyway, they are the same.

    Args:
        draft: kind of draft.
        params: the draft's checkpoint.
        target_params: the target's checkpoint, for its embedding and head.
        tokens: [B, T] token ids of the text.
        target: what the target computed on that text.
        steps: proposals in a chain.

    Returns:
        One logits tensor a step, each [B, T - 1 - steps, draft vocabulary].
    """
    bases = tokens.shape[1] - 1 - steps
    embedded = F.embedding(tokens, target_params["model.embed_tokens.weight"])
    hidden = draft.enter(params, target)[:, :bases]
    future = torch.ones(bases, bases, dtype=torch.bool).triu(1)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    logits: list[Tensor] = []
    for step in range(steps):
        positions = torch.arange(bases) + step

        def attend(x: Tensor, positions: Tensor = positions) -> Tensor:
            query, key, value = project(params, draft.layer, x, positions)
            keys.append(key)
            values.append(value)
            scale = SHAPE.head_dim**-0.5
            scores = [(query @ keys[0].transpose(-1, -2) * scale).masked_fill(future, float("-inf"))]
            scores += [(query * own).sum(-1, keepdim=True) * scale for own in keys[1:]]
            weights = torch.cat(scores, dim=-1).softmax(-1)
            attended = weights[..., :bases] @ values[0]
            for number, own in enumerate(values[1:]):
                attended = attended + weights[..., bases + number, None] * own
            return merge(params, draft.layer, attended)

        inputs = embedded[:, 1 + step : 1 + step + bases]
        proposal, hidden = draft.step(params, target_params["lm_head.weight"], inputs, hidden, attend)
        logits.append(proposal)
    return logits
