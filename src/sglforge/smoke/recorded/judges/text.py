"""Judge what the answers say: degenerate, empty, cut short; and whether it takes company to go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglforge.errors import Finding
from sglforge.smoke.degeneration import Degeneration, degeneration
from sglforge.smoke.recorded.judges.numbers import not_finite
from sglforge.smoke.recorded.model import Event, Opinion, Record, fault, question

_SHORT = 8
"""Tokens up to which an empty text may be all that the model had to say: end of text, a line break, a tag."""
_FEW = 2
"""Tokens asked for up to which a blank text says nothing: a line break or half a letter are whole answers then."""
_SAME_START = 40
"""Characters that two answers share before rounding may part them; garbage parts at once."""
_EXCERPT = 120
_DETAILS = 12
_HINT = (
    "compare with another attention-backend, moe-runner-backend and GEMM backend, one at a time; ask for "
    "log-probabilities: null is NaN. If the first answer to a prompt is right and a later one is not, compare with "
    "disable-radix-cache = true: a cached prefix. Look for warnings about weights, scales or quantisation in the log"
)
_COMPANY_HINT = (
    "it takes concurrency: max-running-requests = 1 proves it. Then one at a time: without [speculation], "
    "disable-radix-cache = true (the prefix cache), another attention-backend, disable-overlap-schedule = true"
)
_FEWER = 0.1
"""A difference of right answers that counts; repeats of an evaluation differ by a few percent."""
_MOSTLY = 0.5


def judge(record: Record) -> Opinion:
    """Judge each answer, then those that ran together against those that ran alone."""
    answers = [
        event for event in record.completions if event.answered and not not_finite(event) and not _says_nothing(event)
    ]
    bad = {event.where: found for event in answers if (found := _degenerate(event))}
    broken = [event for event in answers if event.where in bad and bad[event.where].broken]
    alone = [event for event in answers if event.company == "single"]
    together = [event for event in answers if event.company == "parallel"]
    if not alone and together:
        alone = [event for event in answers if event.company == "unknown"]
    sound = [event for event in alone if event.where not in bad]
    company = [event for event in broken if event in together]
    if company and sound and not any(event in broken for event in alone):
        findings = [_under_concurrency(company, together, sound, bad), *_each(answers, bad, skip=company)]
    else:
        findings = list(_each(answers, bad))
        if not broken:
            findings += _differences(sound, together)
    counted = _counted(record)
    findings += [counted] if counted and not findings else []
    right = [event.name for event in answers if event.where not in bad and _has_output(event)]
    right += [share.said for share in record.shares or ()]
    return Opinion(findings=tuple(findings), right=tuple(right) if not findings else ())


def _says_nothing(event: Event) -> bool:
    """Whether an answer is blank because next to nothing was asked for: a probe for one token, a health check."""
    reply = event.reply
    limit = event.asked if event.asked is not None or reply.finish != "length" else reply.tokens
    return reply.text is not None and not reply.text.strip() and limit is not None and 0 < limit <= _FEW


def _has_output(event: Event) -> bool:
    return bool(event.reply.text or event.reply.other_output or event.reply.ids)


def _degenerate(event: Event) -> Degeneration | None:
    reply = event.reply
    if reply.text is None and reply.ids is None:
        return None
    if reply.other_output and not (reply.text or "").strip():
        return None
    if reply.finish == "abort":
        return None
    if reply.text is None:
        found = degeneration("x", token_ids=reply.ids)
        return found if found and found.reason == "token-run" else None
    at_limit = reply.finish == "length" or bool(event.asked and (reply.tokens or 0) >= event.asked)
    return degeneration(reply.text, token_ids=reply.ids, finish=reply.finish, at_limit=at_limit)


def _each(answers: Sequence[Event], bad: dict[str, Degeneration], *, skip: Sequence[Event] = ()) -> Iterator[Finding]:
    """Yield a finding for each bad answer, and for tokens that did not come."""
    for event in answers:
        if event in skip:
            continue
        if found := bad.get(event.where):
            yield _finding(event, found)
        elif lost := _lost(event):
            yield fault(
                "tokens-lost",
                f"{event.name}: {lost}",
                "the server loses tokens on the way: compare with and without streaming, then without [speculation]",
                subject=event.name,
            )


def _finding(event: Event, found: Degeneration) -> Finding:
    if found.reason == "empty" and _ended_at_once(event):
        return fault(
            "empty-completion",
            f"{event.name}: {found.message}, finish reason {event.reply.finish or 'unknown'}",
            "ask the same prompt with /generate and return_logprob: an end-of-text token as the first one hints at the "
            "chat template or the tokenizer, a parser that took everything at the options of the launch",
            subject=event.name,
        )
    detail = (f"text: {_excerpt(event)}",)
    if found.broken:
        return fault(
            "degenerate-output", f"{event.name} is degenerate: {found.message}", _HINT, *detail, subject=event.name
        )
    return question(
        f"{event.name} may be degenerate: {found.message}; a small model in greedy decoding does that too",
        "ask another prompt, or a larger model, for 200 tokens and more",
        *detail,
        subject=event.name,
    )


def _ended_at_once(event: Event) -> bool:
    """Whether an empty answer is known to be one that the model ended; else tokens came, and none was text."""
    reply = event.reply
    if reply.tokens is None or reply.tokens > _SHORT:
        return False
    return reply.finish in {"stop", "eos", "eos_token", "end_turn"} or reply.tokens <= 1


def _lost(event: Event) -> str:
    reply = event.reply
    if reply.ids is not None and reply.tokens is not None and len(reply.ids) < reply.tokens:
        return f"the server counts {reply.tokens} tokens and sent {len(reply.ids)}"
    if reply.finish == "length" and event.asked and reply.tokens is not None and 0 < reply.tokens < event.asked:
        return f"{event.asked} tokens were asked for, {reply.tokens} came, and the finish reason is length"
    return ""


def _under_concurrency(
    company: Sequence[Event], together: Sequence[Event], sound: Sequence[Event], bad: dict[str, Degeneration]
) -> Finding:
    return fault(
        "garbage-under-concurrency",
        f"{len(company)} of {len(together)} answers given in parallel are garbage, while a single request is answered "
        f"well: {company[0].name}: {bad[company[0].where].message}",
        _COMPANY_HINT,
        f"single: {_excerpt(sound[0])}",
        *(f"{event.name}: {bad[event.where].message}: {_excerpt(event)}" for event in company[:_DETAILS]),
        subject=company[0].name,
    )


def _counted(record: Record) -> Finding | None:
    """Judge a report that counts right answers: fewer in company than alone, beyond the noise of a small sample."""
    if record.shares is None:
        return None
    alone, together = record.shares
    if alone.right - together.right > _FEWER:
        return fault(
            "garbage-under-concurrency",
            f"answers given in parallel are right less often than a single request: {alone.said}, {together.said}",
            _COMPANY_HINT,
        )
    if alone.right < _MOSTLY:
        return question(f"too few answers are right, also alone ({alone.said})", "record some of the texts")
    return None


def _differences(alone: Sequence[Event], together: Sequence[Event]) -> list[Finding]:
    """Compare texts that ran alone and together, where the same prompt is known or plain to see."""
    pairs = _pairs(alone, together)
    early = [(one, two) for one, two in pairs if _parts_early(one, two)]
    if not early:
        return []
    one, two = early[0]
    message = (
        f"{len(early)} of {len(pairs)} answers given in parallel differ from the single one from character "
        f"{_shared(one, two)} on: {two.name}"
    )
    return [
        fault(
            "garbage-under-concurrency",
            message,
            _COMPANY_HINT,
            f"single: {_excerpt(one)}",
            *(f"{event.name}: {_excerpt(event)}" for _, event in early[:_DETAILS]),
            subject=two.name,
        )
    ]


def _pairs(alone: Sequence[Event], together: Sequence[Event]) -> list[tuple[Event, Event]]:
    by_prompt = {event.prompt: event for event in alone if event.prompt}
    if named := [(by_prompt[event.prompt], event) for event in together if event.prompt in by_prompt]:
        return named
    if any(event.prompt for event in together):
        return []
    if len(alone) > 1:
        return list(zip(alone, together, strict=True)) if len(alone) == len(together) else []
    pairs = [(alone[0], event) for event in together] if alone else []
    # one text beside several without prompts: the same prompt only if one of them begins the same
    return pairs if any(not _parts_early(one, two) for one, two in pairs) else []


def _parts_early(one: Event, two: Event) -> bool:
    first, second = (one.reply.text or "").strip(), (two.reply.text or "").strip()
    shared = _shared(one, two)
    return shared < min(_SAME_START, max(1, min(len(first), len(second)) * 3 // 4))


def _shared(one: Event, two: Event) -> int:
    first, second = (one.reply.text or "").strip(), (two.reply.text or "").strip()
    pairs = zip(first, second, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _excerpt(event: Event) -> str:
    text = event.reply.text or ""
    return repr(text) if len(text) <= _EXCERPT else f"{text[:_EXCERPT]!r}..."
