"""Turn what a client sends into a job, refuse what cannot be served, wait for what comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fake_sglang import instance
from fake_sglang.asgi import Refused, Request
from fake_sglang.engine import Engine, grammar_of
from fake_sglang.job import Job
from fake_sglang.tokens import VOCABULARY, as_symbols, encode


def job_of(engine: Engine, prompt: object, parameters: Mapping[str, Any], **more: Any) -> Job:
    """Return the job for a prompt (text or token ids) and its sampling parameters.

    Raises Refused for a prompt that is too long, as a message for the caller to wrap.
    """
    ids = encode(prompt) if isinstance(prompt, str) else prompt
    if not isinstance(ids, list) or not ids or not all(isinstance(one, int) and 0 <= one < VOCABULARY for one in ids):
        raise Refused(400, "The prompt is neither a text nor a list of tokens of the vocabulary.")
    limit = engine.options.context_length
    if len(ids) >= limit:
        if "overlong-crashes" in engine.options.faults:
            engine.crash_on_overlong()
        engine.refused_overlong = True
        raise Refused(400, f"The input ({len(ids)} tokens) is longer than the model's context length ({limit} tokens).")
    text = as_symbols(ids)
    stop = parameters.get("stop") or ()
    wanted = parameters.get("max_new_tokens")
    schema = parameters.get("json_schema")
    grammar = None
    if schema is not None:
        grammar = grammar_of(instance.document(_shape(schema), text), engine.options)
    temperature = parameters.get("temperature")
    return Job(
        prompt=text,
        max_new_tokens=max(0, min(128 if wanted is None else int(wanted), limit - len(ids) - 1)),
        temperature=1.0 if temperature is None else float(temperature),
        seed=parameters.get("sampling_seed"),
        ignore_eos=bool(parameters.get("ignore_eos")) and grammar is None,
        stop=[stop] if isinstance(stop, str) else list(stop),
        grammar=grammar,
        **more,
    )


def _shape(schema: object) -> dict[str, Any]:
    try:
        shape = json.loads(schema) if isinstance(schema, str) else schema
    except ValueError as error:
        raise Refused(400, f"Invalid JSON schema: {error}") from None
    if not isinstance(shape, dict):
        raise Refused(400, "The JSON schema is no object.")
    return shape


async def finished(engine: Engine, job: Job, request: Request) -> None:
    """Wait until a job is done; a client that goes away ends it.

    Raises Refused when the engine takes the job and drops it.
    """
    async for _ in progress(engine, job, request):
        pass


async def progress(engine: Engine, job: Job, request: Request) -> AsyncIterator[None]:
    """Yield whenever a job has more tokens, the last time when it is done.

    Raises Refused when the engine takes the job and drops it.
    """
    engine.submit(job)
    try:
        while not _over(job):
            changed = asyncio.ensure_future(job.changed.wait())
            await asyncio.wait({changed, request.gone}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if request.gone.done():
                return
            job.changed.clear()
            if not _over(job):
                yield
        if job.refused is not None:
            raise Refused(500, job.refused)
        yield
    finally:
        if job.finish is None:
            engine.abort(job.rid)


async def portions(engine: Engine, job: Job, request: Request) -> AsyncIterator[int | None]:
    """Yield how many tokens of a stream are to be sent, None when all are there.

    The first token goes at once, then as many together as the stream interval says.
    """
    sent, seen, interval = 0, 0, engine.options.stream_interval
    async for _ in progress(engine, job, request):
        for count in job.marks[seen:]:
            held = any(job.output[:count].endswith(stop[:size]) for stop in job.stop for size in range(1, len(stop)))
            due = count - sent >= interval or not sent
            if due and not held and "stream-one-chunk" not in engine.options.faults:
                yield count
                sent = count
        seen = len(job.marks)
        if job.finish is not None:
            yield None


def _over(job: Job) -> bool:
    return job.finish is not None or job.refused is not None
