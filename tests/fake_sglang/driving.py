"""Ask the fake server without a process and without sockets: its application in an event loop of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fake_sglang.app import Application
from fake_sglang.engine import Engine
from fake_sglang.options import parse

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One answer, or that none came in time (status 0)."""

    status: int = 0
    content: bytes = b""

    @property
    def document(self) -> Any:
        """The JSON that came."""
        return json.loads(self.content)

    @property
    def events(self) -> list[Any]:
        """The server-sent events; the end mark is a string."""
        lines = [line.removeprefix("data: ") for line in self.content.decode().split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


@dataclass(slots=True, kw_only=True)
class Driver:
    """A fake server in this process; ``patience_s`` is how long an answer is waited for."""

    argv: Sequence[str] = ()
    fault: str = ""
    patience_s: float = 10.0
    engine: Engine = field(init=False)
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _decoding: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self.engine = Engine(options=parse(self.argv, {"FAKE_FAULT": self.fault}))
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._runner.close()

    def get(self, path: str) -> Asked:
        """Ask a route."""
        return self.at_once([("GET", path, None)])[0]

    def post(self, path: str, document: Document) -> Asked:
        """Send one request."""
        return self.at_once([("POST", path, document)])[0]

    def together(self, path: str, documents: Sequence[Document]) -> list[Asked]:
        """Send several requests at once."""
        return self.at_once([("POST", path, document) for document in documents])

    def leave(self, path: str, document: Document, *, after_s: float) -> None:
        """Send a request and go away before it is answered."""

        async def hurry() -> None:
            await self._one("POST", path, document, gone_after_s=after_s)

        self.at_once([])
        self._runner.run(hurry())

    def at_once(self, requests: Sequence[tuple[str, str, Document | None]]) -> list[Asked]:
        """Send requests (method, path, document) at once and return the answers in order."""

        async def ask() -> list[Asked]:
            if self._decoding is None:
                self._decoding = asyncio.ensure_future(self.engine.run())
            answers = list(await asyncio.gather(*(self._one(*request) for request in requests)))
            if self._decoding.done():
                self._decoding.result()  # a mistake in the engine
            return answers

        return self._runner.run(ask())

    async def _one(self, method: str, path: str, document: Document | None, gone_after_s: float | None = None) -> Asked:
        body = b"" if document is None else json.dumps(document).encode()
        sent: list[MutableMapping[str, Any]] = []
        messages = [{"type": "http.request", "body": body}]

        async def receive() -> MutableMapping[str, Any]:
            if not messages:
                await asyncio.sleep(3600 if gone_after_s is None else gone_after_s)
                return {"type": "http.disconnect"}
            return messages.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "query_string": b""}
        try:
            await asyncio.wait_for(Application(self.engine)(scope, receive, send), self.patience_s)
        except TimeoutError:
            return Asked()
        return Asked(status=sent[0]["status"], content=b"".join(part.get("body", b"") for part in sent[1:]))
