"""Downloads against real servers on the loopback: broken, silent, hostile and good ones."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.server
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from sglforge.base.download import Page, download, local_path, read_bytes, read_text, redact
from sglforge.base.ids import Sha256
from sglforge.errors import FetchError

CONTENT = random.Random(7).randbytes(1_000_000)
GOOD = Sha256(hashlib.sha256(CONTENT).hexdigest())
WRONG = Sha256("0" * 64)

Serve = Callable[["Connection"], None]


class Connection(http.server.BaseHTTPRequestHandler):
    """One request; the test says what the server does with it."""

    protocol_version = "HTTP/1.1"
    server: Loopback

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        behaviours = self.server.behaviours
        behaviours[min(len(self.server.ranges), len(behaviours)) - 1](self)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class Loopback(http.server.ThreadingHTTPServer):
    """A server that behaves as listed, request by request; the last behaviour stays."""

    daemon_threads = True

    def __init__(self, *behaviours: Serve) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.behaviours = behaviours
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault."""


@pytest.fixture
def serve() -> Iterator[Callable[..., Loopback]]:
    servers: list[Loopback] = []

    def start(*behaviours: Serve) -> Loopback:
        server = Loopback(*behaviours)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def whole(connection: Connection) -> None:
    connection.send_response(200)
    connection.send_header("Content-Length", str(len(CONTENT)))
    connection.end_headers()
    connection.wfile.write(CONTENT)


def ranged(connection: Connection) -> None:
    asked = connection.headers.get("Range")
    if not asked:
        whole(connection)
        return
    begin = int(asked.removeprefix("bytes=").removesuffix("-"))
    if begin >= len(CONTENT):
        connection.send_response(416)
        connection.send_header("Content-Range", f"bytes */{len(CONTENT)}")
        connection.send_header("Content-Length", "0")
        connection.end_headers()
        return
    connection.send_response(206)
    connection.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
    connection.send_header("Content-Length", str(len(CONTENT) - begin))
    connection.end_headers()
    connection.wfile.write(CONTENT[begin:])


def cut(connection: Connection) -> None:
    """Promise everything, send 400,000 bytes, close."""
    connection.send_response(200)
    connection.send_header("Content-Length", str(len(CONTENT)))
    connection.end_headers()
    connection.wfile.write(CONTENT[:400_000])


def cut_at_once(connection: Connection) -> None:
    connection.connection.close()


def silent(connection: Connection) -> None:
    time.sleep(1.5)


def status(number: int, *headers: tuple[str, str]) -> Serve:
    def behave(connection: Connection) -> None:
        connection.send_response(number)
        for name, value in headers:
            connection.send_header(name, value)
        connection.send_header("Content-Length", "0")
        connection.end_headers()

    return behave


