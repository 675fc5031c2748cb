"""The OpenAI-compatible routes."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fake_sglang.answers import answer
from fake_sglang.asgi import DONE, Refused, Reply, Request, as_events, as_json, event
from fake_sglang.asking import finished, job_of, portions
from fake_sglang.engine import Engine
from fake_sglang.job import Job
from fake_sglang.tokens import END, END_ID, call_text, decode, render_chat

Document = dict[str, Any]
_CALL = re.compile(r"\s*<tool_call>\n(?P<call>.*)\n</tool_call>", re.DOTALL)
_LEAK = f"{END}\n<|user|>"
_OWN_KEYS = {"matched_stop", "reasoning_content", "reasoning_tokens"}


async def models(engine: Engine, request: Request) -> Reply:
    """List the one model."""
    name = engine.options.served_model_name
    card = {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "somebody" if engine.options.openai_only else "sglang",
        "root": name,
        "parent": None,
        "max_model_len": engine.options.context_length,
    }
    return as_json({"object": "list", "data": [card]})


async def completions(engine: Engine, request: Request) -> Reply:
    """Answer ``/v1/completions``."""
    return await _serve(engine, request, chat=False)


async def chat_completions(engine: Engine, request: Request) -> Reply:
    """Answer ``/v1/chat/completions``."""
    return await _serve(engine, request, chat=True)


async def _serve(engine: Engine, request: Request, *, chat: bool) -> Reply:
    document = request.document()
    try:
        job = _chat_job(engine, document) if chat else _text_job(engine, document)
        if document.get("stream"):
            return as_events(_events(engine, job, request, document, chat=chat))
        await finished(engine, job, request)
    except Refused as refused:
        return as_json(_error(refused), refused.status)
    return as_json(_plain(engine, _whole(engine, job, document, chat=chat)))


def _error(refused: Refused) -> Document:
    kind = "BadRequestError" if refused.status == 400 else "InternalServerError"
    return {
        "object": "error",
        "message": str(refused.document),
        "type": kind,
        "param": None,
        "code": refused.status,
    }


def _parameters(document: Document, limit: object) -> Document:
    """Return SGLang's sampling parameters for OpenAI's."""
    if document.get("n") not in {None, 1}:
        raise Refused(400, "The fake server answers with one choice.")
    shape = document.get("response_format") or {}
    schema = None
    if shape.get("type") == "json_schema":
        schema = shape["json_schema"]["schema"]
    elif shape.get("type") == "json_object":
        schema = {"type": "object"}
    return {
        "max_new_tokens": limit,
        "temperature": document.get("temperature"),
        "stop": document.get("stop"),
        "ignore_eos": document.get("ignore_eos"),
        "json_schema": schema,
        "sampling_seed": document.get("seed"),
    }


def _text_job(engine: Engine, document: Document) -> Job:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise Refused(400, "The fake server completes one prompt at a time.")
        prompt = prompt[0]
    limit = document.get("max_tokens")
    wanted = document.get("logprobs")
    return job_of(
        engine,
        prompt,
        _parameters(document, 16 if limit is None else limit),
        scored=wanted is not None,
        score_from=0 if document.get("echo") and wanted is not None else -1,
        candidates=wanted or 0,
        with_text=True,
    )


def _chat_job(engine: Engine, document: Document) -> Job:
    messages = document.get("messages")
    if not messages:
        raise Refused(400, "Messages cannot be empty.")
    if "no-chat-template" in engine.options.faults:
        raise Refused(400, "This model has no chat template.")
    choice = document.get("tool_choice", "auto")
    tools = [] if choice == "none" else document.get("tools") or []
    limit = document.get("max_completion_tokens", document.get("max_tokens"))
    job = job_of(
        engine,
        render_chat(messages, tools),
        _parameters(document, engine.options.context_length if limit is None else limit),
        scored=bool(document.get("logprobs")),
        candidates=document.get("top_logprobs") or 0,
        with_text=True,
        chat=True,
    )
    job.ignore_eos = job.ignore_eos or ("never-ends" in engine.options.faults and job.grammar is None)
    if tools and (choice == "required" or isinstance(choice, dict)):
        name = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["function"]["name"]
        job.grammar = call_text({"name": name, "arguments": {"city": "Paris"}}) + chr(END_ID)
        job.ignore_eos = False
    return job


def _parses_calls(engine: Engine, document: Document) -> bool:
    """Say whether calls are taken out of the text: SGLang needs a parser for it, or a call that was required."""
    choice = document.get("tool_choice", "auto")
    if not document.get("tools") or choice == "none" or "tool-call-as-text" in engine.options.faults:
        return False
    wanted = choice == "required" or isinstance(choice, dict)
    return wanted or engine.options.openai_only or engine.options.tool_call_parser is not None


def _calls(engine: Engine, text: str) -> list[Document] | None:
    """Return the calls in a text, None when there is none."""
    match = _CALL.match(text)
    if match is None:
        return None
    call = json.loads(match["call"])
    arguments = json.dumps(call["arguments"])
    if "tool-arguments-invalid" in engine.options.faults:
        arguments = arguments[:-1]
    function = {"name": call["name"], "arguments": arguments}
    return [{"id": f"call_{uuid.uuid4().hex[:24]}", "index": 0, "type": "function", "function": function}]


def _content(engine: Engine, text: str, *, chat: bool) -> str:
    return text + _LEAK if chat and "chat-template-leak" in engine.options.faults else text


def _whole(engine: Engine, job: Job, document: Document, *, chat: bool) -> Document:
    """Return a whole answer."""
    raw = answer(job, engine.options)
    finish = raw["meta_info"]["finish_reason"]
    text = _content(engine, raw["text"], chat=chat)
    choice: Document = {
        "index": 0,
        "logprobs": _logprobs(job, raw["meta_info"], chat=chat),
        "finish_reason": finish["type"],
        "matched_stop": finish.get("matched"),
    }
    if chat:
        calls = _calls(engine, text) if _parses_calls(engine, document) else None
        choice["message"] = {"role": "assistant", "content": text or None, "reasoning_content": None}
        if calls:
            choice["message"] |= {"content": None, "tool_calls": calls}
            choice |= {"finish_reason": "tool_calls", "matched_stop": None}
    else:
        prompt = decode(map(ord, job.prompt), specials=True) if document.get("echo") else ""
        choice["text"] = prompt + text
    return {
        **_head(engine, job, "chat.completion" if chat else "text_completion"),
        "choices": [choice],
        "usage": _usage(job),
        "metadata": {"weight_version": "default"},
    }


async def _events(
    engine: Engine, job: Job, request: Request, document: Document, *, chat: bool
) -> AsyncIterator[bytes]:
    """Yield a stream: the role, the text bit by bit, the reason of its end, the usage if it is asked for."""
    head = _head(engine, job, "chat.completion.chunk" if chat else "text_completion")
    buffered = chat and _parses_calls(engine, document)

    def chunk(choices: list[Document], usage: Document | None = None) -> bytes:
        return event(_plain(engine, {**head, "choices": choices, "usage": usage}))

    said, scored = "", 0
    try:
        if chat:
            yield chunk([_delta({"role": "assistant", "content": ""})])
        async for tokens in portions(engine, job, request):
            raw = answer(job, engine.options, tokens=tokens, streamed=True)
            text = raw["text"] if tokens is not None else _content(engine, raw["text"], chat=chat)
            if tokens is None and buffered and (calls := _calls(engine, text)):
                for choice in _call_deltas(calls):
                    yield chunk([choice])
                yield chunk([_delta({}, finish="tool_calls")])
                break
            if tokens is not None and buffered and text.lstrip().startswith("<"):
                continue
            logprobs = _logprobs(job, raw["meta_info"], chat=chat, start=scored)
            scored = len(raw["meta_info"].get("output_token_logprobs", ()))
            finish = (job.finish if tokens is None else None) or {}
            delta, said = text[len(said) :], text
            if not chat:
                yield chunk(
                    [
                        {
                            "index": 0,
                            "text": delta,
                            "logprobs": logprobs,
                            "finish_reason": finish.get("type"),
                            "matched_stop": finish.get("matched"),
                        }
                    ]
                )
                continue
            if delta:
                yield chunk([_delta({"content": delta}, logprobs=logprobs)])
            if finish:
                yield chunk([_delta({}, finish=finish["type"], matched=finish.get("matched"))])
        if (document.get("stream_options") or {}).get("include_usage"):
            yield chunk([], _usage(job))
    except Refused as refused:
        yield event({"error": _error(refused)})
    if "stream-never-ends" in engine.options.faults:
        await request.gone
    elif "stream-without-done" not in engine.options.faults:
        yield DONE


def _delta(delta: Document, *, logprobs: object = None, finish: object = None, matched: object = None) -> Document:
    full = {"role": None, "content": None, "reasoning_content": None, **delta}
    return {"index": 0, "delta": full, "logprobs": logprobs, "finish_reason": finish, "matched_stop": matched}


def _call_deltas(calls: list[Document]) -> list[Document]:
    """Return the name of a call, then its arguments."""
    named = [{**call, "function": {**call["function"], "arguments": ""}} for call in calls]
    filled = [
        {**call, "id": None, "function": {"name": None, "arguments": call["function"]["arguments"]}} for call in calls
    ]
    return [_delta({"tool_calls": named}), _delta({"tool_calls": filled})]


def _logprobs(job: Job, meta: Document, *, chat: bool, start: int = 0) -> Document | None:
    if "output_token_logprobs" not in meta:
        return None
    rows = meta["output_token_logprobs"][start:]
    top = meta.get("output_top_logprobs", [[]] * len(rows))[start:]
    if not chat:
        if start == 0:
            rows = [*meta["input_token_logprobs"], *rows]
            top = [*meta.get("input_top_logprobs", []), *top]
        return {
            "text_offset": [-1] * len(rows),
            "token_logprobs": [row[0] for row in rows],
            "tokens": [row[2] for row in rows],
            "top_logprobs": [None if one is None else {row[2]: row[0] for row in one} for one in top],
        }
    content = [
        {**_token(row), "top_logprobs": [_token(other) for other in others]}
        for row, others in zip(rows, top, strict=False)
    ]
    return {"content": content}


def _token(row: list[Any]) -> Document:
    return {"token": row[2], "bytes": list(decode([row[1]], specials=True).encode()), "logprob": row[0]}


def _head(engine: Engine, job: Job, kind: str) -> Document:
    return {"id": job.rid, "object": kind, "created": int(time.time()), "model": engine.options.served_model_name}


def _usage(job: Job) -> Document:
    return {
        "prompt_tokens": len(job.prompt),
        "total_tokens": len(job.prompt) + len(job.output),
        "completion_tokens": len(job.output),
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def _plain(engine: Engine, value: Any) -> Any:
    """Return a document without what only SGLang has, where another engine is imitated."""
    if not engine.options.openai_only:
        return value
    if isinstance(value, dict):
        return {key: _plain(engine, member) for key, member in value.items() if key not in _OWN_KEYS}
    return [_plain(engine, one) for one in value] if isinstance(value, list) else value
