"""Requests and answers of an ASGI application, as far as this one needs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Refused(Exception):  # noqa: N818 - an answer, not a mistake of ours
    """A request that gets a status and a document instead of what it asked for."""

    def __init__(self, status: int, document: object) -> None:
        super().__init__(status)
        self.status = status
        self.document = document


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; its body was read, and ``gone`` is done when the client is."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    gone: asyncio.Task[None]

    def document(self) -> dict[str, Any]:
        """Return the JSON object that was sent."""
        try:
            document = json.loads(self.body)
        except ValueError as error:
            raise Refused(400, {"object": "error", "message": f"invalid JSON: {error}", "code": 400}) from None
        if not isinstance(document, dict):
            raise Refused(400, {"object": "error", "message": "the body is no object", "code": 400})
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: all of it, or events as they come."""

    status: int = 200
    content: bytes = b""
    kind: str = "application/json"
    events: AsyncIterator[bytes] | None = None


def as_json(document: object, status: int = 200) -> Reply:
    """Return an answer with a JSON document."""
    return Reply(status=status, content=json.dumps(document).encode())


def as_text(text: str, status: int = 200) -> Reply:
    """Return an answer of plain text."""
    return Reply(status=status, content=text.encode(), kind="text/plain; charset=utf-8")


def as_events(events: AsyncIterator[bytes]) -> Reply:
    """Return a stream of server-sent events."""
    return Reply(events=events, kind="text/event-stream")


def event(document: object) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(document).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def read(scope: Scope, receive: Receive) -> Request:
    """Return a request with its whole body."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return Request(
        method=scope["method"],
        path=scope["path"],
        query=dict(parse_qsl(scope["query_string"].decode())),
        body=bytes(body),
        gone=asyncio.ensure_future(_gone(receive)),
    )


async def write(reply: Reply, send: Send) -> None:
    """Send an answer."""
    headers = [(b"content-type", reply.kind.encode())]
    if reply.events is None:
        headers.append((b"content-length", str(len(reply.content)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.events is not None:
        async for part in reply.events:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": reply.content})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