class Pauses(list[float]):
    """Stands for sleep and remembers how long."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def fetch(url: str, destination: Path, sha256: Sha256 | None = GOOD, pauses: Pauses | None = None) -> Sha256:
    return download(url, destination, sha256=sha256, timeout_s=1.0, sleep=Pauses() if pauses is None else pauses)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_progress_ends_at_its_size(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "deep" / "file.bin"
    found = download(serve(whole).url, target, sha256=None, progress=lambda done, total: seen.append((done, total)))
    assert found == GOOD
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert names(target.parent) == ["file.bin"]


def test_a_wrong_hash_is_not_kept_and_shows_both(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(whole)
    with pytest.raises(FetchError) as caught:
        fetch(server.url, tmp_path / "file.bin", WRONG)
    assert caught.value.code == "hash-mismatch"
    assert caught.value.context["expected sha256"] == WRONG
    assert caught.value.context["got sha256"] == GOOD
    assert names(tmp_path) == []
    assert len(server.ranges) == 1


def test_a_broken_transfer_continues_where_it_stopped(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(cut, ranged)
    pauses = Pauses()
    assert fetch(server.url, tmp_path / "file.bin", pauses=pauses) == GOOD
    first, second = server.ranges
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= 400_000
    assert len(pauses) == 1
    assert names(tmp_path) == ["file.bin"]


def test_a_server_that_ignores_range_starts_again(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(cut, whole)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert server.ranges[1] is not None
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_always_truncated_is_named_and_resumed_by_the_next_run(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(serve(cut).url, tmp_path / "file.bin")
    assert caught.value.code == "download-truncated"
    assert caught.value.context["attempts"] == "4"
    assert names(tmp_path) == [".file.bin.part"]
    server = serve(ranged)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert server.ranges[0] is not None
    assert names(tmp_path) == ["file.bin"]


def test_without_a_hash_an_old_part_is_not_trusted(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(b"something else")
    server = serve(ranged)
    assert fetch(server.url, tmp_path / "file.bin", None) == GOOD
    assert server.ranges == [None]


def test_a_part_of_another_file_costs_one_restart(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(b"something else")
    server = serve(ranged)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert server.ranges == ["bytes=14-", None]


def test_a_complete_part_needs_no_bytes(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(CONTENT)
    server = serve(ranged)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert server.ranges == [f"bytes={len(CONTENT)}-"]


def test_a_server_that_continues_elsewhere_starts_again(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    def elsewhere(connection: Connection) -> None:
        connection.send_response(206)
        connection.send_header("Content-Range", f"bytes 0-9/{len(CONTENT)}")
        connection.send_header("Content-Length", "10")
        connection.end_headers()
        connection.wfile.write(CONTENT[:10])

    (tmp_path / ".file.bin.part").write_bytes(CONTENT[:100])
    server = serve(elsewhere, ranged)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert server.ranges == ["bytes=100-", None]


def test_a_part_longer_than_the_file_starts_again(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(CONTENT + b"more")
    server = serve(ranged)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert server.ranges[-1] is None


def test_without_hash_and_validator_nothing_is_continued(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(cut, ranged)
    assert fetch(server.url, tmp_path / "file.bin", None) == GOOD
    assert server.ranges == [None, None]


def test_a_changed_file_is_not_stitched_together(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    """The server has a new version at the second request; If-Range makes it send the whole of it."""
    newer = random.Random(8).randbytes(500_000)

    def first(connection: Connection) -> None:
        connection.send_response(200)
        connection.send_header("ETag", '"one"')
        connection.send_header("Content-Length", str(len(CONTENT)))
        connection.end_headers()
        connection.wfile.write(CONTENT[:400_000])

    def second(connection: Connection) -> None:
        assert connection.headers["If-Range"] == '"one"'
        connection.send_response(200)
        connection.send_header("ETag", '"two"')
        connection.send_header("Content-Length", str(len(newer)))
        connection.end_headers()
        connection.wfile.write(newer)

    fetch(serve(first, second).url, tmp_path / "file.bin", None)
    assert (tmp_path / "file.bin").read_bytes() == newer


def test_a_connection_refused_is_quickly_unreachable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pauses = Pauses()
    with pytest.raises(FetchError) as caught:
        fetch(f"http://127.0.0.1:{port}/file.bin", tmp_path / "file.bin", pauses=pauses)
    assert caught.value.code == "network-unreachable"
    assert caught.value.message == "127.0.0.1 cannot be reached: Connection refused"
    assert "--offline" in caught.value.hint
    assert sum(pauses) <= 1.0
    assert names(tmp_path) == []


def test_an_unknown_host_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch("http://no-such-host.invalid/file.bin", tmp_path / "file.bin")
    assert caught.value.code == "network-unreachable"
    assert caught.value.message.startswith("no-such-host.invalid cannot be reached: ")
    assert "0x" not in caught.value.message


def test_a_silent_server_is_given_up(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        download(serve(silent).url, tmp_path / "file.bin", sha256=GOOD, timeout_s=0.2, sleep=Pauses())
    assert caught.value.code == "network-unreachable"


def test_a_stalled_transfer_is_truncated(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    def stall(connection: Connection) -> None:
        cut(connection)
        time.sleep(1.0)

    with pytest.raises(FetchError) as caught:
        download(serve(stall).url, tmp_path / "file.bin", sha256=GOOD, timeout_s=0.2, attempts=1, sleep=Pauses())
    assert caught.value.code == "download-truncated"


def test_a_server_that_trickles_is_given_up_and_continued(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    """A byte every tenth of a second is no silence; a transfer of megabytes would take days."""

    def trickle(connection: Connection) -> None:
        connection.send_response(200)
        connection.send_header("Content-Length", str(len(CONTENT)))
        connection.end_headers()
        for byte in CONTENT[:200]:
            connection.wfile.write(bytes([byte]))
            connection.wfile.flush()
            time.sleep(0.1)

    start = time.monotonic()
    server = serve(trickle, ranged)
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert time.monotonic() - start < 15
    with pytest.raises(FetchError, match="sends less than 1000 bytes a second"):
        fetch(serve(trickle).url, tmp_path / "other.bin")


def test_a_chunked_answer_that_breaks_off_is_noticed(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    def chunked(connection: Connection) -> None:
        connection.protocol_version = "HTTP/1.1"
        connection.send_response(200)
        connection.send_header("Transfer-Encoding", "chunked")
        connection.end_headers()
        connection.wfile.write(b"400\r\n" + CONTENT[:1024] + b"\r\n400\r\n" + CONTENT[1024:1500])

    assert fetch(serve(chunked, ranged).url, tmp_path / "file.bin") == GOOD
    with pytest.raises(FetchError, match="download-truncated"):
        fetch(serve(chunked).url, tmp_path / "other.bin")


def test_a_server_that_hangs_up_is_tried_again(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    assert fetch(serve(cut_at_once, cut_at_once, whole).url, tmp_path / "file.bin") == GOOD


def test_404_is_not_tried_again(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(status(404))
    with pytest.raises(FetchError) as caught:
        fetch(server.url, tmp_path / "file.bin")
    assert caught.value.code == "http-status"
    assert "404 Not Found" in caught.value.message
    assert len(server.ranges) == 1
    assert names(tmp_path) == []


def test_503_then_fine_waits_as_long_as_the_server_says(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    pauses = Pauses()
    odd = status(503, ("Retry-After", "soon"))
    server = serve(status(503, ("Retry-After", "3")), odd, whole)
    assert fetch(server.url, tmp_path / "file.bin", pauses=pauses) == GOOD
    assert pauses[0] == 3.0
    assert 0 < pauses[1] < 3.0


def test_503_for_ever_ends(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    pauses = Pauses()
    server = serve(status(503, ("Retry-After", "100000")))
    with pytest.raises(FetchError, match="503 Service Unavailable"):
        fetch(server.url, tmp_path / "file.bin", pauses=pauses)
    assert len(server.ranges) == 4
    assert max(pauses) <= 20.0


def test_credentials_reach_their_host_only_and_no_message(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    seen: list[str | None] = []

    def note_and_fail(connection: Connection) -> None:
        seen.append(connection.headers.get("Authorization"))
        status(403)(connection)

    other = serve(note_and_fail)

    def redirect(connection: Connection) -> None:
        seen.append(connection.headers.get("Authorization"))
        status(302, ("Location", other.url + "?signature=hidden"))(connection)

    url = serve(redirect).url.replace("http://", "http://user:p%40ss@")
    with pytest.raises(FetchError) as caught:
        fetch(url, tmp_path / "file.bin")
    expected = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert seen == [expected, None]
    said = f"{caught.value} {caught.value.context} {caught.value.hint}"
    assert not [secret for secret in ("user", "p%40ss", "p@ss", "hidden") if secret in said]


def test_a_redirect_to_a_local_file_is_refused(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    with pytest.raises(FetchError) as caught:
        fetch(serve(status(302, ("Location", secret.as_uri()))).url, tmp_path / "file.bin", None)
    assert caught.value.code == "unsupported-url"


def test_a_circle_of_redirects_ends(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="redirects more than 10 times"):
        fetch(serve(status(302, ("Location", "/file.bin"))).url, tmp_path / "file.bin")


@pytest.mark.parametrize("url", ["ftp://host/file", "git+ssh://host/x", "http:///file", "http://h:99999/x", "x"])
def test_other_urls_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(url, tmp_path / "file.bin")
    assert caught.value.code == "unsupported-url"


def test_no_tls_is_no_trust(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(serve(whole).url.replace("http:", "https:"), tmp_path / "file.bin")
    assert caught.value.code == "tls-failed"
    assert "global.cert" in caught.value.hint


def test_a_missing_certificate_bundle_is_said(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    url = serve(whole).url.replace("http:", "https:")
    with pytest.raises(FetchError) as caught:
        download(url, tmp_path / "f", sha256=None, ca_bundle=tmp_path / "none.pem", sleep=Pauses())
    assert caught.value.code == "tls-failed"
    assert "No such file" in caught.value.message


def test_the_proxy_of_the_environment_is_used(
    httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def proxy(request: Request) -> Response:
        asked.append((request.url, request.headers.get("Proxy-Authorization", "")))
        return Response(CONTENT)

    httpserver.expect_request("/file.bin").respond_with_handler(proxy)
    address = f"{httpserver.host}:{httpserver.port}"
    monkeypatch.setenv("http_proxy", f"http://me:word@{address}")
    fetch("http://index.invalid/file.bin", tmp_path / "file.bin")
    assert asked == [("http://index.invalid/file.bin", "Basic " + base64.b64encode(b"me:word").decode())]
    monkeypatch.setenv("no_proxy", "index.invalid")
    with pytest.raises(FetchError, match=r"index\.invalid cannot be reached"):
        fetch("http://index.invalid/file.bin", tmp_path / "other.bin")


def test_a_dead_proxy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "127.0.0.1:9")
    with pytest.raises(FetchError) as caught:
        fetch("http://index.invalid/file.bin", tmp_path / "file.bin")
    assert caught.value.code == "network-unreachable"
    assert "through the proxy" in caught.value.message


def test_file_urls_are_copied_and_verified(tmp_path: Path) -> None:
    source = tmp_path / "a folder" / "file.bin"
    source.parent.mkdir()
    source.write_bytes(CONTENT)
    assert "%20" in source.as_uri()
    assert local_path(source.as_uri()) == source
    assert fetch(source.as_uri(), tmp_path / "got" / "file.bin") == GOOD
    with pytest.raises(FetchError, match="hash-mismatch"):
        fetch(source.as_uri(), tmp_path / "got" / "again.bin", WRONG)
    with pytest.raises(FetchError, match="file-unreadable"):
        read_text(tmp_path.as_uri())
    with pytest.raises(FetchError, match="file-unreadable"):
        fetch((tmp_path / "absent").as_uri(), tmp_path / "got" / "absent")
    assert names(tmp_path / "got") == ["file.bin"]


def test_a_full_disk_is_named_and_leaves_nothing(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    part = tmp_path / ".file.bin.part"
    part.symlink_to("/dev/full")  # the kernel answers every write with ENOSPC
    with pytest.raises(FetchError) as caught:
        fetch(serve(whole).url, tmp_path / "file.bin")
    assert caught.value.code == "disk-full"
    assert os.strerror(errno.ENOSPC) in caught.value.message
    assert names(tmp_path) == []


def test_a_folder_that_is_a_file_is_named(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(FetchError, match="not-writable"):
        fetch(serve(whole).url, tmp_path / "plain" / "file.bin")


def test_a_kill_leaves_no_file_under_the_final_name(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    begun = threading.Event()

    def slow(connection: Connection) -> None:
        cut(connection)
        connection.wfile.flush()
        begun.set()
        time.sleep(1.0)

    code = (
        "import sys; from pathlib import Path; from sglforge.base.download import download;"
        "download(sys.argv[1], Path(sys.argv[2]), sha256=sys.argv[3])"
    )
    server = serve(slow, ranged)
    child = subprocess.Popen([sys.executable, "-c", code, server.url, str(tmp_path / "file.bin"), GOOD])
    assert begun.wait(30)
    deadline = time.monotonic() + 30
    part = tmp_path / ".file.bin.part"
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert names(tmp_path) == [".file.bin.part"]
    assert fetch(server.url, tmp_path / "file.bin") == GOOD
    assert names(tmp_path) == ["file.bin"]


def test_two_runs_fetch_one_file_once(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(whole)
    results: list[Sha256] = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch(server.url, tmp_path / "file.bin"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [GOOD] * 4
    assert len(server.ranges) == 1
    assert names(tmp_path) == ["file.bin"]


def drip(connection: Connection) -> None:
    """Send a byte now and then: no silence is ever long."""
    connection.send_response(200)
    connection.send_header("Content-Length", str(len(CONTENT)))
    connection.end_headers()
    for _ in range(100):
        connection.wfile.write(b"x")
        connection.wfile.flush()
        time.sleep(0.1)


def drip_headers(connection: Connection) -> None:
    connection.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(100):
        connection.wfile.write(b"x")
        connection.wfile.flush()
        time.sleep(0.1)


@pytest.mark.parametrize("behaviour", [drip, drip_headers])
def test_a_deadline_holds_for_a_server_that_is_never_silent(
    behaviour: Serve, serve: Callable[..., Loopback], tmp_path: Path
) -> None:
    url, started = serve(behaviour).url, time.monotonic()
    with pytest.raises(FetchError, match="takes longer than 1 s") as caught:
        download(url, tmp_path / "file.bin", sha256=GOOD, timeout_s=5.0, deadline_s=1.0)
    assert caught.value.code == "download-refused"
    with pytest.raises(FetchError, match="takes longer than 1 s"):
        read_bytes(url, limit_bytes=10**7, deadline_s=1.0)
    assert time.monotonic() - started < 8


def test_a_file_that_is_too_long_is_given_up_before_it_comes(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    server = serve(whole)
    with pytest.raises(FetchError, match="more than the 999999 bytes") as caught:
        download(server.url, tmp_path / "file.bin", sha256=None, limit_bytes=len(CONTENT) - 1)
    assert caught.value.code == "download-refused"
    with pytest.raises(FetchError, match="download-refused"):
        read_bytes(server.url, limit_bytes=10, deadline_s=5.0)
    assert len(server.ranges) == 2, "it is not tried again"
    assert names(tmp_path) == []


def test_what_is_bounded_and_right_arrives(serve: Callable[..., Loopback], tmp_path: Path) -> None:
    url, size = serve(whole).url, len(CONTENT)
    assert download(url, tmp_path / "file.bin", sha256=GOOD, limit_bytes=size, deadline_s=30.0) == GOOD
    assert read_bytes(url, limit_bytes=size, deadline_s=30.0) == CONTENT
    assert read_bytes(serve(status(404)).url, limit_bytes=1, deadline_s=30.0) is None


def test_pages_have_their_final_url_and_charset(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/simple/x").respond_with_data(
        status=301, headers={"Location": httpserver.url_for("/simple/x/")}
    )
    httpserver.expect_request("/simple/x/").respond_with_data(
        "\u00fcber".encode("latin-1"), content_type="text/html; charset=latin-1"
    )
    page = read_text(httpserver.url_for("/simple/x"))
    assert page == Page(
        url=httpserver.url_for("/simple/x/"), text="\u00fcber", content_type="text/html; charset=latin-1"
    )


def test_a_page_that_is_not_there_is_none_and_503_is_tried_again(
    serve: Callable[..., Loopback], tmp_path: Path
) -> None:
    assert read_text(serve(status(404)).url) is None
    assert read_text((tmp_path / "absent.html").as_uri()) is None
    page = read_text(serve(status(503), whole).url, sleep=Pauses())
    assert page is not None
    with pytest.raises(FetchError, match="download-truncated"):
        read_text(serve(cut).url, sleep=Pauses())
    with pytest.raises(FetchError, match="403 Forbidden"):
        read_text(serve(status(403)).url, sleep=Pauses())


def test_a_page_without_end_is_refused(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.base.download.PAGE_LIMIT_BYTES", 1000)
    httpserver.expect_request("/").respond_with_data(b"x" * 1001, content_type="text/html")
    with pytest.raises(FetchError, match="more than 64 MiB"):
        read_text(httpserver.url_for("/"))


def test_an_unknown_charset_is_no_crash(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/").respond_with_data(b"x", content_type="text/html; charset=none-such")
    page = read_text(httpserver.url_for("/"))
    assert page is not None
    assert page.text == "x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:word@host:8/a/b?token=1#sha256=0", "https://host:8/a/b"),
        ("https://token@host/a", "https://host/a"),
        ("https://user:pa@ss@host/a", "https://host/a"),
        ("file:///a/b", "file:///a/b"),
        ("https://[broken/a", "(not a URL)"),
    ],
)
def test_redact(url: str, shown: str) -> None:
    assert redact(url) == shown
