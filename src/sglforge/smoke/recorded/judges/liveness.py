"""Judge whether the recorded server lived and decoded: hangs, deaths, refusals, a health route that tells less."""

from __future__ import annotations

from dataclasses import replace

from sglforge.errors import Finding, Severity
from sglforge.smoke.recorded.model import Event, Opinion, Record, fault, question
from sglforge.smoke.recorded.serverlog import LogView, stuck, view

_BUSY = {"429", "503"}
_DETAILS = 12
_WRONG_REQUEST = {"400", "413", "422"}


def judge(record: Record) -> Opinion:
    """Return what became of the server, at most one fault of it, and each request that was refused."""
    events, log = record.events, view(record.log)
    if dead := _death(events, log):
        return Opinion(findings=(dead,))
    if hang := _hang(record, log):
        return Opinion(findings=(hang,))
    return Opinion(findings=tuple(_refused(events)))


def _last_answer(events: tuple[Event, ...]) -> int:
    return max((place for place, event in enumerate(events) if event.answered), default=-1)


def _death(events: tuple[Event, ...], log: LogView) -> Finding | None:
    """Find that the server was up and is gone: nobody listens, or health fails after a completion."""
    last = _last_answer(events)
    up = max(last, max((n for n, e in enumerate(events) if e.role == "health" and e.outcome == "ok"), default=-1))
    gone = [event for event in events[up + 1 :] if _is_gone(event, after_answer=last >= 0)]
    if not gone:
        fatal = log.exception and not log.completed_after_exception
        after = any(event.role == "health" and event.outcome == "ok" for event in events[last + 1 :])
        waited = any(event.outcome in {"timeout", "error"} and event.role == "completion" for event in events)
        if not fatal or after or (waited and log.healthy) or not (last >= 0 or log.completed):
            return None
        said = f"the log says: {log.exception}"
    else:
        said = f"{gone[0].name}: {_how(gone[0])}"
    if last >= 0:
        before = events[last]
        what = f"the server died after success: {before.name} was answered well, and after it {said}"
    elif log.completed or up >= 0:
        what = f"the server is gone: it was up, and then {said}"
    else:
        return None
    detail = [f"{event.name}: {_how(event)}" for event in events[-_DETAILS:]]
    if log.exception:
        detail.append(f"log: {log.exception}")
    return fault(
        "server-died-after-success" if last >= 0 or log.completed else "server-died",
        what,
        "repeat the last request that was answered alone, and look at the server a few seconds later; the first "
        "traceback in its log names the code. A grammar (JSON schema) together with speculation is a known reason: "
        "compare without [speculation]",
        *detail,
        subject=events[last].name if last >= 0 else "",
    )


def _is_gone(event: Event, *, after_answer: bool) -> bool:
    if event.outcome == "unreachable":
        return True
    return event.role == "health" and after_answer and event.outcome in {"timeout", "error"}


def _how(event: Event) -> str:
    seconds = "" if event.seconds is None else f" after {event.seconds:g} s"
    match event.outcome:
        case "ok":
            return f"answered{f' with {event.status}' if event.status else ''}{seconds}"
        case "timeout":
            return f"timeout: no answer{f' within {event.seconds:g} s' if event.seconds is not None else ''}"
        case "unreachable":
            return f"nobody answers (status {event.status or 'none'}){seconds}"
        case _:
            return f"status {event.status or event.outcome}{seconds}"


def _hang(record: Record, log: LogView) -> Finding | None:
    events = record.events
    healthy = [event for event in events if event.role == "health" and event.outcome == "ok"]
    is_healthy = bool(healthy) or log.healthy
    missing = [event for event in record.completions if event.outcome == "timeout"]
    failed = [event for event in record.completions if event.outcome in {"timeout", "error", "unreachable"}]
    answered = [event for event in record.completions if event.answered]
    dead = bool(log.exception) and not log.completed_after_exception
    if is_healthy and dead and not (answered and not failed):
        return _healthy_only(failed, healthy, log)
    if missing and is_healthy and not answered and not log.batches and not _began(missing):
        return _healthy_only(missing, healthy, log)
    if is_healthy and not answered and (lost := [event for event in failed if _is_lost(event, events)]):
        return _healthy_only(lost, healthy, log)
    if missing and dead and not is_healthy:
        return fault(
            "server-died",
            f"the scheduler raised, and {missing[0].name} was never answered: {_how(missing[0])}",
            "read the first traceback of the log",
            log.exception,
        )
    if missing:
        open_questions = [_too_early(event, record, healthy=is_healthy) for event in missing]
        hung = next((event for event, why in zip(missing, open_questions, strict=True) if not why), None)
        return _stuck(hung, answered, healthy, log) if hung else open_questions[0]
    if log.watchdog or (still := stuck(log.batches)):
        said = log.watchdog or f"{len(still)} lines with the same tokens: {still[-1].line}"
        return _stuck_by_log(said, is_healthy=is_healthy)
    return None


