"""Repositories that cannot be asked: each way to fail has its code, and nothing secret is told."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_repositories import Repository
from pytest_httpserver import HTTPServer

from sglforge.base.workspace import Workspace
from sglforge.errors import FetchError
from sglforge.sources.git import commands, faults, pin
from sglforge.sources.git.pin import newest

SECRET = "hunter2"


def failure(url: str, workspace: Workspace) -> FetchError:
    with pytest.raises(FetchError) as caught:
        newest(url, "main", workspace=workspace, waiting=pytest.fail)
    told = f"{caught.value} {caught.value.context} {caught.value.hint}"
    assert SECRET not in told
    return caught.value


def test_an_unknown_host(workspace: Workspace) -> None:
    error = failure(f"https://user:{SECRET}@nowhere.invalid/x.git", workspace)
    assert error.code == "network-unreachable"
    assert error.message == "the host of https://nowhere.invalid/x.git is not known here"


def test_a_host_that_refuses(workspace: Workspace) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = failure(f"http://user:{SECRET}@127.0.0.1:{port}/x.git", workspace)
    assert (error.code, "cannot be reached" in error.message) == ("network-unreachable", True)


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "git-auth-failed"), (403, "git-auth-failed"), (404, "git-repository-missing"), (503, "git-failed")],
)
def test_what_a_server_answers(httpserver: HTTPServer, workspace: Workspace, status: int, code: str) -> None:
    headers = {"WWW-Authenticate": 'Basic realm="x"'} if status == 401 else {}
    httpserver.expect_request("/x.git/info/refs").respond_with_data("no", status=status, headers=headers)
    url = httpserver.url_for("/x.git").replace("://", f"://user:{SECRET}@")
    assert failure(url, workspace).code == code
    requests = len(httpserver.log)
    assert requests >= (commands.ATTEMPTS if status == 503 else 1)


def test_no_question_is_asked(httpserver: HTTPServer, workspace: Workspace) -> None:
    headers = {"WWW-Authenticate": 'Basic realm="x"'}
    httpserver.expect_request("/x.git/info/refs").respond_with_data("no", status=401, headers=headers)
    assert failure(httpserver.url_for("/x.git"), workspace).code == "git-auth-failed"


def test_a_certificate_that_nobody_signed(tmp_path: Path, workspace: Workspace) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1",
         "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with HTTPServer(ssl_context=context) as server:
        assert failure(f"https://127.0.0.1:{server.port}/x.git", workspace).code == "tls-failed"


@pytest.fixture
def silent() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        for connection in held:
            connection.close()


def test_a_silent_server_does_not_hang_it(silent: int, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_IMPATIENT", ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=1"))
    start = time.monotonic()
    assert failure(f"http://127.0.0.1:{silent}/x.git", workspace).code == "git-timeout"
    assert time.monotonic() - start < 60


def test_a_silent_server_of_another_protocol_is_given_up(
    silent: int, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "ASK_TIMEOUT_S", 1.0)
    assert failure(f"git://127.0.0.1:{silent}/x.git", workspace).code == "git-timeout"


def test_a_folder_that_is_none_or_no_repository(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "plain").mkdir()
    assert failure((tmp_path / "plain").as_uri(), workspace).code == "git-repository-missing"
    assert failure(str(tmp_path / "nothing"), workspace).code == "git-repository-missing"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_clone_of_somebody_else(upstream: Repository, workspace: Workspace) -> None:
    for path in (upstream.path, *upstream.path.rglob("*")):
        os.lchown(path, 12345, 12345)
    assert failure(upstream.url, workspace).code == "git-owner-differs"


def test_programs_as_transport_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    assert failure(f"ext::touch% {tmp_path}/ran", workspace).code == "git-transport-refused"
    assert not (tmp_path / "ran").exists()


def test_a_clone_in_the_place_of_the_address(upstream: Repository, workspace: Workspace, own_git: Path) -> None:
    url = "https://nowhere.invalid/org/engine.git"
    own_git.write_text(f'[url "{upstream.url}"]\n\tinsteadOf = {url}\n')
    assert newest(url, "main", workspace=workspace, waiting=pytest.fail) == upstream.git("rev-parse", "HEAD")


def test_git_may_be_missing(upstream: Repository, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FetchError, match="git-missing"):
        pin.newest(upstream.url, "main", workspace=workspace, waiting=pytest.fail)


def test_what_passes_is_asked_again(httpserver: HTTPServer, workspace: Workspace, upstream: Repository) -> None:
    """A server that fails twice and then speaks the simple protocol over files."""
    upstream.git("update-server-info")
    httpserver.expect_ordered_request("/x.git/info/refs").respond_with_data("no", status=503)
    httpserver.expect_ordered_request("/x.git/info/refs").respond_with_data("no", status=429)
    httpserver.expect_ordered_request("/x.git/info/refs").respond_with_data("no", status=404)
    assert failure(httpserver.url_for("/x.git"), workspace).code == "git-repository-missing"
    assert len(httpserver.log) == 3


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("fatal: write error: No space left on device", "disk-full"),
        ("ssh: Could not resolve hostname x: Name or service not known", "network-unreachable"),
        ("git@host: Permission denied (publickey).\nfatal: Could not read from remote repository.", "git-auth-failed"),
        ("Host key verification failed.", "git-auth-failed"),
        ("ssh: connect to host x port 22: Connection timed out", "git-timeout"),
        ("ERROR: Repository not found.\nfatal: Could not read from remote repository.", "git-repository-missing"),
        ("fatal: unable to access 'https://x/': gnutls_handshake() failed: Error", "tls-failed"),
        ("fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF", "git-failed"),
        ("fatal: mismatched algorithms: client sha1; server sha256", "git-failed"),
        ("something that nobody has seen", "git-failed"),
    ],
)
def test_words_of_git(said: str, code: str) -> None:
    error = faults.named(f"{said}\nfrom https://user:{SECRET}@host/x?token={SECRET}", "ssh://host/x", command="fetch")
    assert error.code == code
    assert SECRET not in str(error.context)


def test_a_full_disk_is_no_damage_of_a_mirror(tmp_path: Path) -> None:
    full = commands.damaged(tmp_path, "error: unable to write file ./objects/pack: No space left on device\nfatal: x")
    assert (full.code, full.where) == ("disk-full", str(tmp_path))
    assert commands.damaged(tmp_path, "fatal: loose object is corrupt").code == "mirror-damaged"
