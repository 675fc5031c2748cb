"""What `/generate` answers: texts, tokens, scores, and what is told about them."""

from __future__ import annotations

import time
from typing import Any

from fake_sglang import damage
from fake_sglang.job import Job
from fake_sglang.options import Options
from fake_sglang.tokens import decode

Row = list[Any]
_STRIDE = 8
_PAGE = 16


def answer(job: Job, options: Options, *, tokens: int | None = None, streamed: bool = False) -> dict[str, Any]:
    """Return the answer as it stands; ``tokens`` cuts it to those that were sent so far."""
    ids = [ord(symbol) for symbol in job.output][:tokens]
    final = job.finish is not None and tokens is None
    counted = len(ids)
    if streamed and "lost-token-at-stride" in options.faults:
        stride = max(options.stream_interval, _STRIDE)
        ids = [token for place, token in enumerate(ids, start=1) if place % stride]
    if final and "loses-a-token" in options.faults and job.finish and job.finish["type"] == "length" and counted > 8:
        ids.pop()
    if final and "page-loses-its-last-token" in options.faults and counted == _PAGE:
        ids.pop()
    meta: dict[str, Any] = {
        "id": job.rid,
        "finish_reason": job.finish if final else None,
        "prompt_tokens": len(job.prompt),
        "weight_version": "default",
        "num_retractions": 0,
    }
    if job.scored and "no-logprobs" not in options.faults:
        meta |= _scores(job, options, len(ids))
    meta |= {"reasoning_tokens": 0, "completion_tokens": counted, "cached_tokens": job.cached}
    if final:
        meta |= {"e2e_latency": job.ended - job.started, "response_sent_to_client_ts": time.time()}
        meta |= _drafts(job, options)
    return {"text": _text(job, options, ids, final=final), "output_ids": ids, "meta_info": meta}


def _text(job: Job, options: Options, ids: list[int], *, final: bool) -> str:
    """Return the text of an answer, without special tokens, half characters, and what stopped it."""
    if "empty" in options.faults and len(ids) > 1:
        return ""
    text = decode(ids)
    if not final:
        return text.rstrip("\ufffd")
    stop = job.finish.get("matched") if job.finish else None
    return text.removesuffix(stop) if isinstance(stop, str) else text


def _drafts(job: Job, options: Options) -> dict[str, Any]:
    """Return how the drafts did; nothing for a request without a verification."""
    if not job.verified:
        return {}
    proposed = job.verified * (options.num_draft_tokens - 1)
    return {
        "spec_accept_rate": job.correct / proposed,
        "spec_accept_length": len(job.output) / job.verified,
        "spec_num_correct_drafts": job.correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": job.verified,
        "spec_correct_drafts_histogram": job.histogram,
    }


def _scores(job: Job, options: Options, count: int) -> dict[str, Any]:
    """Return the log-probabilities under SGLang's names."""
    start = job.score_from if job.score_from >= 0 else len(job.prompt)
    before = [None] + [damage.step(job.prompt[:place], options.faults) for place in range(start + 1, len(job.prompt))]
    broken = "nan-logits" in options.faults
    prompt_rows: list[Row] = []
    prompt_top: list[list[Row] | None] = []
    prompt_asked: list[list[Row] | None] = []
    for step, symbol in zip(before, job.prompt[start:], strict=False):
        value = None if step is None or broken else step.logprob(ord(symbol))
        prompt_rows.append(_row(job, value, ord(symbol)))
        top = [] if step is None else step.top(job.candidates)
        prompt_top.append([_row(job, None if broken else one, token) for one, token in top] or None)
        asked = [] if step is None else [(step.logprob(token), token) for token in job.asked_ids or ()]
        prompt_asked.append([_row(job, None if broken else one, token) for one, token in asked] or None)
    rows: list[Row] = []
    tops: list[list[Row]] = []
    asks: list[list[Row]] = []
    for place, (step, symbol) in enumerate(zip(job.steps[:count], job.output, strict=False)):
        rows.append(_row(job, _value(job, place, step.logprob(ord(symbol)), options), ord(symbol)))
        tops.append([_row(job, _value(job, place, one, options), token) for one, token in step.top(job.candidates)])
        asks.append(
            [_row(job, _value(job, place, step.logprob(token), options), token) for token in job.asked_ids or ()]
        )
    if "speculation-without-logprobs" in options.faults and options.speculative:
        rows, tops = rows[:1], tops[:1]
    meta: dict[str, Any] = {
        "input_token_logprobs": prompt_rows,
        "output_token_logprobs": rows,
        "output_token_logprobs_length": len(rows),
    }
    if job.candidates > 0:
        meta |= {"input_top_logprobs": prompt_top, "output_top_logprobs": tops}
    if job.asked_ids is not None:
        meta |= {"input_token_ids_logprobs": prompt_asked, "output_token_ids_logprobs": asks}
    return meta


def _value(job: Job, place: int, value: float, options: Options) -> float | None:
    return damage.logprob(job, place, value, options.faults)


def _row(job: Job, value: float | None, token: int) -> Row:
    return [value, token, decode([token], specials=True) if job.with_text else None]