def _is_lost(event: Event, events: tuple[Event, ...]) -> bool:
    """Whether an error is the server's own, and not one of its start-up or of the request."""
    if event.outcome == "error" and not event.status.startswith("5"):
        return False
    first = next((place for place, one in enumerate(events) if one.role == "health" and one.outcome == "ok"), 0)
    return event.outcome != "timeout" and (events.index(event) > first or not event.where.startswith("step"))


def _began(missing: list[Event]) -> bool:
    return any(event.reply.tokens or event.reply.text for event in missing)


def _too_early(missing: Event, record: Record, *, healthy: bool) -> Finding | None:
    """Return that a deadline proves nothing.

    It was shorter than decoding takes at the speed of the other answers, or it was that of a first request, and the
    server answered the same later.
    """
    completions = record.completions
    later = completions[completions.index(missing) + 1 :]
    first = not any(event.answered for event in completions[: completions.index(missing)])
    if first and healthy and any(event.answered and (event.asked or 0) >= (missing.asked or 0) for event in later):
        return question(
            f"{missing.name}: {_how(missing)}, and later requests were answered: a first request may compile kernels",
            "send a request to warm up, then record again",
            subject=missing.name,
        )
    speeds = [
        tokens / event.seconds
        for event in completions
        if event.answered and event.seconds and (tokens := event.reply.tokens or event.asked)
    ]
    if not speeds or not missing.asked or not missing.seconds:
        return None
    needed = missing.asked / max(speeds)
    if missing.seconds >= needed:
        return None
    return question(
        f"{missing.name}: {_how(missing)}, but at {max(speeds):.0f} tokens/s of the other answers {missing.asked} "
        f"tokens take {needed:.0f} s: the deadline was too short to tell",
        "record again with a longer deadline",
        subject=missing.name,
    )


def _healthy_only(failed: list[Event], healthy: list[Event], log: LogView) -> Finding:
    health = f"{healthy[-1].name} says {healthy[-1].status or 'ok'}" if healthy else "the log shows health 200"
    completion = (
        f"the completion did not come ({failed[0].name}: {_how(failed[0])})" if failed else "no completion came"
    )
    exception = f"; the log holds: {log.exception}" if log.exception else ""
    return fault(
        "healthy-but-no-decode",
        f"{health}, but {completion}{exception}",
        "believe a completion of your own, never health alone: the route takes any sign of life for a good one, also "
        "that of another probe. Read the first traceback of the log: it says why the scheduler no longer decodes",
        *(f"{event.name}: {_how(event)}" for event in (*failed[:_DETAILS], *healthy[-1:])),
    )


def _stuck(missing: Event, answered: list[Event], healthy: list[Event], log: LogView) -> Finding:
    tokens = f" for {missing.asked} tokens" if missing.asked else ""
    came = f", {missing.reply.tokens} of them had come" if missing.reply.tokens else ""
    if healthy or log.healthy:
        health = f"health is {healthy[-1].status or 'ok'}" if healthy else "health is 200 in the log"
    else:
        health = "health was not asked"
    good = next((event for event in reversed(answered) if event.asked), None)
    short = f"; {good.name} for {good.asked} tokens was answered" if good else ""
    return fault(
        "decode-hang",
        f"{_how(missing)} to {missing.name}{tokens}{came}, while {health}{short}",
        "the cause is open; a scheduler or a rank is stuck. py-spy dump --pid PID of each scheduler process shows "
        "where; many new lines in the log, or GPUs that draw power, mean slow rather than stuck. Ask for 256 tokens "
        "and more with a deadline of your own, and compare without [speculation]",
        *([log.batches[-1].line] if log.batches else []),
        subject=missing.name,
    )


def _stuck_by_log(said: str, *, is_healthy: bool) -> Finding:
    health = "; health is 200 all the while" if is_healthy else ""
    return fault(
        "decode-hang",
        f"decoding stands still (a timeout for whoever waits): {said}{health}",
        "the cause is open; py-spy dump --pid PID of each scheduler process shows where it is stuck; compare without "
        "[speculation]",
    )


def _refused(events: tuple[Event, ...]) -> list[Finding]:
    """Name each request that was answered with an error; refusals before the first answer are the start-up."""
    answered = [place for place, event in enumerate(events) if event.answered]
    found = []
    for place, event in enumerate(events):
        if event.role != "completion" or event.outcome not in {"error", "unreachable"} or event.expects_error:
            continue
        starting = answered and place < answered[0] and (event.status == "503" or event.outcome == "unreachable")
        if starting:
            continue
        error = f": {event.reply.error[:300]}" if event.reply.error else ""
        one = fault(
            "request-failed",
            f"{event.name} got no completion: {_how(event)}{error}",
            "the server's log says why, at that time",
            subject=event.name,
        )
        if answered and event.status in _BUSY:
            one = question(one.message, "the server was busy: ask again with fewer requests", subject=event.name)
        elif answered and event.status in _WRONG_REQUEST:
            # others were answered: this request is at fault, and refusing it is right
            one = replace(one, severity=Severity.INFO, hint="the server refuses it as wrong: look at the request")
        found.append(one)
    return found
