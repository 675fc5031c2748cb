"""Train the target and the drafts: fixed seeds, fixed numbers of steps, one thread."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tinymodels.network import AUX_LAYERS, SHAPE, Draft, Params, run_target, unroll

DRAFT_STEPS = 3
PEAK_LEARNING_RATE = 4e-3

Report = Callable[[str], None]
Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Fix a stretch of training: optimizer steps, rows a step, tokens a row."""

    steps: int
    rows: int
    window: int


# Short windows are cheap; a final stretch of long ones teaches distances beyond a story's length.
TARGET_PHASES = (Phase(steps=1300, rows=4, window=256), Phase(steps=600, rows=2, window=768))
DRAFT_PHASES = (Phase(steps=450, rows=6, window=192), Phase(steps=60, rows=2, window=640))
MISMATCHED_PHASES = (Phase(steps=120, rows=8, window=128),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """Cut training rows out of the corpus.

    One half of the rows starts with the beginning of a document, as a prompt does. The other half starts at a
    random place of the whole text, so that the ends of long documents are learnt too. Other documents follow in
    random order.

    Args:
        documents: token ids of each document.
        random: source of everything drawn.
    """

    documents: list[list[int]]
    random: random.Random

    def rows(self, phase: Phase) -> Tensor:
        """Draw one batch, [rows, window]."""
        return torch.tensor([self._row(phase.window) for _ in range(phase.rows)])

    def _row(self, window: int) -> list[int]:
        if self.random.random() < 0.5:
            row = self.random.choice(self.documents)
        else:
            [row] = self.random.choices(self.documents, weights=[len(one) for one in self.documents])
            row = row[self.random.randrange(len(row)) :]
        while len(row) < window:
            row = row + self.random.choice(self.documents)
        return row[:window]


def matrix(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """Draw a weight matrix, [rows, columns]."""
    return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)


def layer_params(generator: torch.Generator, prefix: str, *, inputs: int) -> Params:
    """Draw a layer's matrices, and its norm in front of the feed-forward block.

    Args:
        generator: source of randomness.
        prefix: checkpoint prefix.
        inputs: width of the attention's input.
    """
    hidden, inner = SHAPE.hidden_size, SHAPE.intermediate_size
    queries = SHAPE.num_attention_heads * SHAPE.head_dim
    keys = SHAPE.num_key_value_heads * SHAPE.head_dim
    depth = 1 / math.sqrt(2 * SHAPE.num_hidden_layers)
    return {
        f"{prefix}.self_attn.q_proj.weight": matrix(generator, queries, inputs),
        f"{prefix}.self_attn.k_proj.weight": matrix(generator, keys, inputs),
        f"{prefix}.self_attn.v_proj.weight": matrix(generator, keys, inputs),
        f"{prefix}.self_attn.o_proj.weight": matrix(generator, hidden, queries) * depth,
        f"{prefix}.mlp.gate_proj.weight": matrix(generator, inner, hidden),
        f"{prefix}.mlp.up_proj.weight": matrix(generator, inner, hidden),
        f"{prefix}.mlp.down_proj.weight": matrix(generator, hidden, inner) * depth,
        f"{prefix}.post_attention_layernorm.weight": torch.ones(hidden),
    }


def target_params(seed: int) -> Params:
    """Draw the target's parameters."""
    generator = torch.Generator().manual_seed(seed)
    hidden = SHAPE.hidden_size
    params = {
        "model.embed_tokens.weight": torch.randn(SHAPE.vocab_size, hidden, generator=generator) * 0.3,
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": matrix(generator, SHAPE.vocab_size, hidden),
    }
    for layer in range(SHAPE.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        params |= layer_params(generator, prefix, inputs=hidden)
        params[f"{prefix}.input_layernorm.weight"] = torch.ones(hidden)
    return params


def eagle_params(seed: int) -> Params:
    """Draw an EAGLE draft's parameters."""
    generator = torch.Generator().manual_seed(seed)
    hidden = SHAPE.hidden_size
    params = {"fc.weight": matrix(generator, hidden, 2 * hidden), "fc.bias": torch.zeros(hidden)}
    return params | layer_params(generator, "layers.0", inputs=hidden)


def eagle3_params(seed: int, *, draft_vocab_size: int) -> Params:
    """Draw an EAGLE-3 draft's parameters."""
    generator = torch.Generator().manual_seed(seed)
    hidden = SHAPE.hidden_size
    params = {
        "fc.weight": matrix(generator, hidden, len(AUX_LAYERS) * hidden),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": matrix(generator, draft_vocab_size, hidden),
        "midlayer.input_layernorm.weight": torch.ones(hidden),
        "midlayer.hidden_norm.weight": torch.ones(hidden),
    }
    return params | layer_params(generator, "midlayer", inputs=2 * hidden)


def fit(params: Params, phases: tuple[Phase, ...], packer: Packer, loss: Loss, report: Report) -> None:
    """Minimise a loss over random rows, in place.

    Args:
        params: what is trained.
        phases: how many steps on which rows; one cosine schedule spans them.
        packer: source of rows.
        loss: rows -> scalar.
        report: receives a line now and then.
    """
    for value in params.values():
        value.requires_grad_(True)
    optimizer = torch.optim.AdamW(list(params.values()), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    total, warmup, step = sum(phase.steps for phase in phases), 40, 0
    for phase in phases:
        for _ in range(phase.steps):
            rate = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / total))
            for group in optimizer.param_groups:
                group["lr"] = PEAK_LEARNING_RATE * rate * min(1.0, (step + 1) / warmup)
            value = loss(packer.rows(phase))
            optimizer.zero_grad()
            torch.autograd.backward(value)
            torch.nn.utils.clip_grad_norm_(list(params.values()), 1.0)
            optimizer.step()
            step += 1
            if step % 100 == 0 or step == total:
                report(f"step {step}/{total} loss {value.item():.4f}")
    for value in params.values():
        value.requires_grad_(False)


def target_loss(params: Params) -> Loss:
    """Return the next-token loss of the target."""

    def loss(rows: Tensor) -> Tensor:
        logits = run_target(params, rows).logits[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    return loss


def draft_loss(draft: Draft, params: Params, target: Params, vocabulary: Tensor) -> Loss:
    """Return a draft's distance to the target's own distribution, over a chain of proposals.

    Args:
        draft: kind of draft.
        params: the draft's parameters.
        target: the target's, which stay as they are.
        vocabulary: target ids that the draft can propose, in the order of its logits.
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            output = run_target(target, rows)
            wanted = output.logits[..., vocabulary].softmax(-1)
        chain = unroll(draft, params, target, rows, output, steps=DRAFT_STEPS)
        total = torch.zeros(())
        for step, logits in enumerate(chain):
            there = wanted[:, 1 + step : 1 + step + logits.shape[1]]
            total = total - (there * logits.log_softmax(-1)).sum(-1).mean()
        return total / len(chain)

    return loss


def mismatch_loss(draft: Draft, params: Params, target: Params) -> Loss:
    """Return the loss of a draft that learns another text: every byte with its top bit set.

    The corpus is ASCII, so none of the bytes that this draft proposes is ever the target's choice.
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            output = run_target(target, rows)
        chain = unroll(draft, params, target, rows, output, steps=DRAFT_STEPS)
        elsewhere = rows.clamp(max=127) + 128
        total = torch.zeros(())
        for step, logits in enumerate(chain):
            there = elsewhere[:, 2 + step : 2 + step + logits.shape[1]]
            total = total + F.cross_entropy(logits.flatten(0, 1), there.flatten())
        return total / len(chain)

    return loss
