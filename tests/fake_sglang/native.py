"""SGLang's own routes: generation with everything about it, and what the server tells of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from fake_sglang.answers import answer
from fake_sglang.asgi import DONE, Refused, Reply, Request, as_events, as_json, as_text, event
from fake_sglang.asking import finished, job_of, portions
from fake_sglang.engine import Engine
from fake_sglang.job import Job
from fake_sglang.options import VERSION
from fake_sglang.tokens import decode, encode

_STARTED = time.time()
# SGLang waits 20 seconds.
_HEALTH_S = 2.0
_GIGABYTES = {"weight": 0.004, "kvcache": 0.031, "startup_available": 8.0}
_LISTED = ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs")


async def generate(engine: Engine, request: Request) -> Reply:
    """Answer ``/generate``, for one prompt or a list of them."""
    document = request.document()
    asked: Any = document.get("input_ids") if document.get("text") is None else document["text"]
    many = isinstance(asked, list) and bool(asked) and not isinstance(asked[0], int)
    try:
        jobs = [_job(engine, prompt, document) for prompt in (asked if many else [asked])]
        if document.get("stream"):
            return as_events(_events(engine, jobs[0], request))
        for job in jobs:
            await finished(engine, job, request)
    except Refused as refused:
        return as_json({"error": {"message": str(refused.document)}}, refused.status)
    answers = [answer(job, engine.options) for job in jobs]
    return as_json(answers if many else answers[0])


def _job(engine: Engine, prompt: object, document: dict[str, Any]) -> Job:
    more: dict[str, Any] = {"rid": document["rid"]} if document.get("rid") else {}
    scored = bool(document.get("return_logprob"))
    start = document.get("logprob_start_len")
    return job_of(
        engine,
        prompt,
        document.get("sampling_params") or {},
        scored=scored,
        score_from=-1 if start is None or not scored else int(start),
        candidates=int(document.get("top_logprobs_num") or 0),
        asked_ids=document.get("token_ids_logprob"),
        with_text=bool(document.get("return_text_in_logprobs")),
        **more,
    )


async def _events(engine: Engine, job: Job, request: Request) -> AsyncIterator[bytes]:
    said, before = "", 0
    try:
        async for tokens in portions(engine, job, request):
            part = answer(job, engine.options, tokens=tokens, streamed=True)
            if "stream-takes-back" in engine.options.faults and tokens is not None and tokens % 8 == 7:
                part["text"] += "~"
            if engine.options.incremental:
                whole, ids = part["text"], part["output_ids"]
                part["text"], part["output_ids"] = whole[len(said) :], ids[before:]
                for name in set(_LISTED) & part["meta_info"].keys():
                    part["meta_info"][name] = part["meta_info"][name][before:]
                said, before = whole, len(ids)
            yield event(part)
    except Refused as refused:
        yield event({"error": {"message": str(refused.document), "code": refused.status, "retryable": False}})
    if "stream-never-ends" in engine.options.faults:
        await request.gone
    elif "stream-without-done" not in engine.options.faults:
        yield DONE


async def health(engine: Engine, request: Request) -> Reply:
    """Say that the HTTP process lives."""
    return Reply(content=b"", kind="text/plain")


async def health_generate(engine: Engine, request: Request) -> Reply:
    """Say whether the scheduler decodes a token, as SGLang does."""
    job = job_of(engine, "x", {"max_new_tokens": 1, "temperature": 0})
    try:
        await asyncio.wait_for(finished(engine, job, request), _HEALTH_S)
    except (TimeoutError, Refused):
        return Reply(status=503, kind="text/plain")
    return Reply(kind="text/plain")


async def model_info(engine: Engine, request: Request) -> Reply:
    """Tell about the model."""
    options = engine.options
    if "old-route" in options.faults and request.path == "/model_info":
        return as_json({"detail": "Not Found"}, 404)
    document = {
        "model_path": options.model_path,
        "served_model_name": options.served_model_name,
        "tokenizer_path": options.model_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": options.tool_call_parser,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }
    return as_json(document, 503 if "never-ready" in options.faults else 200)


async def server_info(engine: Engine, request: Request) -> Reply:
    """Tell the options, and how the scheduler does."""
    options = engine.options
    state: dict[str, Any] = {
        **options.to_json(),
        "world_size": 1,
        "startup_time": 0.2,
        "effective_max_running_requests_per_dp": options.max_running_requests,
        "last_gen_throughput": 100.0 if engine.decoded else 0.0,
        "memory_usage": {
            **_GIGABYTES,
            "token_capacity": options.max_total_tokens,
            "token_capacity_swa": None,
            "graph": {},
        },
    }
    if options.speculative and engine.verified:
        state["avg_spec_accept_length"] = 1 + engine.correct / engine.verified
    document = {
        **options.to_json(),
        "launch_command": f"sglang.launch_server --port {options.port}",
        "status": "ready",
        "max_total_num_tokens": options.max_total_tokens,
        "max_req_input_len": options.context_length - 5,
        "startup_time": 0.2,
        "kv_events": None,
        "internal_states": [state],
        "version": "0.5.8" if "wrong-version" in options.faults else VERSION,
        "frontend": "python",
    }
    return as_json(document)


def _load(engine: Engine) -> dict[str, Any]:
    options, used = engine.options, engine.used_tokens
    running = len(engine.running) + engine.leaked_slots
    return {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": running,
        "num_waiting_reqs": len(engine.waiting),
        "num_waiting_uncached_tokens": sum(len(job.prompt) for job in engine.waiting),
        "num_used_tokens": used,
        "num_total_tokens": used + sum(len(job.prompt) for job in engine.waiting),
        "max_total_num_tokens": options.max_total_tokens,
        "max_running_requests": options.max_running_requests,
        "token_usage": used / options.max_total_tokens,
        "gen_throughput": 100.0 if engine.running else 0.0,
        "cache_hit_rate": 0.0,
        "utilization": running / options.max_running_requests,
    }


async def loads(engine: Engine, request: Request) -> Reply:
    """Tell what is running and waiting."""
    load = _load(engine)
    load["memory"] = {
        "weight_gb": 0.004,
        "kv_cache_gb": 0.031,
        "graph_gb": 0.0,
        "token_capacity": engine.options.max_total_tokens,
    }
    if engine.options.speculative and engine.verified:
        right = engine.correct / engine.verified
        load["speculative"] = {"accept_length": 1 + right, "accept_rate": right / engine.options.num_steps}
    load["queues"] = {"waiting": len(engine.waiting), "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    return as_json(
        {"timestamp": stamp, "version": VERSION, "accelerator": None, "num_accelerators": 1, "loads": [load]}
    )


async def metrics(engine: Engine, request: Request) -> Reply:
    """Tell the same to Prometheus, where the server was started with it."""
    if not engine.options.metrics:
        return as_json({"detail": "Not Found"}, 404)
    load, name = _load(engine), engine.options.served_model_name
    values = {
        "num_running_reqs": load["num_running_reqs"],
        "num_queue_reqs": load["num_waiting_reqs"],
        "num_used_tokens": load["num_used_tokens"],
        "token_usage": load["token_usage"],
        "gen_throughput": load["gen_throughput"],
    }
    lines = [f'# TYPE sglang:{key} gauge\nsglang:{key}{{model_name="{name}"}} {value}' for key, value in values.items()]
    return as_text("\n".join(lines) + "\n")


async def flush_cache(engine: Engine, request: Request) -> Reply:
    """Forget the prefix cache."""
    if engine.flush():
        return as_text("Cache flushed.\n")
    return as_text("Flush cache failed.\n", 400)


async def abort_request(engine: Engine, request: Request) -> Reply:
    """End one request, or all."""
    document = request.document()
    engine.abort(document.get("rid") or "", everything=bool(document.get("abort_all")))
    return Reply(kind="text/plain")


async def tokenize(engine: Engine, request: Request) -> Reply:
    """Return the tokens of a text."""
    ids = encode(request.document()["prompt"])
    return as_json({"tokens": ids, "count": len(ids), "max_model_len": engine.options.context_length})


async def detokenize(engine: Engine, request: Request) -> Reply:
    """Return the text of tokens."""
    document = request.document()
    return as_json({"text": decode(document["tokens"], specials=not document.get("skip_special_tokens", True))})
