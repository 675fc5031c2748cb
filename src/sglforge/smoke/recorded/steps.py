"""Read one step of a transcript: what was asked, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from sglforge.smoke.recorded.document import Node, first, mapping, number, whole
from sglforge.smoke.recorded.model import Company, Event, Outcome, Reply, Role
from sglforge.smoke.recorded.replies import TEXT_KEYS, reply

REQUEST = ("req", "request", "name", "probe", "kind", "what")
_METHODS = ("GET", "POST", "HEAD", "PUT", "get", "post")
STATUS = ("status", "status_code", "http_status", "http", "code", "outcome")
_SECONDS = (
    "seconds",
    "s",
    "secs",
    "elapsed_s",
    "latency_s",
    "duration_s",
    "e2e_latency",
    "time_s",
    "elapsed",
    "after_s",
)
ASKED = ("max_tokens", "max_new_tokens", "max_completion_tokens", "n_tokens")
_TIMEOUT = re.compile(
    r"time[d\s-]*out|deadline|hang|hung|stuck|stall|blocked|no (token|answer|response|reply)", re.IGNORECASE
)
_UNREACHABLE = re.compile(
    r"disconnect|refused|reset|unreachable|closed|eof|broken pipe|connection|dead|died|exited|gone|down\b|crash|killed",
    re.IGNORECASE,
)
_CANCELLED = re.compile(r"cancel|abort|interrupted|client closed", re.IGNORECASE)
_HEALTH = re.compile(
    r"health|liveness|readiness|get_model_info|model_info|server_info|/v1/models|\balive\b|\bping\b", re.IGNORECASE
)
_PARALLEL_WORDS = re.compile(r"\b(parallel|concurren|together|wave|burst)", re.IGNORECASE)
_BAD_REQUEST = re.compile(r"invalid|malformed|bad[ -]request|too long|expect", re.IGNORECASE)
_OUTCOMES: tuple[tuple[re.Pattern[str], Outcome], ...] = (
    (_TIMEOUT, "timeout"),
    (_CANCELLED, "cancelled"),
    (_UNREACHABLE, "unreachable"),
)
_TIMEOUT_STATUS = {408, 504, 524}
_CANCELLED_STATUS = 499
_NAME = 120


def event(step: Node, where: str, role: Role | None = None) -> Event:
    if (health := _health_key(step)) and role is None:
        step = {"req": health, "status": step[health], **step}
    request, body = _request(step)
    raw = first(step, *STATUS)
    answer = _reply(step)
    role = role or _role(step, request, answer)
    request = " ".join((request, *_constraints(body)))[:_NAME]
    outcome = _outcome(raw, step, answer)
    return Event(
        where=where,
        role=role,
        request=request,
        outcome=outcome,
        status="" if raw is None else str(raw),
        seconds=number(first(step, *_SECONDS)),
        asked=_asked(step, body),
        company=_company(step, request),
        prompt=_prompt(step, body),
        expects_error=bool(_BAD_REQUEST.search(request)) or "expect_status" in step,
        reply=answer,
    )


def _request(step: Node) -> tuple[str, Node]:
    """Return the words that name a request, and its body."""
    for method in _METHODS:
        if isinstance(route := step.get(method), str):
            return f"{method.upper()} {route}", mapping(first(step, "body", "json"))
    said = first(step, *REQUEST)
    if isinstance(said, Mapping):
        path = first(said, "path", "url", "endpoint")
        verb = first(said, "method")
        name = first(said, "name", "kind", "type")
        text = " ".join(str(part) for part in (verb, path) if part) or str(name or first(step, "probe") or "")
        return text, mapping(first(said, "body", "json")) or said
    text = " ".join(str(part) for part in (said, first(step, "path", "url", "endpoint")) if part is not None)
    return text, step


def _health_key(step: Node) -> str:
    """Return the key of a step that is nothing but a look at the health, such as ``{"health": 200}``."""
    if any(key in step for key in (*REQUEST, *_METHODS, *STATUS, *TEXT_KEYS)):
        return ""
    return next((key for key in step if key.startswith("health") or key == "alive"), "")


def _constraints(body: Node) -> list[str]:
    """Return what a request asks for besides text; it is often what breaks a server."""
    sources = (body, mapping(body.get("sampling_params")))
    names = ("json_schema", "response_format", "regex", "ebnf", "structural_tag", "tools")
    return [f"with {name}" for name in names if any(source.get(name) for source in sources)]


def _role(step: Node, request: str, answer: Reply) -> Role:
    route = re.match(r"\s*(GET|HEAD)\b|\S*/\w", request, re.IGNORECASE)
    # a question about health is none to the health route
    if _HEALTH.search(request) and (route or not (answer.text or answer.tokens)):
        return "health"
    if re.match(r"\s*(GET|HEAD)\b", request, re.IGNORECASE) or re.search(r"flush_cache|metrics|abort_request", request):
        return "other"
    return "completion" if step else "other"


def _reply(step: Node) -> Reply:
    inner = first(step, "response", "answer", "completion", "body_out", "result")
    own = reply(step)
    if inner is None:
        return own
    got = reply(inner)
    return replace(
        got,
        finish=got.finish or own.finish,
        tokens=got.tokens if got.tokens is not None else own.tokens,
        text=got.text if got.text is not None else own.text if not isinstance(step.get("text"), Mapping) else None,
        logprobs=got.logprobs or own.logprobs,
        error=got.error or own.error,
    )


def _outcome(raw: object, step: Node, answer: Reply) -> Outcome:
    said = str(raw).strip() if raw is not None else str(first(step, "error", "exception") or "")
    code = whole(raw) if not isinstance(raw, str) else whole(said) if re.match(r"\d{1,3}\b", said) else None
    if code is not None:
        return _of_code(code, answer)
    if raw is None and not said:
        return "error" if answer.error else "ok" if holds(answer) else "unknown"
    if said.casefold() in {"ok", "true", "success", "succeeded", "done", "healthy", "alive", "up", "completed"}:
        return "error" if answer.error else "ok"
    for pattern, outcome in _OUTCOMES:
        if pattern.search(said):
            return outcome
    return "unreachable" if said.casefold() == "false" else "error"


def _of_code(code: int, answer: Reply) -> Outcome:
    if code <= 0:
        return "unreachable"
    if code in _TIMEOUT_STATUS:
        return "timeout"
    if code == _CANCELLED_STATUS:
        return "cancelled"
    if code < 400:
        return "error" if answer.error else "ok"
    return "error"


def holds(answer: Reply) -> bool:
    return answer.text is not None or answer.ids is not None or bool(answer.tokens) or answer.other_output


def _asked(step: Node, body: Node) -> int | None:
    for source in (step, body, mapping(body.get("sampling_params"))):
        if (asked := whole(first(source, *ASKED))) is not None:
            return asked
    return None


def _company(step: Node, request: str) -> Company:
    beside = whole(first(step, "concurrency", "parallel", "clients", "batch", "batch_size", "bs", "n_parallel"))
    if beside is not None:
        return "parallel" if beside > 1 else "single"
    return "parallel" if _PARALLEL_WORDS.search(request) else "unknown"


def _prompt(step: Node, body: Node) -> str:
    for source in (step, body):
        value = first(source, "prompt", "input", "messages")
        if value:
            return str(value)
    return str(body["text"]) if body is not step and isinstance(body.get("text"), str) else ""
