"""CUDA graphs as a CPU can emulate them: a captured graph is the captured function over the same static buffers.

Replaying runs it again and copies into the captured outputs. That proves buffers, padding and metadata, and that the
graphs of plain decode and those of verification are never taken for each other. It proves nothing about CUDA.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SIZES = [1, 2, 4, 8]


@dataclass(kw_only=True)
class OwnGraphs:
    """The emulated graphs of plain decode."""

    replays: int = 0
    sizes: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class _Graph:
    counter: OwnGraphs
    run: Callable[[], Any] = lambda: None
    backend: Any = None
    metadata: Any = None
    output: Any = None

    def replay(self) -> None:
        """Run the captured function with the metadata object of its capture, as a graph keeps its pointers."""
        self.counter.replays += 1
        current, self.backend.forward_metadata = self.backend.forward_metadata, self.metadata
        output = self.run()
        self.backend.forward_metadata = current
        for name in ("next_token_logits", "hidden_states"):
            if getattr(self.output, name) is not None:
                getattr(self.output, name).copy_(getattr(output, name))


def install(worker: Any) -> OwnGraphs:
    """Capture emulated graphs on a worker, and put graphs in the place of verification's that must not run a decode."""
    from sglang.srt.model_executor import cuda_graph_runner

    counter, runner, arguments = OwnGraphs(), worker.target_worker.model_runner, worker.server_args

    class Verification(cuda_graph_runner.CudaGraphRunner):  # type: ignore[misc]
        """Stands where the graphs of verification would be."""

        def __init__(self) -> None:
            pass

        def can_run(self, forward_batch: Any) -> bool:
            """Refuse: this machine has none; a decode must not even ask."""
            assert not forward_batch.forward_mode.is_decode(), "verification's graphs were asked for a plain decode"
            return False

    def capture(self: Any, graph: _Graph, _pool: Any, _stream: Any, function: Callable[[], Any]) -> Any:
        backend = self.model_runner.attn_backend
        graph.run, graph.backend, graph.metadata = function, backend, backend.forward_metadata
        graph.output = function()
        return graph.output

    emulated = cuda_graph_runner.CudaGraphRunner
    emulated._create_device_graph = lambda _self: _Graph(counter=counter)
    emulated._capture_graph = capture
    stream = types.SimpleNamespace(stream=None)
    cuda_graph_runner.graph_capture = lambda *_a, **_k: contextlib.nullcontext(stream)
    cuda_graph_runner.set_global_graph_memory_pool(1)
    runner.graph_runner = Verification()
    arguments.disable_cuda_graph, arguments.cuda_graph_bs = False, list(SIZES)
    _capture_and_compare(worker, runner, arguments)
    counter.sizes = list(worker.plain_decode_state[1].capture_bs)
    counter.replays = 0
    return counter


def _capture_and_compare(worker: Any, runner: Any, arguments: Any) -> None:
    """Capture, and hold what capturing changes for a while against what it was."""

    def state() -> tuple[object, ...]:
        return (
            runner.attn_backend,
            runner.graph_runner,
            runner.spec_algorithm,
            runner.init_new_workspace,
            arguments.cuda_graph_bs,
            arguments.enable_return_hidden_states,
        )

    before = state()
    worker._init_plain_decode_graphs()
    assert state() == before
    assert worker.plain_decode_state[0] is not runner.attn_backend
