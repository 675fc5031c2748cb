"""The way out of the sandbox to shared storage: what passes, what does not, and what happens when it fails."""

from __future__ import annotations

import contextlib
import http.server
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.build.compiling import door, resp, storage
from sglforge.build.compiling.storage import Remote, StorageError
from sglforge.errors import ConfigError

KEY = b"ccache:abc123"


class Kept:
    """Storage in memory that fails when it is told to."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}
        self.fails = False

    def _look(self) -> dict[bytes, bytes]:
        if self.fails:
            raise StorageError("it is gone")
        return self.objects

    def get(self, key: bytes) -> bytes | None:
        return self._look().get(key)

    def has(self, key: bytes) -> bool:
        return key in self._look()

    def put(self, key: bytes, value: bytes) -> None:
        self._look()[key] = value

    def remove(self, key: bytes) -> bool:
        return self._look().pop(key, None) is not None


def make(*, read_only: bool = False) -> tuple[door.Door, Kept]:
    return door.Door(folder=Path("/none"), remote=Remote(url="redis://h", read_only=read_only)), Kept()


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_commands_come_back_as_they_were(words: list[bytes]) -> None:
    assert resp.read_command(BytesIO(resp.command(*words))) == words


@given(st.one_of(st.none(), st.binary(max_size=40), st.integers(), st.just("OK")))
def test_answers_come_back_as_they_were(value: resp.Answer) -> None:
    assert resp.read_answer(BytesIO(resp.answer(value))) == value


@given(st.binary(max_size=60))
def test_anything_else_is_refused_and_nothing_worse(data: bytes) -> None:
    for read in (resp.read_command, resp.read_answer):
        with contextlib.suppress(resp.ProtocolError):
            read(BytesIO(data))


def test_objects_pass() -> None:
    way, kept = make()
    assert way.answer([b"GET", KEY], kept) == b"$-1\r\n"
    assert way.answer([b"SET", KEY, b"object\r\n"], kept) == b"+OK\r\n"
    assert way.answer([b"get", KEY], kept) == b"$8\r\nobject\r\n\r\n"
    assert way.answer([b"EXISTS", KEY], kept) == b":1\r\n"
    assert way.answer([b"DEL", KEY], kept) == b":1\r\n"
    assert way.answer([b"SELECT", b"7"], kept) == b"+OK\r\n"


@pytest.mark.parametrize(
    "words",
    [
        [b"FLUSHALL"], [b"CONFIG", b"SET", b"dir"], [b"KEYS", b"*"], [b"EVAL", b"x", b"0"], [b"GET"],
        [b"GET", KEY, KEY],
        [b"SET", KEY], [b"SET", KEY, b"v", b"EX", b"1"], [b"GET", b"../../etc"], [b"GET", b"a b"], [b"DEL", KEY, KEY],
    ],
)  # fmt: skip
def test_nothing_else_passes(words: list[bytes]) -> None:
    way, kept = make()
    kept.objects[KEY] = b"x"
    assert way.answer(words, kept).startswith(b"-ERR")
    assert kept.objects == {KEY: b"x"}


def test_storage_that_is_only_read_is_not_written_to() -> None:
    way, kept = make(read_only=True)
    kept.objects[KEY] = b"x"
    assert way.answer([b"SET", KEY, b"y"], kept).startswith(b"-ERR")
    assert way.answer([b"DEL", KEY], kept).startswith(b"-ERR")
    assert way.answer([b"GET", KEY], kept) == b"$1\r\nx\r\n"
    assert way.address == "redis+unix:/none/s|read-only"


def test_storage_that_failed_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    way, kept = make()
    kept.objects[KEY] = b"x"
    kept.fails = True
    assert way.answer([b"GET", KEY], kept) == b"-ERR it is gone\r\n"
    kept.fails = False
    assert way.answer([b"GET", KEY], kept).startswith(b"-ERR the storage failed a moment ago")
    monkeypatch.setattr(time, "monotonic", lambda: 1e12)
    assert way.answer([b"GET", KEY], kept) == b"$1\r\nx\r\n"
    assert (way.faults, way.fault) == (1, "it is gone")


@pytest.mark.parametrize(
    ("text", "url", "read_only"),
    [
        ("redis://h:1/2", "redis://h:1/2", False),
        ("redis+unix:/run/r.sock|read-only", "redis+unix:/run/r.sock", True),
        ("https://h/a/b", "https://h/a/b", False),
    ],
)
def test_storage_is_named_by_a_variable(text: str, url: str, *, read_only: bool) -> None:
    assert storage.configured({storage.VARIABLE: text}) == Remote(url=url, read_only=read_only)


@pytest.mark.parametrize(
    "text", ["redis://", "ftp://h", "/path", "redis://h/name", "redis+unix:", "http://[", "redis://h:x"]
)
def test_what_names_none_is_an_error_without_its_password(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        storage.configured({storage.VARIABLE: text})
    assert caught.value.code == "compile-cache-invalid"


def test_a_password_is_not_shown() -> None:
    remote = storage.configured({storage.VARIABLE: "redis://me:secret@h:1/2|read-only"})
    assert remote
    assert remote.shown == "redis://h:1/2|read-only"
    with pytest.raises(ConfigError) as caught:
        storage.configured({storage.VARIABLE: "redis://me:secret@h/name"})
    assert "secret" not in str(caught.value)
    assert storage.configured({}) is None


class Files(http.server.BaseHTTPRequestHandler):
    objects: dict[str, bytes]

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/odd/ccache/abc123":
            return self._answer(500)
        found = self.objects.get(self.path)
        return self._answer(404) if found is None else self._answer(200, found)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201)

    def do_DELETE(self) -> None:
        self._answer(204 if self.objects.pop(self.path, None) is not None else 404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def files() -> Iterator[str]:
    Files.objects = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_http_server_keeps_objects(files: str) -> None:
    kept = Remote(url=f"{files}/cache/", read_only=False).open()
    assert (kept.get(KEY), kept.has(KEY), kept.remove(KEY)) == (None, False, False)
    kept.put(KEY, b"\0object")
    assert Files.objects == {"/cache/ccache/abc123": b"\0object"}
    assert (kept.get(KEY), kept.has(KEY), kept.remove(KEY), kept.has(KEY)) == (b"\0object", True, True, False)
    with pytest.raises(StorageError, match="HTTP status 500"):
        Remote(url=f"{files}/odd", read_only=False).open().get(KEY)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "redis://127.0.0.1:9", "redis+unix:/no/such/socket"])
def test_storage_that_is_not_there_is_an_error_with_a_name(url: str) -> None:
    with pytest.raises(StorageError):
        Remote(url=url, read_only=False).open().get(KEY)


def test_the_socket_takes_odd_clients(files: str, tmp_path: Path) -> None:
    with door.serving(Remote(url=files, read_only=False), tmp_path) as way:
        for odd in (b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n$99999999999\r\n", b"*2\r\n$3\r\nGET\r\n", b""):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(way.socket))
                client.sendall(odd)
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
            client.connect(str(way.socket))
            client.sendall(resp.command(b"SET", KEY, b"x" * 100_000) + resp.command(b"GET", KEY))
            assert resp.read_answer(answers) == "OK"
            assert resp.read_answer(answers) == b"x" * 100_000
    assert list(tmp_path.iterdir()) == []


def test_a_long_path_does_not_keep_the_door_shut(files: str, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with door.serving(Remote(url=files, read_only=False), deep) as way:
        assert len(str(way.socket)) < 107
        folder = way.folder
    assert not folder.exists()


@pytest.mark.parametrize(("name", "there"), [("plain", True), ("with blanks", False), ("with|bar", False)])
def test_its_path_does_not_end_an_address_for_ccache(files: str, name: str, there: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        near = Path(short) / name
        near.mkdir()
        with door.serving(Remote(url=files, read_only=True), near) as way:
            assert way.folder.is_relative_to(near) == there
            assert way.address.split() == [way.address]
            assert way.address.count("|") == 1
