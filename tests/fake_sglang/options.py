"""The command line of the fake server: SGLang's options as far as they are imitated, all others are left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fake_sglang.faults import Faults, chosen

VERSION = "0.5.23"
_SWITCHES = {"--openai-only", "--enable-metrics", "--disable-radix-cache", "--incremental-streaming-output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a server was told; ``step_s`` is the time of a decode step, 0 as fast as it goes.

    ``draft_s`` is what each request of a batch adds to a step that drafts: a full GPU verifies for nothing no more.
    """

    port: int = 30000
    host: str = "127.0.0.1"
    model_path: str = "fake"
    served_model_name: str = "fake"
    asked_context_length: int | None = None
    asked_max_total_tokens: int | None = None
    max_running_requests: int = 64
    stream_interval: int = 1
    tool_call_parser: str | None = None
    algorithm: str | None = None
    num_steps: int = 3
    num_draft_tokens: int = 4
    threshold: int = 0
    adaptive: bool = False
    openai_only: bool = False
    metrics: bool = False
    prefix_cache: bool = True
    incremental: bool = False
    step_s: float = 0.0
    draft_s: float = 0.0
    faults: Faults = field(default_factory=Faults)

    @property
    def context_length(self) -> int:
        """The tokens that a prompt and its answer may have; the options tell it only if they set it."""
        return self.asked_context_length or 4096

    @property
    def max_total_tokens(self) -> int:
        """The tokens that the KV pool holds; the options tell it only if they set it."""
        return self.asked_max_total_tokens or 65_536

    @property
    def speculative(self) -> bool:
        """Whether the server drafts."""
        return self.algorithm is not None and "no-speculation" not in self.faults

    def to_json(self) -> dict[str, object]:
        """Return the options under SGLang's names."""
        return {
            "model_path": self.model_path,
            "tokenizer_path": self.model_path,
            "served_model_name": self.served_model_name,
            "host": self.host,
            "port": self.port,
            "device": "cpu",
            "dtype": "float32",
            "context_length": self.asked_context_length,
            "max_total_tokens": self.asked_max_total_tokens,
            "max_running_requests": self.max_running_requests,
            "stream_interval": self.stream_interval,
            "tool_call_parser": self.tool_call_parser,
            "disable_radix_cache": not self.prefix_cache,
            "incremental_streaming_output": self.incremental,
            "enable_metrics": self.metrics,
            "tp_size": 1,
            "dp_size": 1,
            "speculative_algorithm": self.algorithm,
            "speculative_num_steps": self.num_steps if self.algorithm else None,
            "speculative_eagle_topk": 1 if self.algorithm else None,
            "speculative_num_draft_tokens": self.num_draft_tokens if self.algorithm else None,
            "speculative_adaptive": self.adaptive,
            "speculative_disable_batch_threshold": None if self.adaptive else self.threshold or None,
        }


def parse(argv: Sequence[str], variables: Mapping[str, str]) -> Options:
    """Return the options of a command line; the faults come from the environment.

    Raises ValueError.
    """
    given = _given(argv)
    algorithm = given.get("--speculative-algorithm")
    faults = chosen(variables, speculative=algorithm is not None)
    model = given.get("--model-path", given.get("--model", "fake"))
    adaptive = given.get("--speculative-adaptive-config")
    millis = variables.get("FAKE_TOKEN_MS") or "0"
    return Options(
        port=int(given.get("--port", 30000)),
        host=given.get("--host", "127.0.0.1"),
        model_path=model,
        served_model_name=given.get("--served-model-name", model),
        asked_context_length=_number(given, "--context-length"),
        asked_max_total_tokens=_number(given, "--max-total-tokens"),
        max_running_requests=int(given.get("--max-running-requests", 64)),
        stream_interval=int(given.get("--stream-interval", 1)),
        tool_call_parser=given.get("--tool-call-parser"),
        algorithm=algorithm,
        num_steps=int(given.get("--speculative-num-steps", 3)),
        num_draft_tokens=int(given.get("--speculative-num-draft-tokens", 4)),
        threshold=_adaptive(Path(adaptive)) if adaptive else int(given.get("--speculative-disable-batch-threshold", 0)),
        adaptive=adaptive is not None,
        openai_only="--openai-only" in argv,
        metrics="--enable-metrics" in argv,
        prefix_cache="--disable-radix-cache" not in argv,
        incremental="--incremental-streaming-output" in argv,
        step_s=float(millis) / 1000,
        draft_s=float(variables.get("FAKE_DRAFT_MS") or 0) / 1000,
        faults=faults,
    )


def _given(argv: Sequence[str]) -> dict[str, str]:
    """Return the options that have a value."""
    given = {}
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name in _SWITCHES:
            continue
        if equals:
            given[name] = value
        elif place + 1 < len(argv) and not argv[place + 1].startswith("--"):
            given[name] = argv[place + 1]
    return given


def _number(given: Mapping[str, str], name: str) -> int | None:
    return int(given[name]) if name in given else None


def _adaptive(path: Path) -> int:
    """Return the largest batch that drafts, from the configuration of adaptive speculation."""
    slots = json.loads(path.read_text(encoding="utf-8"))
    return min((int(size) for size, slot in slots.items() if slot["candidate_steps"] == [0]), default=1) - 1
