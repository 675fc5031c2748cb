"""What the target and the draft should compute, from code that SGLang has no part in.

The target is `transformers`; EAGLE and EAGLE-3 drafts are the torch functions that trained them (`tinymodels`), a
STANDALONE draft is `transformers` again. Lengths count tokens: at length L the tokens 0..L-1 are in the KV caches, and
token L is known. The draft's slot i holds token i + 1, and what the target made of token i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from speculation.lab.protocol import Setup
from speculation.lab.release import RELEASE
from tinymodels.checkpoint import DRAFTS, read_params
from tinymodels.network import SHAPE, Params, TargetOutput, merge, project, run_target
from torch import Tensor
from torch.nn import functional

# Before 0.5.12 a worker counted on before its first step: the first proposal got the position of the second.
FIRST_DRAFT_POSITION = 1 if RELEASE < (0, 5, 12) else 0

Keys = tuple[Tensor, Tensor]
"""Keys and values of one layer, each [T, kv heads, d]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Everything about one text: ``drafted[i]`` is what the draft proposes from slot i (its own vocabulary)."""

    tokens: tuple[int, ...]
    target_kv: list[Keys]
    draft_kv: list[Keys]
    draft_hidden: Tensor | None
    drafted: Tensor


class Model:
    """A language model of `transformers`, in float32."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def continue_greedily(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Return the greedy continuation, past every end token."""
        with torch.no_grad():
            text = self.model.generate(
                torch.tensor([prompt]),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        return [int(token) for token in text[0, len(prompt) :]]

    def run(self, tokens: Sequence[int], positions: Sequence[int] | None = None) -> tuple[Tensor, list[Keys]]:
        """Return logits [T, V] and the KV of each layer."""
        places = None if positions is None else torch.tensor([list(positions)])
        with torch.no_grad():
            output = self.model(torch.tensor([list(tokens)]), position_ids=places, use_cache=True)
        return output.logits[0], [_layer(output.past_key_values, number) for number in range(self.layers)]

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return int(self.model.config.num_hidden_layers)


@dataclass(kw_only=True)
class StandaloneDraft:
    """A draft that is a language model of its own: it reads the text from its second token on."""

    model: Model

    def truth(self, tokens: Sequence[int], _target: TargetOutput | None) -> tuple[list[Keys], Tensor | None, Tensor]:
        """Return KV, hidden states (none are passed on) and proposals along a text."""
        logits, kv = self.model.run(tokens[1:])
        return kv, None, logits.argmax(-1)

    def chain(self, tokens: Sequence[int], _target: TargetOutput | None, steps: int) -> list[int]:
        """Return the proposals after a text."""
        known = len(tokens) - 1
        drafts: list[int] = []
        for _ in range(steps):
            positions = [*range(known), *(known + FIRST_DRAFT_POSITION + n for n in range(len(drafts)))]
            logits, _kv = self.model.run([*tokens[1:], *drafts], positions)
            drafts.append(int(logits[-1].argmax()))
        return drafts


@dataclass(kw_only=True)
class EagleDraft:
    """A draft layer that reads the target's hidden states."""

    folder: Path
    name: str
    target: Params
    params: Params = field(init=False)

    def __post_init__(self) -> None:
        self.params = read_params(self.folder, self.name)

    def truth(self, tokens: Sequence[int], target: TargetOutput | None) -> tuple[list[Keys], Tensor | None, Tensor]:
        """Return KV, hidden states and proposals along a text."""
        assert target is not None
        known = len(tokens) - 1
        hidden = DRAFTS[self.name].enter(self.params, target)[:, :known]
        logits, after, kv = self._run(tokens[1:], hidden, torch.arange(known))
        return [kv], after[0], logits[0].argmax(-1)

    def chain(self, tokens: Sequence[int], target: TargetOutput | None, steps: int) -> list[int]:
        """Return the proposals after a text."""
        assert target is not None
        known = len(tokens) - 1
        hidden = DRAFTS[self.name].enter(self.params, target)[:, :known]
        positions = torch.arange(known)
        drafts: list[int] = []
        for number in range(steps):
            logits, after, _kv = self._run([*tokens[1:], *drafts], hidden, positions)
            drafts.append(self._target_id(int(logits[0, -1].argmax())))
            hidden = torch.cat((hidden, after[:, -1:]), dim=1)
            positions = torch.cat((positions, torch.tensor([known + FIRST_DRAFT_POSITION + number])))
        return drafts

    def _target_id(self, draft_id: int) -> int:
        return draft_id + int(self.params["d2t"][draft_id]) if "d2t" in self.params else draft_id

    def _run(self, tokens: Sequence[int], hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Keys]:
        """Return logits, next hidden states and KV of the draft layer, each over the whole row."""
        draft = DRAFTS[self.name]
        made: list[Tensor] = []

        def attend(x: Tensor) -> Tensor:
            query, key, value = project(self.params, draft.layer, x, positions)
            made.extend((key, value))
            return merge(
                self.params, draft.layer, functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            )

        embedded = functional.embedding(torch.tensor([list(tokens)]), self.target["model.embed_tokens.weight"])
        with torch.no_grad():
            logits, after = draft.step(self.params, self.target["lm_head.weight"], embedded, hidden, attend)
        group = SHAPE.num_attention_heads // SHAPE.num_key_value_heads
        key, value = (tensor[0, ::group].transpose(0, 1) for tensor in made)
        return logits, after, (key, value)


@dataclass(kw_only=True)
class References:
    """The target and, if there is one, the draft of a setup."""

    setup: Setup
    target: Model = field(init=False)
    draft: StandaloneDraft | EagleDraft | None = field(init=False, default=None)
    _params: Params | None = field(init=False, default=None)
    _greedy: dict[tuple[int, ...], list[int]] = field(init=False, default_factory=dict)
    _truths: dict[tuple[int, ...], Truth] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.target = Model(self.setup.target)
        folder = Path(self.setup.draft)
        if self.setup.algorithm == "STANDALONE":
            self.draft = StandaloneDraft(model=Model(self.setup.draft))
        elif self.setup.algorithm is not None:
            target = Path(self.setup.target)
            self._params = read_params(target.parent, target.name)
            self.draft = EagleDraft(folder=folder.parent, name=folder.name, target=self._params)

    def continuation(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Return the target's greedy continuation."""
        known = self._greedy.get(tuple(prompt), [])
        if len(known) < tokens:
            known = self._greedy[tuple(prompt)] = self.target.continue_greedily(prompt, tokens)
        return known[:tokens]

    def truth(self, tokens: Sequence[int]) -> Truth:
        """Return what the caches hold along a text and what the draft proposes."""
        text = tuple(tokens)
        if text not in self._truths:
            assert self.draft
            _logits, target_kv = self.target.run(text)
            draft_kv, hidden, drafted = self.draft.truth(text, self._read(text))
            self._truths[text] = Truth(
                tokens=text, target_kv=target_kv, draft_kv=draft_kv, draft_hidden=hidden, drafted=drafted
            )
        return self._truths[text]

    def accepted(self, tokens: Sequence[int], length: int, steps: int) -> int | None:
        """Return how many drafts a verification at a length accepts; None where the text is too short to say."""
        if length + 1 + steps > len(tokens):
            return None
        assert self.draft
        known = tokens[: length + 1]
        drafts = self.draft.chain(known, self._read(known), steps)
        right = tokens[length + 1 : length + 1 + steps]
        return next((n for n, (one, two) in enumerate(zip(drafts, right, strict=True)) if one != two), steps)

    def forget(self) -> None:
        """Drop the caches of texts."""
        self._truths.clear()

    def _read(self, tokens: Sequence[int]) -> TargetOutput | None:
        if self._params is None:
            return None
        with torch.no_grad():
            return run_target(self._params, torch.tensor([list(tokens)]))


def _layer(cache: Any, number: int) -> Keys:
    """Return a layer of a `transformers` cache, whose shape changed with release 5."""
    if hasattr(cache, "layers"):
        key, value = cache.layers[number].keys, cache.layers[number].values
    else:
        key, value = cache[number]
    return key[0].transpose(0, 1), value[0].transpose(0, 1)
