"""Storage that machines share objects through: a Redis server, or any HTTP server that takes GET, HEAD, PUT, DELETE."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

import urllib3

from sglforge.base.download import redact
from sglforge.build.compiling import resp
from sglforge.errors import ConfigError

VARIABLE = "SGLFORGE_CCACHE_REMOTE"
READ_ONLY = "|read-only"
TIMEOUT_S = 10.0
REDIS_PORT = 6379
KEY = re.compile(rb"[A-Za-z0-9:._-]{1,200}")


class StorageError(Exception):
    """The storage did not do what it was asked for; builds go on without it."""


class Storage(Protocol):
    """What objects are kept in, by key."""

    def get(self, key: bytes) -> bytes | None:
        """Return an object, None where there is none."""

    def has(self, key: bytes) -> bool:
        """Say whether there is an object."""

    def put(self, key: bytes, value: bytes) -> None:
        """Keep an object."""

    def remove(self, key: bytes) -> bool:
        """Remove an object; say whether there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Where shared objects are, and whether ours go there too."""

    url: str
    read_only: bool

    @property
    def shown(self) -> str:
        """The place without its password."""
        return redact(self.url) + (READ_ONLY if self.read_only else "")

    def open(self) -> Storage:
        """Return the storage; nothing is asked of it yet."""
        return _Http(url=self.url.rstrip("/")) if self.url.startswith("http") else _Redis.at(self.url)


def configured(environment: Mapping[str, str]) -> Remote | None:
    """Return the storage that SGLFORGE_CCACHE_REMOTE names; None for none.

    Raises ConfigError ``compile-cache-invalid``.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    read_only = text.endswith(READ_ONLY)
    url = text.removesuffix(READ_ONLY)
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        named = bool(parts.path) if parts.scheme == "redis+unix" else bool(parts.hostname)
        database = parts.path.strip("/")
        fits = parts.scheme != "redis" or not database or database.isdigit()
        if parts.scheme in {"redis", "redis+unix", "http", "https"} and named and fits and (parts.port or 1) > 0:
            return Remote(url=url, read_only=read_only)
    raise ConfigError(
        code="compile-cache-invalid",
        message=f"{VARIABLE} names no storage: {redact(url)}",
        hint="redis://HOST:PORT, redis+unix:/PATH or http(s)://HOST/PATH, with |read-only after it to only read",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Http:
    """An HTTP server: an object is a file below its URL."""

    url: str
    pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(timeout=TIMEOUT_S, retries=urllib3.Retry(0, redirect=2))
    )

    def get(self, key: bytes) -> bytes | None:
        status, body = self._ask("GET", key)
        return body if status == 200 else None

    def has(self, key: bytes) -> bool:
        return self._ask("HEAD", key)[0] == 200

    def put(self, key: bytes, value: bytes) -> None:
        self._ask("PUT", key, value)

    def remove(self, key: bytes) -> bool:
        return self._ask("DELETE", key)[0] != 404

    def _ask(self, method: str, key: bytes, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask and return status and body; 404 is an answer, every other fault an error."""
        try:
            response = self.pool.request(method, f"{self.url}/{key.decode().replace(':', '/')}", body=body)
        except urllib3.exceptions.HTTPError as error:
            raise StorageError(f"{redact(self.url)}: {type(error).__name__}") from error
        if response.status != 404 and not 200 <= response.status < 300:
            raise StorageError(f"{redact(self.url)}: HTTP status {response.status}")
        return response.status, response.data


@dataclass(slots=True, kw_only=True)
class _Redis:
    """A Redis server; one connection, made when it is first asked."""

    address: tuple[str, int] | str
    user: str
    password: str
    database: int
    _stream: BinaryIO | None = None
    _socket: socket.socket | None = None

    @classmethod
    def at(cls, url: str) -> _Redis:
        parts = urlsplit(url)
        local = parts.scheme == "redis+unix"
        return cls(
            address=unquote(parts.path) if local else (str(parts.hostname), parts.port or REDIS_PORT),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=0 if local else int(parts.path.strip("/") or 0),
        )

    def get(self, key: bytes) -> bytes | None:
        found = self._ask(b"GET", key)
        return found if isinstance(found, bytes) else None

    def has(self, key: bytes) -> bool:
        return self._ask(b"EXISTS", key) == 1

    def put(self, key: bytes, value: bytes) -> None:
        self._ask(b"SET", key, value)

    def remove(self, key: bytes) -> bool:
        return self._ask(b"DEL", key) == 1

    def _ask(self, *words: bytes) -> resp.Answer:
        try:
            if self._stream is None or self._socket is None:
                self._connect()
            return self._tell(*words)
        except (OSError, resp.ProtocolError) as error:
            self._close()
            raise StorageError(f"redis: {error}") from error

    def _connect(self) -> None:
        if isinstance(self.address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(TIMEOUT_S)
            self._socket.connect(self.address)
        else:
            self._socket = socket.create_connection(self.address, timeout=TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        if self.password:
            self._tell(b"AUTH", *([self.user.encode()] if self.user else []), self.password.encode())
        if self.database:
            self._tell(b"SELECT", str(self.database).encode())

    def _tell(self, *words: bytes) -> resp.Answer:
        if self._stream is None or self._socket is None:
            raise resp.ProtocolError("not connected")
        self._socket.sendall(resp.command(*words))
        return resp.read_answer(self._stream)

    def _close(self) -> None:
        for end in (self._stream, self._socket):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()
        self._stream = self._socket = None
