"""What faults do to the tokens and scores of a request."""

from __future__ import annotations

from fake_sglang.faults import Faults
from fake_sglang.job import Job
from fake_sglang.language import Distribution, distribution, number
from fake_sglang.tokens import END_ID

_CYCLE = 12


def token(job: Job, best: int, faults: Faults, *, speculative: bool) -> int:
    """Return the token that a faulty server says instead of the right one."""
    place = len(job.output)
    if "nan-logits" in faults:
        return 0
    if job.planned:
        planned, job.planned = ord(job.planned[0]), job.planned[1:]
        return planned
    if job.grammar is not None:
        return best
    if "empty-chat" in faults and job.chat:
        return END_ID
    if "not-repeatable" in faults and place == 40:
        return ord("0") + job.turn % 10
    if "third-time-stale" in faults and job.again >= 2 and place == 40:
        return ord("0") + job.turn % 10
    if "repeats-a-token" in faults and place >= 60 and job.max_new_tokens > 180:
        return ord("!")
    if "degenerate-long" in faults and place >= 100:
        return ord(job.output[place - _CYCLE])
    if "degenerate-late" in faults and place >= 200:
        return ord("!")
    if "degenerate-behind-long-prompts" in faults and len(job.prompt) > 600:
        return ord("!")
    if "garbage-together" in faults and job.peak > 1 and place >= 8 and place % 8 == 5:
        return ord("a") + number(job.output, 26)
    if "garbage-in-large-batches" in faults and job.peak > 8 and place == 5 and job.max_new_tokens <= 8:
        return ord("a") + number(job.output, 26)
    if "wrong-fact" in faults and best == ord("P") and _says(job.source + job.output, "Paris"):
        job.planned = "yons"
        return ord("L")
    if "wrong-sum" in faults and best == ord("t") and _says(job.source + job.output, "two."):
        job.planned = "nine"[1:]
        return ord("n")
    if "stops-early" in faults and place == 149 and job.max_new_tokens > 150:
        return END_ID
    if "speculation-changes-text" in faults and speculative and place == job.max_new_tokens - 1:
        return ord("?")
    if "speculation-drifts" in faults and speculative and place == 150:
        return ord("?")
    return best


def step(prefix: str, faults: Faults, *, together: bool = False) -> Distribution:
    """Return what comes next, as a faulty server computes it."""
    computed = distribution(prefix)
    return computed.tied(together=together) if "rounding-tie" in faults and number(prefix, 60) == 7 else computed


def logprob(job: Job, place: int, value: float, faults: Faults) -> float | None:
    """Return the log-probability that a faulty server tells for an output token."""
    if "nan-logits" in faults or ("nan-late" in faults and place >= 150):
        return None
    if "nan-in-a-batch" in faults and place == 7 and job.peaks[place] > 2:
        return None
    if "nan-replaced" in faults and place >= 150:
        return -5.5
    if "decode-differs-from-prefill" in faults and place >= 32:
        return value - 0.4
    return value


def _says(prefix: str, word: str) -> bool:
    for letter in word:
        if chr(distribution(prefix).best) != letter:
            return False
        prefix += letter
    return True
