"""HTTP to one server: one request, one deadline, no proxy, no retry."""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

Status = int | Literal["timeout", "disconnected"]

_CHUNK_BYTES = 65_536
_LONGEST_ANSWER = 64 * 1024 * 1024


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


def send(
    base_url: str, request: Request, *, timeout_s: float, headers: Mapping[str, str] = MappingProxyType({})
) -> Answer:
    """Send a request and read the whole answer within ``timeout_s`` seconds, or its own time where that is longer.

    ``headers`` are sent too, and told to nobody else. Of an answer that is longer than 64 MiB, unpacked, the response
    is a text that says so. urllib3 reads no proxy variables by itself, so a proxy never stands between us and the
    loopback.
    """
    import urllib3
    from urllib3 import exceptions

    timeout_s = max(request.timeout_s or 0.0, timeout_s)
    start = time.monotonic()
    events = _Events(start=start) if request.stream else None
    body = None if request.body is None else json.dumps(request.body).encode()
    status: Status
    with _Deadline(timeout_s) as deadline, urllib3.PoolManager(retries=False) as manager:
        try:
            pool = manager.connection_from_url(base_url)
            pool.ConnectionCls = deadline.watched(pool.ConnectionCls)
            reply = pool.urlopen(
                request.method,
                urlsplit(base_url).path + request.path,
                body=body,
                headers={"content-type": "application/json", **headers} if body else headers,
                timeout=urllib3.Timeout(total=timeout_s),
                retries=False,
                preload_content=False,
            )
            content = _content(reply, deadline, events, request.hang_up_after)
            if deadline.passed:
                raise exceptions.TimeoutError  # an answer without a length just ends when we hang up
            status = reply.status
            if content is None:
                response: object = f"answer of more than {_LONGEST_ANSWER >> 20} MiB"
            else:
                response = _decoded(content) if events is None or status != HTTPStatus.OK else events.found
        except exceptions.HTTPError as error:
            nobody = isinstance(error, exceptions.NewConnectionError)  # a kind of timeout to urllib3
            late = deadline.passed or isinstance(error, exceptions.TimeoutError)
            status = "timeout" if late and not nobody else "disconnected"
            response = (events.found if events else None) or ("" if deadline.passed else str(error)) or None
    return Answer(status=status, seconds=round(time.monotonic() - start, 4), response=response)


def _content(
    reply: BaseHTTPResponse, deadline: _Deadline, events: _Events | None, hang_up_after: int | None
) -> bytes | None:
    """Read an answer to its end, the wanted number of events or the deadline; None stands for one without end."""
    content = bytearray()
    while (chunk := reply.read1(_CHUNK_BYTES)) and not deadline.passed:
        content += chunk
        if len(content) > _LONGEST_ANSWER:
            reply.close()
            return None
        if events and events.add(chunk) >= (hang_up_after or sys.maxsize):
            reply.close()
            break
    return bytes(content)


class _Deadline:
    """Hangs up when the time is over, whatever the server does: a timeout of a socket starts anew with each byte."""

    def __init__(self, timeout_s: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(timeout_s, self._hang_up)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def watched(self, kind: Any) -> Any:
        """Return a kind of connection whose sockets this deadline shuts down."""
        deadline = self

        class Watched(kind):  # type: ignore[misc]
            def _new_conn(self) -> socket.socket:
                made: socket.socket = super()._new_conn()
                deadline.watch(made)
                return made

        Watched.__name__ = kind.__name__  # urllib3 shows it in its messages
        return Watched

    def watch(self, made: socket.socket) -> None:
        """Shut a socket down at the deadline; TLS takes the socket itself away, so a second one is kept."""
        with self._lock:
            self._sockets.append(made.dup())
        if self.passed:
            self._hang_up()

    def _hang_up(self) -> None:
        with self._lock:
            self.passed = True
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


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
        document: object = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if "\\ud" in text.lower():  # half of a pair of surrogates cannot be written down
            document = json.loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError, MemoryError):
        return text
    return document


def _finite(word: str) -> float | None:
    """Return a number, None for NaN and what is too large: JSON has no word for them, and other servers say null."""
    value = float(word)
    return value if math.isfinite(value) else None
