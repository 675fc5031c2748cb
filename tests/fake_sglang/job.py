"""One request on its way through the engine."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from fake_sglang.language import Distribution

Finish = dict[str, object]


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """What is asked, and what has come so far; texts are symbols, one character for each token.

    ``source`` is the prompt that the model sees. ``peaks`` has, for each token, the largest batch that the request
    was in by then, and ``marks`` how many tokens there were after each step but the last.
    """

    prompt: str
    max_new_tokens: int = 128
    temperature: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    grammar: str | None = None
    scored: bool = False
    score_from: int = -1
    candidates: int = 0
    asked_ids: Sequence[int] | None = None
    with_text: bool = False
    chat: bool = False
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)

    source: str = ""
    output: str = ""
    steps: list[Distribution] = field(default_factory=list)
    cached: int = 0
    turn: int = 0
    again: int = 0
    peak: int = 0
    peaks: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    stale: bool = False
    verified: int = 0
    correct: int = 0
    histogram: list[int] = field(default_factory=list)
    planned: str = ""
    finish: Finish | None = None
    refused: str | None = None
    started: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, finish: Finish) -> None:
        """Finish, for this reason."""
        self.finish, self.ended = finish, time.monotonic()
        self.changed.set()
