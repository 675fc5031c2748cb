"""Loads that cross a threshold in both directions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from speculation.lab.protocol import Ask, Client
from tinymodels.corpus import STORIES

TEXTS = tuple(text.encode() for text in STORIES)


def crossing(
    seed: int,
    clients: int,
    *,
    rounds: int = 2,
    tokens: tuple[int, int] = (6, 20),
    longest: int = 25,
    prefix: Sequence[int] = (),
    sampling: Mapping[str, object] | None = None,
    logprobs: bool = False,
) -> tuple[Client, ...]:
    """Return clients of which the first asks for up to ``longest`` tokens more, so that it outlives the others.

    Prompts are pieces of what the models were trained on, where drafts are often right, and random bytes, where they
    are not.
    """
    drawn = random.Random(seed)
    return tuple(
        tuple(
            Ask(
                name=f"s{seed}c{client}r{turn}",
                prompt=(*prefix, *_prompt(drawn)),
                tokens=drawn.randint(*tokens) + (longest if client == 0 else 0),
                sampling=sampling or {},
                logprobs=logprobs,
            )
            for turn in range(rounds)
        )
        for client in range(clients)
    )


def _prompt(drawn: random.Random) -> tuple[int, ...]:
    if drawn.random() < 0.3:
        return tuple(drawn.randrange(32, 127) for _ in range(drawn.randint(3, 12)))
    text = drawn.choice(TEXTS)
    start = drawn.randrange(len(text) - 40)
    return tuple(text[start : start + drawn.randint(4, 24)])
