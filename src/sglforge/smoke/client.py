"""HTTP to a server on this machine: one request, one deadline, no proxy, no retry."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Status = int | Literal["timeout", "disconnected"]

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; ``name`` tells it apart from the others of its probe."""

    name: str
    path: str
    body: Mapping[str, object] | None = None

    @property
    def method(self) -> str:
        """GET, or POST when there is a body."""
        return "GET" if self.body is None else "POST"

    def to_json(self) -> dict[str, object]:
        """Return the request as the transcript's document."""
        return {"name": self.name, "method": self.method, "path": self.path, "body": self.body}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: HTTP status or why there is none, the time it took, JSON or text that is not JSON."""

    status: Status
    seconds: float
    response: object


def send(base_url: str, request: Request, *, timeout_s: float) -> Answer:
    """Send a request and read the whole answer before ``timeout_s`` seconds are over.

    urllib3 reads no proxy variables by itself, so a proxy never stands between us and the loopback.
    """
    import urllib3
    from urllib3 import exceptions

    start = time.monotonic()
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
            for chunk in reply.stream(_CHUNK_BYTES):
                content += chunk
                if time.monotonic() - start > timeout_s:
                    raise exceptions.TimeoutError  # noqa: TRY301 - an answer that drips in is late too
            status, response = reply.status, _decoded(bytes(content))
    except exceptions.NewConnectionError as error:  # a kind of timeout to urllib3: nobody listens
        status, response = "disconnected", str(error)
    except exceptions.TimeoutError as error:
        status, response = "timeout", str(error) or None
    except exceptions.HTTPError as error:
        status, response = "disconnected", str(error)
    return Answer(status=status, seconds=time.monotonic() - start, response=response)


def _decoded(content: bytes) -> object:
    text = content.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text
