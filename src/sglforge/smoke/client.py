"""HTTP to one server: one request, one deadline, no proxy, no retry."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal

Status = int | Literal["timeout", "disconnected"]

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; ``name`` tells it apart from the others of its probe.

    The answer to a ``stream`` is the list of its events. ``hang_up_after`` is the number of events after which the
    connection is closed; ``timeout_s`` is the time that it may take where the profile's deadline is shorter.
    """

    name: str
    path: str
    body: Mapping[str, object] | None = None
    stream: bool = False
    hang_up_after: int | None = None
    timeout_s: float | None = None

    @property
    def method(self) -> str:
        """GET, or POST when there is a body."""
        return "GET" if self.body is None else "POST"

    def to_json(self) -> dict[str, object]:
        """Return the request as the transcript's document."""
        plain: dict[str, object] = {"name": self.name, "method": self.method, "path": self.path, "body": self.body}
        if self.stream:
            plain |= {"stream": True, "hang_up_after": self.hang_up_after}
        return plain if self.timeout_s is None else {**plain, "timeout_s": self.timeout_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: HTTP status or why there is none, the time it took, JSON or text that is not JSON.

    The response to a stream is a list of ``{"seconds", "data"}``, one for each event, its data JSON or text.
    """

    status: Status
    seconds: float
    response: object


def send(base_url: str, request: Request, *, timeout_s: float) -> Answer:
    """Send a request and read the whole answer within ``timeout_s`` seconds, or its own time where that is longer.

    urllib3 reads no proxy variables by itself, so a proxy never stands between us and the loopback.
    """
    import urllib3
    from urllib3 import exceptions

    timeout_s = max(request.timeout_s or 0.0, timeout_s)
    start = time.monotonic()
    events = _Events(start=start) if request.stream else None
    body = None if request.body is None else json.dumps(request.body).encode()
    status: Status
    try:
        with urllib3.PoolManager(retries=False) as pool:
            reply = pool.request(
                request.method,
                base_url + request.path,
                body=body,
                headers={"content-type": "application/json"} if body else None,
                timeout=urllib3.Timeout(total=timeout_s),
                preload_content=False,
            )
            content = bytearray()
            for chunk in reply.read_chunked() if events and reply.chunked else reply.stream(_CHUNK_BYTES):
                content += chunk
                if events and events.add(chunk) >= (request.hang_up_after or sys.maxsize):
                    reply.close()
                    break
                if time.monotonic() - start > timeout_s:
                    raise exceptions.TimeoutError  # noqa: TRY301 - an answer that drips in is late too
            status = reply.status
            response = _decoded(bytes(content)) if events is None or status != HTTPStatus.OK else events.found
    except exceptions.NewConnectionError as error:  # a kind of timeout to urllib3: nobody listens
        status, response = "disconnected", str(error)
    except exceptions.TimeoutError as error:
        status, response = "timeout", (events.found if events else None) or str(error) or None
    except exceptions.HTTPError as error:
        status, response = "disconnected", (events.found if events else None) or str(error)
    return Answer(status=status, seconds=round(time.monotonic() - start, 4), response=response)


@dataclass(slots=True, kw_only=True)
class _Events:
    """The events of a stream as they come in; ``start`` is when it was asked for."""

    start: float
    found: list[dict[str, object]] = field(default_factory=list)
    _rest: bytes = b""

    def add(self, chunk: bytes) -> int:
        """Read what came and return how many events there are by now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        seconds = round(time.monotonic() - self.start, 4)
        for line in lines:
            if line.startswith(b"data:"):
                data = _decoded(line.removeprefix(b"data:").strip())
                self.found.append({"seconds": seconds, "data": data})
        return len(self.found)


def _decoded(content: bytes) -> object:
    text = content.decode(errors="replace")
    try:
        document: object = json.loads(text)
        if "\\ud" in text.lower():  # half of a pair of surrogates cannot be written down
            document = json.loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return text
    return document
