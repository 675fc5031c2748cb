"""Bring a recorded transcript of any form into one: events in their order, log, command line, benchmark."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sglforge.smoke.recorded import bench, steps
from sglforge.smoke.recorded.document import Node, check_size, first, invalid, mapping, whole, words
from sglforge.smoke.recorded.model import Company, Event, Record, Reply
from sglforge.smoke.recorded.replies import TEXT_KEYS, reply
from sglforge.smoke.recorded.shares import shares

_STEPS = ("steps", "requests", "events", "calls", "exchanges")
_ONE = ("response", "completion", "result", "answer", "generation")
_MANY = ("responses", "completions", "outputs", "results", "texts", "generations", "answers")
_COMPANY: tuple[tuple[Company, tuple[str, ...]], ...] = (
    ("single", ("single", "alone", "solo", "sequential", "serial")),
    ("parallel", ("parallel", "concurrent", "concurrency", "batch", "batched", "together")),
)
_METRICS = ("metrics", "server_info", "get_server_info", "counters", "stats")
_ALIVE = {"alive", "alive_after", "liveness", "server_alive", "process"}
_EXIT = {"exit_code", "returncode", "exitcode", "exit_status"}
# What stands at the place of an answer when there was none.
_NO_ANSWER = re.compile(
    r"\s*(?:\w*time[d\s-]*out\w*|disconnected|connection (?:refused|reset|error|aborted)|no (?:answer|response|reply)"
    r"|hang|hung|never|aborted|cancell?ed)\b.{0,40}",
    re.IGNORECASE,
)


def normalise(document: object, *, where: str) -> Record:
    """Return a transcript in one form.

    Raises ConfigError: transcript-invalid (no object or list, wrong types at a known key, too deep or too large).
    """
    check_size(document, where)
    if isinstance(document, list):
        document = {"steps" if any(isinstance(one, Mapping) for one in document) else "responses": document}
    if not isinstance(document, Mapping):
        raise invalid(where, f"it is {type(document).__name__}, not an object or a list")
    node = {str(key): value for key, value in document.items()}
    log, argv = _log(node, where), _argv(node, where)
    table = first(node, "bench", "benchmark", "throughput", "latency", "sweep")
    threshold = whole(first(node, "threshold", "disable_above_batch", "spec_threshold"))
    record = Record(argv=argv)
    if threshold is None:
        threshold = whole(
            first(mapping(table), "threshold", "disable_above_batch", "spec_threshold")
            or record.option("--speculative-disable-batch-threshold")
        )
    return Record(
        events=tuple(_events(node, where)),
        log=log,
        argv=argv,
        measures=bench.measures(table, threshold=threshold, unit=str(first(node, "unit", "metric") or "")),
        threshold=threshold,
        shares=shares(node),
    )


def _log(node: Node, where: str) -> str:
    value = first(node, "log", "server_log", "logs", "stderr", "head_log")
    if not isinstance(value, str | list | None):
        raise invalid(f"{where}: log", f"a text or a list of lines, not {type(value).__name__}")
    return words(value)


def _argv(node: Node, where: str) -> tuple[str, ...]:
    value = first(node, "argv", "server_args", "command", "cmd", "args")
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError:
            return tuple(value.split())
    if not isinstance(value, list | None):
        raise invalid(f"{where}: argv", f"a list of words, not {type(value).__name__}")
    return tuple(str(word) for word in value or ())


def _events(node: Node, where: str) -> Iterator[Event]:
    """Yield every request in the order of the document, then what it says of health: that was usually asked last."""
    finish = node.get("finish_reason")
    shared = {"finish_reason": finish} if isinstance(finish, str) else {}
    asked = whole(first(node, *steps.ASKED))
    for key, value in node.items():
        yield from _of_key(key, value, shared, asked, where)
    if not any(key in node for key in (*_STEPS, *_ONE, *_MANY)) and _is_reply(node):
        answer = {key: one for key, one in node.items() if key not in steps.REQUEST}
        yield _completion(answer, "answer", "unknown", {}, asked)
    for key, value in node.items():
        if key.startswith("health") or key in _ALIVE:
            yield from _health(key, value)
        elif key in _EXIT and value is not None:
            yield Event(where=key, role="health", request="", outcome="unreachable", status=f"exited with {value}")


def _of_key(key: str, value: object, shared: Node, asked: int | None, where: str) -> Iterator[Event]:
    if key in _STEPS:
        if not isinstance(value, list):
            raise invalid(f"{where}: {key}", f"a list of steps, not {type(value).__name__}")
        for place, step in enumerate(value, start=1):
            yield from _of_step(step, f"step {place}")
    elif key in _MANY:
        yield from _many(value, key, "unknown", shared, asked)
    elif key in _ONE and value is not None:
        yield _completion(value, key, "unknown", shared, asked)
    elif key in _METRICS:
        yield Event(where=key, role="other", request=key, outcome="unknown", reply=reply(value))
    elif company := next((company for company, names in _COMPANY if key in names), None):
        yield from _many(value, key, company, shared, asked)


def _is_reply(node: Node) -> bool:
    """Whether a whole document is one answer, as a server gave it."""
    got = reply(node)
    return steps.holds(got) or got.verifications is not None or got.accept_length is not None or bool(got.error)


def _many(value: object, key: str, company: Company, shared: Node, asked: int | None) -> Iterator[Event]:
    if isinstance(value, Mapping) and not _is_answer(value):
        inner = first(value, *_MANY, *_ONE)
        if isinstance(inner, list | str):
            yield from _many(inner, key, company, {**shared, **_plain(value)}, asked)
            return
        for name, one in value.items():
            if isinstance(one, str | list | Mapping):
                yield replace(_completion(one, f"{key}[{name}]", company, shared, asked), prompt=str(name))
    elif isinstance(value, list):
        for place, one in enumerate(value, start=1):
            yield _completion(one, f"{key}[{place}]", company, shared, asked)
    elif value is not None and not isinstance(value, bool | int | float):
        yield _completion(value, key, company, shared, asked)


def _plain(node: Node) -> Node:
    return {key: value for key, value in node.items() if isinstance(value, str | int | float)}


def _is_answer(node: Node) -> bool:
    names = (*TEXT_KEYS, *steps.STATUS, "choices", "meta_info", "error", "response", "completion_tokens", "output_ids")
    return any(name in node for name in names)


def _completion(value: object, where: str, company: Company, shared: Node, asked: int | None) -> Event:
    step = {**shared, **value} if isinstance(value, Mapping) else {**shared, "text": value}
    if value is None or (isinstance(value, str) and _NO_ANSWER.fullmatch(value)):
        step = {**shared, "status": value or "none"}
    event = steps.event(step, where, role="completion")
    if isinstance(value, str):
        event = replace(event, request="")
    return replace(event, company=event.company if event.company != "unknown" else company, asked=event.asked or asked)


def _health(key: str, value: object) -> Iterator[Event]:
    """Yield what a document says of health: one status, several, or one for each route."""
    if isinstance(value, list):
        for one in value:
            yield from _health(key, one)
    elif isinstance(value, Mapping) and not any(name in value for name in steps.STATUS):
        for route, one in value.items():
            yield from _health(str(route), one)
    else:
        step = value if isinstance(value, Mapping) else {"status": value}
        yield steps.event({"req": key, **step}, key, role="health")


def _of_step(step: object, where: str) -> Iterator[Event]:
    """Yield the events of a step: one, or several where it holds parallel answers."""
    if isinstance(step, str):
        yield Event(where=where, role="completion", request="", outcome="ok", reply=Reply(text=step))
        return
    if not isinstance(step, Mapping):
        raise invalid(where, f"an object, not {type(step).__name__}")
    several = next((step[key] for key in (*_MANY, "parallel") if isinstance(step.get(key), list)), None)
    if several is None:
        yield steps.event(step, where)
        return
    for place, one in enumerate(several, start=1):
        yield _completion(one, f"{where}[{place}]", "parallel" if len(several) > 1 else "unknown", {}, None)
