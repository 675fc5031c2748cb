"""One request, one deadline; ports of the loopback."""

from __future__ import annotations

import gzip
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from sglforge.smoke import ports
from sglforge.smoke.client import Request, send

ASK = Request(name="x", path="/generate", body={"text": "ü"})


def test_json_goes_out_and_comes_back(httpserver: HTTPServer) -> None:
    httpserver.expect_oneshot_request("/generate", method="POST", json={"text": "ü"}).respond_with_json({"text": "é"})
    answer = send(httpserver.url_for(""), ASK, timeout_s=10)
    assert (answer.status, answer.response) == (200, {"text": "é"})
    assert 0 < answer.seconds < 10


def test_an_error_is_an_answer(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/health").respond_with_data("no page", status=503)
    answer = send(httpserver.url_for(""), Request(name="x", path="/health"), timeout_s=10)
    assert (answer.status, answer.response) == (503, "no page")


def test_no_proxy_stands_in_between(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    httpserver.expect_request("/generate").respond_with_json({})
    assert send(httpserver.url_for(""), ASK, timeout_s=10).status == 200


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept one connection and do with it what the test says."""
    with socket.create_server((ports.LOOPBACK, 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                behave(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://{ports.LOOPBACK}:{listener.getsockname()[1]}"
        thread.join(timeout=20)


def test_silence_is_a_timeout() -> None:
    released = threading.Event()

    def wait(_connection: socket.socket) -> None:
        released.wait(20)

    with server(wait) as url:
        answer = send(url, ASK, timeout_s=0.3)
        released.set()
    assert answer.status == "timeout"
    assert answer.seconds >= 0.3


def test_an_answer_that_drips_in_does_not_stretch_the_deadline() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(100):
            time.sleep(0.1)
            try:
                connection.sendall(b"1\r\nx\r\n")
            except OSError:
                return

    with server(drip) as url:
        answer = send(url, ASK, timeout_s=0.5)
    assert answer.status == "timeout"
    assert answer.seconds < 5


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nx-",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    ],
    ids=["status", "headers", "body", "body-without-length"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_one_byte_at_a_time_is_late_wherever_it_drips(head: bytes, *, stream: bool) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(100):
            time.sleep(0.1)
            try:
                connection.sendall(b"H")
            except OSError:
                return

    with server(drip) as url:
        answer = send(url, Request(name="x", path="/", stream=stream), timeout_s=0.5)
    assert (answer.status, answer.response) == ("timeout", None)
    assert 0.5 <= answer.seconds < 5


def test_events_before_the_deadline_are_kept_and_timed_one_by_one() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for _ in range(100):
            try:
                connection.sendall(b"data: 1\n\n")
            except OSError:
                return
            time.sleep(0.2)

    with server(drip) as url:
        answer = send(url, Request(name="x", path="/", stream=True), timeout_s=1)
    assert answer.status == "timeout"
    assert isinstance(answer.response, list)
    seconds = [event["seconds"] for event in answer.response]
    assert len(seconds) >= 2
    assert seconds[-1] - seconds[0] >= 0.15


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_without_end_is_cut(*, packed: bool, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.client._LONGEST_ANSWER", 2 << 20)

    def flood(connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
        if packed:
            connection.sendall(head + b"content-encoding: gzip\r\n\r\n" + gzip.compress(bytes(8 << 20)))
            return
        try:
            connection.sendall(head + b"\r\n")
            while True:
                connection.sendall(bytes(65_536))
        except OSError:
            return

    with server(flood) as url:
        answer = send(url, Request(name="x", path="/", stream=stream), timeout_s=20)
    assert (answer.status, answer.response) == (200, "answer of more than 2 MiB")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"])
def test_a_dropped_connection_is_said(sent: bytes) -> None:
    with server(lambda connection: connection.sendall(sent)) as url:
        assert send(url, ASK, timeout_s=10).status == "disconnected"


def test_nobody_there_is_disconnected() -> None:
    answer = send(f"http://{ports.LOOPBACK}:{ports.free_port()}", ASK, timeout_s=10)
    assert answer.status == "disconnected"
    assert str(answer.response).startswith("HTTPConnection(")


def test_a_port_is_open_while_somebody_listens_and_the_holder_is_known() -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        assert ports.is_open(port)
        assert ports.holder(port) == os.getpid()
    assert not ports.is_open(port)
    assert ports.holder(port) is None


def test_a_free_port_is_free() -> None:
    assert not ports.is_open(ports.free_port())


def test_a_free_port_leaves_room_for_the_port_that_some_releases_add() -> None:
    assert max(ports.free_port() for _ in range(100)) + 10_000 <= 65_535


def test_commands_are_told_by_pid() -> None:
    assert Path(sys.executable).name in ports.command_of(os.getpid())
    assert ports.command_of(2**22 + 1) == "gone meanwhile"


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("[" * 100_000, "[" * 100_000),
        ("[NaN, -Infinity, 1e999, 0.5]", [None, None, None, 0.5]),
        ('{"text": "\\ud83d"}', {"text": "?"}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
    ids=["too-deep", "no-numbers", "half-a-pair", "a-pair"],
)
def test_what_comes_can_always_be_written_down(httpserver: HTTPServer, sent: str, read: object) -> None:
    httpserver.expect_request("/generate").respond_with_data(sent)
    answer = send(httpserver.url_for(""), ASK, timeout_s=10)
    assert answer.response == read
    assert str(answer.response).encode()


def test_a_request_may_take_longer_than_others_and_never_less(httpserver: HTTPServer) -> None:
    def slow(_request: object) -> Response:
        time.sleep(0.6)
        return Response("1")

    httpserver.expect_request("/slow").respond_with_handler(slow)
    for own, every, status in ((5.0, 0.2, 200), (0.2, 5.0, 200), (0.2, 0.2, "timeout")):
        request = Request(name="x", path="/slow", timeout_s=own)
        assert send(httpserver.url_for(""), request, timeout_s=every).status == status
