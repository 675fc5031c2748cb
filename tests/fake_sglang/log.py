"""What SGLang writes into its log, as far as somebody reads it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from fake_sglang.job import Job
from fake_sglang.options import Options


def line(text: str) -> None:
    """Write a line with its time."""
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", flush=True)


def raised(traceback: str) -> None:
    """Write a traceback."""
    sys.stderr.write(traceback)
    sys.stderr.flush()


def arguments(options: Options) -> None:
    """Write the line that a server begins with."""
    values = ", ".join(f"{name}={value!r}" for name, value in options.to_json().items())
    line(f"server_args=ServerArgs({values})")


def prefill(jobs: Sequence[Job], *, running: int, queued: int, used: int) -> None:
    """Write that requests were admitted."""
    cached = sum(job.cached for job in jobs)
    new = sum(len(job.prompt) for job in jobs) - cached
    line(
        f"Prefill batch, #new-seq: {len(jobs)}, #new-token: {new}, #cached-token: {cached}, #token: {used}, "
        f"token usage: 0.00, #running-req: {running}, #queue-req: {queued}, #pending-token: 0, cuda graph: False, "
        "input throughput (token/s): 0.00"
    )


def decode(*, running: int, queued: int, used: int, drafts: tuple[int, int] | None) -> None:
    """Write what the batch does; ``drafts`` are right ones and verifications."""
    accepted = ""
    if drafts:
        length = drafts[0] / drafts[1] if drafts[1] else 0.0
        accepted = f"accept len: {1 + length:.2f}, accept rate: {length / 3:.2f}, "
    line(
        f"Decode batch, #running-req: {running}, #token: {used}, token usage: 0.00, {accepted}cuda graph: False, "
        f"gen throughput (token/s): 100.00, #queue-req: {queued}"
    )


def switched(before: int, after: int, draft_tokens: int) -> None:
    """Write that adaptive speculation takes other steps."""
    tokens = (draft_tokens, 1) if after < before else (1, draft_tokens)
    line(f"Switch adaptive runtime state: steps {before} -> {after}, draft_tokens {tokens[0]} -> {tokens[1]}")
