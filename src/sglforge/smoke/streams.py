"""Streams: what their events add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sglforge.smoke.client import Request
from sglforge.smoke.generation import Generation, generation

END = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What came in a stream.

    Attributes:
        texts: The whole text after each event that brought some.
        ids: Every token's id, None where the server does not send them.
        counted: The tokens that the server counts at the end, None where it does not say.
        gap: Where an event's own count and its tokens differ: tokens sent, tokens counted.
        finish: Why it ended, None if it did not say.
        closed: Whether the end was said.
    """

    texts: tuple[str, ...]
    ids: tuple[int, ...] | None = None
    counted: int | None = None
    gap: tuple[int, int] | None = None
    finish: str | None = None
    closed: bool = False

    @property
    def text(self) -> str:
        """The whole text."""
        return self.texts[-1] if self.texts else ""

    def rewritten(self) -> tuple[str, str] | None:
        """Return a text and the one after it that does not go on from it."""
        # the last character may be half of one until the rest of it has come
        pairs = zip(self.texts, self.texts[1:], strict=False)
        return next(((one, two) for one, two in pairs if not two.startswith(one.rstrip("\ufffd"))), None)


def streaming(request: Request) -> Request:
    """Return a request whose answer comes as a stream."""
    return replace(request, body={**(request.body or {}), "stream": True}, stream=True)


def streamed(response: object) -> Streamed:
    """Add up events: those of ``/generate`` hold everything so far, those of OpenAI-compatible routes what is new."""
    data = [event.get("data") for event in response if isinstance(event, dict)] if isinstance(response, list) else []
    closed = END in data
    native = [one for item in data if (one := generation(item)) and one.output_ids is not None]
    return _native(native, closed=closed) if native else _added(data, closed=closed)


def _native(events: Sequence[Generation], *, closed: bool) -> Streamed:
    last = events[-1]
    counts = [(len(one.output_ids or ()), one.completion_tokens) for one in events]
    return Streamed(
        texts=tuple(dict.fromkeys(one.text for one in events)),
        ids=last.output_ids,
        counted=last.completion_tokens,
        gap=next((pair for pair in counts if pair[0] != pair[1]), None),
        finish=None if last.finish == "unknown" else last.finish,
        closed=closed,
    )


def _added(data: Sequence[object], *, closed: bool) -> Streamed:
    texts: list[str] = []
    finish: str | None = None
    counted: int | None = None
    for item in data:
        more, reason, tokens = _event(item)
        texts += [(texts[-1] if texts else "") + more] if more else []
        finish = reason or finish
        counted = counted if tokens is None else tokens
    return Streamed(texts=tuple(texts), counted=counted, finish=finish, closed=closed)


def _event(item: object) -> tuple[str, str | None, int | None]:
    """Return what an event of an OpenAI-compatible route adds, why it ends, and the tokens that it counts."""
    if not isinstance(item, dict):
        return "", None, None
    usage, choices = item.get("usage"), item.get("choices")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = choice.get("delta")
    more = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    reason = choice.get("finish_reason")
    return (
        more if isinstance(more, str) else "",
        reason if isinstance(reason, str) else None,
        counted if isinstance(counted, int) else None,
    )
