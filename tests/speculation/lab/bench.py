"""A real scheduler with a real speculative worker in this process, and what runs jobs on it."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass, field
from typing import Any

from speculation.lab import driving, graphs, kernels, mutations
from speculation.lab.protocol import Answer, Job, Outcome, Pool, Setup
from speculation.lab.references import References
from speculation.lab.watching import Watcher

# A text is known beyond what is asked for, so that the last steps can be judged, too.
BEYOND = 14


@dataclass(kw_only=True)
class _Counts:
    retracted: int = 0


@dataclass
class Bench:
    """A scheduler with its references."""

    setup: Setup
    scheduler: Any = field(init=False)
    references: References = field(init=False)
    watcher: Watcher = field(init=False)
    graphs: graphs.OwnGraphs | None = field(init=False, default=None)
    counts: _Counts = field(default_factory=_Counts)

    def __post_init__(self) -> None:
        if not self.setup.installed_attention:
            kernels.install()
        if self.setup.forgetful:
            forget_threshold()
        self.scheduler = build_scheduler(self.setup)
        self.references = References(setup=self.setup)
        self.watcher = Watcher(scheduler=self.scheduler, references=self.references)
        if self.setup.own_graphs:
            self.graphs = graphs.install(self.scheduler.model_worker)
        self.fallback = self.scheduler.model_worker._forward_decode_without_spec
        self.watcher.attach()
        self._count_retractions()

    def run(self, job: Job) -> Outcome:
        """Run a job; an exception of the scheduler becomes part of the outcome."""
        watcher, worker = self.watcher, self.scheduler.model_worker
        self._know(job)
        watcher.steps, watcher.faults, watcher.checked_rows = [], [], 0
        watcher.check_state = job.check_state
        watcher.choose = driving.threshold_chooser(worker, job.thresholds)
        watcher.watch_fallback(mutations.mutated(worker, job.mutation) if job.mutation else self.fallback)
        self.counts.retracted = 0
        if self.graphs:
            self.graphs.replays = 0
        if job.eager_admission:
            for name in ("new_token_ratio", "init_new_token_ratio", "min_new_token_ratio"):
                setattr(self.scheduler, name, 0.01)
        driver = driving.Driver(job=job, scheduler=self.scheduler)
        error, pool = "", None
        try:
            driver.run()
            pool = self._pool()
        except Exception as caught:  # noqa: BLE001 - whatever ends the loop is the outcome
            traceback.print_exc()
            error = f"{type(caught).__name__}: {caught}"
        return Outcome(
            answers=self._answers(job, driver.received),
            steps=tuple(watcher.steps),
            faults=tuple(watcher.faults),
            checked_rows=watcher.checked_rows,
            pool=pool,
            retracted=self.counts.retracted,
            graph_replays=self.graphs.replays if self.graphs else 0,
            error=error,
        )

    def _know(self, job: Job) -> None:
        """Compute the whole text of each request that says what the target alone would."""
        self.references.forget()
        self.watcher.texts = {
            ask.name: (*ask.prompt, *self.references.continuation(ask.prompt, ask.tokens + BEYOND))
            for client in job.clients
            for ask in client
            if set(ask.sampling) <= {"ignore_eos"}
        }

    def _answers(self, job: Job, received: driving.Received) -> dict[str, Answer]:
        answers = {}
        for ask in (ask for client in job.clients for ask in client):
            tokens = tuple(received.tokens.get(ask.name, ()))
            text = self.watcher.texts.get(ask.name, (*ask.prompt, *tokens))
            finish = received.finished.get(ask.name, "never")
            count = len(tokens) if finish == "abort" else ask.tokens
            answers[ask.name] = Answer(
                tokens=tokens,
                expected=text[len(ask.prompt) :][:count],
                finish=finish,
                cached=received.cached.get(ask.name, 0),
                logprobs=tuple(received.logprobs.get(ask.name, ())),
            )
        return answers

    def _pool(self) -> Pool:
        scheduler = self.scheduler
        allocator, cache, requests = (
            scheduler.token_to_kv_pool_allocator,
            scheduler.tree_cache,
            scheduler.req_to_token_pool,
        )
        counted = {
            "tokens": scheduler.max_total_num_tokens,
            "available": allocator.available_size(),
            "cached": cache.evictable_size(),
            "protected": cache.protected_size(),
            "requests": requests.size,
            "requests_available": requests.available_size(),
        }
        assert scheduler.flush_cache()
        return Pool(**counted, available_when_flushed=allocator.available_size())

    def _count_retractions(self) -> None:
        kind = type(self.scheduler.running_batch)
        original = kind.retract_decode

        def counted(batch: Any, *arguments: Any, **named: Any) -> Any:
            result = original(batch, *arguments, **named)
            self.counts.retracted += len(result[0])
            return result

        kind.retract_decode = counted


def forget_threshold() -> None:
    """Make every worker that is built lose what its ``__init__`` has set."""
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

    original = EAGLEWorkerV2.__init__

    def forgetful(worker: Any, *arguments: Any, **named: Any) -> None:
        original(worker, *arguments, **named)
        del worker.spec_disable_batch_threshold

    EAGLEWorkerV2.__init__ = forgetful


def build_scheduler(setup: Setup) -> Any:
    """Return SGLang's scheduler for one process without a GPU.

    Its threshold is set before each step; 1 at the start makes the worker build what plain decode needs.
    """
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.server_args import PortArgs, ServerArgs, set_global_server_args_for_scheduler

    speculative: dict[str, Any] = {}
    if setup.algorithm:
        speculative = {
            "speculative_algorithm": setup.algorithm,
            "speculative_draft_model_path": setup.draft,
            "speculative_num_steps": setup.steps,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": setup.steps + 1,
            "speculative_disable_batch_threshold": 1,
        }
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments = ServerArgs(
        model_path=setup.target,
        device="cpu",
        attention_backend="triton",
        sampling_backend="pytorch",
        grammar_backend="xgrammar" if setup.grammars else "none",
        dtype="float32",
        max_total_tokens=setup.pool_tokens,
        max_running_requests=setup.max_running,
        mem_fraction_static=0.7,
        page_size=setup.page_size,
        disable_cuda_graph=True,
        disable_radix_cache=not setup.radix,
        skip_tokenizer_init=not setup.tokenizer,
        random_seed=1,
        **speculative,
    )
    set_global_server_args_for_scheduler(arguments)
    scheduler = Scheduler(arguments, PortArgs.init_new(arguments), 0, 0, 0, 0, 0, 0, None)
    scheduler.is_initializing = False
    assert scheduler.enable_overlap, "spec v2 is off"
    return scheduler
