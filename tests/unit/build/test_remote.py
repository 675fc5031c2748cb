"""Stores of others, in folders and on real servers: none that is not right poisons, hangs or fails a build."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sglforge.artifacts.wheel import check_wheel
from sglforge.base import files
from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.build import remote
from sglforge.build.entry import Entry, dump
from sglforge.build.remote import Place, borrow, holds, place
from sglforge.build.store import StoredWheel, entry_path, lookup, object_path, verify
from sglforge.errors import CheckError, ConfigError, FetchError, Finding

PARTS = {"package": "toy", "source": "a1"}
KEY = BuildKey(digest(PARTS))
NAME = "toy-1.0+cpu.t1-py3-none-any.whl"
BOUND_S = 15.0


def wheel_of(files: dict[str, str]) -> bytes:
    """Return a zip file with these files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def good_wheel() -> bytes:
    info = "toy-1.0+cpu.t1.dist-info"
    files = {
        "toy/__init__.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0+cpu.t1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, text in files.items():
        hashed = hashlib.sha256(text.encode()).digest()
        import base64

        rows.append(f"{name},sha256={base64.urlsafe_b64encode(hashed).decode().rstrip('=')},{len(text)}\n")
    return wheel_of({**files, f"{info}/RECORD": "".join(rows) + f"{info}/RECORD,,\n"})


WHEEL = good_wheel()


def entry_of(wheel: bytes, **changes: object) -> Entry:
    entry = Entry(
        key=KEY,
        name=NAME,
        size=len(wheel),
        sha256=Sha256(hashlib.sha256(wheel).hexdigest()),
        key_parts=PARTS,
        provenance={"package": "toy", "started": "2026-11-30T00:00:00+00:00"},
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


ENTRY = entry_of(WHEEL)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


class Borrower:
    """Borrows into one workspace and keeps the warnings."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.warnings: list[Finding] = []

    def __call__(self, *places: Place, offline: bool = False) -> StoredWheel | None:
        def check(wheel: Path) -> None:
            if findings := check_wheel(wheel, python_minor="3.11", project="toy", import_name="toy"):
                raise CheckError(code=findings[0].code, message=findings[0].message, findings=findings)

        started = time.monotonic()
        taken = borrow(self.workspace, KEY, list(places), check=check, offline=offline, warn=self.warnings.append)
        assert time.monotonic() - started < BOUND_S, "it does not hang"
        assert not list(self.workspace.scratch.glob("*")), "nothing is left"
        return taken[0] if taken else None

    @property
    def words(self) -> str:
        assert {finding.code for finding in self.warnings} <= {"store-not-used"}
        return " | ".join(finding.message for finding in self.warnings)

    def refuses(self, *places: Place) -> str:
        """Return what is warned of by places of which nothing is taken."""
        assert self(*places) is None
        assert not self.workspace.store.exists(), "nothing of it is kept"
        assert self.warnings
        return self.words


@pytest.fixture
def borrower(workspace: Workspace) -> Borrower:
    return Borrower(workspace)


def fill(folder: Path, entry: Entry = ENTRY, wheel: bytes | None = WHEEL) -> Path:
    """Write a store of one wheel."""
    path = entry_path(folder, KEY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump(entry))
    if wheel is not None:
        final = object_path(folder, entry)
        final.parent.mkdir(parents=True)
        final.write_bytes(wheel)
    return folder


def test_a_wheel_of_a_folder_is_copied_with_its_provenance(borrower: Borrower, tmp_path: Path) -> None:
    folder = fill(tmp_path / "others")
    stored = borrower(place(str(folder)))
    assert stored == lookup(borrower.workspace, KEY)
    assert stored
    assert verify(stored) == ()
    assert stored.path.read_bytes() == WHEEL
    assert stored.provenance == {**ENTRY.document, "copied-from": str(folder)}
    assert borrower.warnings == []
    assert object_path(folder, ENTRY).read_bytes() == WHEEL


@pytest.mark.parametrize("text", ["{}", "file://{}"])
def test_a_workspace_stands_for_its_store(text: str, borrower: Borrower, tmp_path: Path) -> None:
    fill(tmp_path / "theirs" / "store", ENTRY)
    found = place(text.format(tmp_path / "theirs"))
    assert found.folder == tmp_path / "theirs" / "store"
    assert borrower(found)


def test_the_first_place_that_has_a_good_one_is_taken(borrower: Borrower, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    damaged, good = fill(tmp_path / "damaged", wheel=WHEEL[::-1]), fill(tmp_path / "good")
    stored = borrower(*(place(str(folder)) for folder in (tmp_path / "empty", damaged, good, tmp_path / "other")))
    assert stored
    assert stored.provenance["copied-from"] == str(good)
    what = "its wheel is not the one that its entry states"
    assert borrower.words == f"store {damaged} is not used for {KEY[:12]}: {what}"


def no_wheel(folder: Path) -> None:
    fill(folder, wheel=None)


def short_wheel(folder: Path) -> None:
    fill(folder, wheel=WHEEL[:-1])


def long_wheel(folder: Path) -> None:
    fill(folder, wheel=WHEEL + b"x")


def other_wheel(folder: Path) -> None:
    fill(folder, wheel=bytes(len(WHEEL)))


def a_pipe_as_wheel(folder: Path) -> None:
    fill(folder, wheel=None)
    object_path(folder, ENTRY).parent.mkdir(parents=True)
    os.mkfifo(object_path(folder, ENTRY))


def a_pipe_as_entry(folder: Path) -> None:
    (folder / "entries").mkdir(parents=True)
    os.mkfifo(entry_path(folder, KEY))


def a_folder_as_entry(folder: Path) -> None:
    entry_path(folder, KEY).mkdir(parents=True)


def another_key(folder: Path) -> None:
    fill(folder, replace(ENTRY, key=BuildKey("b" * 64)))


def parts_of_another_key(folder: Path) -> None:
    fill(folder, replace(ENTRY, key_parts={**PARTS, "source": "b2"}))


def a_changed_entry(folder: Path) -> None:
    fill(folder)
    path = entry_path(folder, KEY)
    path.write_bytes(path.read_bytes().replace(b"2026-11-30", b"2026-11-29"))


def not_a_wheel(folder: Path) -> None:
    fill(folder, entry_of(b"no zip file"), b"no zip file")


def a_wheel_of_something_else(folder: Path) -> None:
    wheel = wheel_of({"x-1.dist-info/METADATA": "", "x-1.dist-info/WHEEL": "", "x-1.dist-info/RECORD": ""})
    fill(folder, entry_of(wheel), wheel)


def a_bomb(folder: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("toy-1.0.dist-info/RECORD", bytes(65 * 1024 * 1024))
    fill(folder, entry_of(content.getvalue()), content.getvalue())


def nothing_at_all(folder: Path) -> None:
    """There is no such folder."""


def a_file(folder: Path) -> None:
    folder.write_text("no store")


@pytest.mark.parametrize(
    "make",
    [
        no_wheel, short_wheel, long_wheel, other_wheel, a_pipe_as_wheel, a_pipe_as_entry, a_folder_as_entry,
        another_key, parts_of_another_key, a_changed_entry, not_a_wheel, a_wheel_of_something_else, a_bomb,
        nothing_at_all, a_file,
    ],
)  # fmt: skip
def test_a_folder_that_is_not_right_is_a_warning(
    make: Callable[[Path], None], borrower: Borrower, tmp_path: Path
) -> None:
    make(tmp_path / "others")
    assert str(tmp_path / "others") in borrower.refuses(place(str(tmp_path / "others")))


def test_a_disk_that_cannot_be_read_is_a_warning(
    borrower: Borrower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "others")
    plain = files.open_plain

    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(remote, "open_plain", lambda path: Broken() if path.suffix == ".whl" else plain(path))
    assert "cannot be read: Input/output error" in borrower.refuses(place(str(folder)))

    def refused(path: Path) -> io.BufferedReader:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(remote, "open_plain", refused)
    assert "cannot be read: Permission denied" in borrower.refuses(place(str(folder)))


def test_a_place_without_the_key_is_no_fault(borrower: Borrower, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    assert borrower(place(str(tmp_path / "others"))) is None
    assert borrower.warnings == []


def test_what_a_plan_can_say(tmp_path: Path) -> None:
    folder = place(str(fill(tmp_path / "others")))
    assert holds(folder, KEY) is True
    assert holds(folder, BuildKey("b" * 64)) is False
    assert holds(place("http://127.0.0.1:9/store"), KEY) is None
    object_path(tmp_path / "others", ENTRY).unlink()
    assert holds(folder, KEY) is False


@pytest.mark.parametrize("text", ["ftp://host/store", "s3://bucket", "git+https://host"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="store-place-invalid"):
        place(text)


def test_a_file_address_is_a_folder() -> None:
    assert place("file:///mnt/a%20store").folder == Path("/mnt/a store")
    assert place("https://me:secret@host/store/").name == "https://host/store"


class Connection(http.server.BaseHTTPRequestHandler):
    """One request; the test says what the server does with it."""

    protocol_version = "HTTP/1.1"
    server: Loopback

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        serve = self.server.entry if "/entries/" in self.path else self.server.wheel
        serve(self)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


Serve = Callable[[Connection], None]


class Loopback(http.server.ThreadingHTTPServer):
    """A store on the loopback, with one behaviour for entries and one for wheels."""

    daemon_threads = True

    def __init__(self, entry: Serve, wheel: Serve) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.entry, self.wheel = entry, wheel
        self.asked: list[str] = []

    @property
    def place(self) -> Place:
        return place(f"http://127.0.0.1:{self.server_port}/store")

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault."""


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Loopback]]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(remote, "ENTRY_TIME_S", 2.0)
    monkeypatch.setattr(remote, "OBJECT_TIME_S", 2.0)
    monkeypatch.setattr(remote, "SILENCE_S", 1.0)
    servers: list[Loopback] = []

    def start(entry: Serve, wheel: Serve | None = None) -> Loopback:
        servers.append(Loopback(entry, wheel or sends(WHEEL)))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def sends(
    body: bytes, *, status: int = 200, length: int | None = None, headers: tuple[str, str] | None = None
) -> Serve:
    def behave(connection: Connection) -> None:
        connection.send_response(status)
        connection.send_header("Content-Length", str(len(body) if length is None else length))
        if headers:
            connection.send_header(*headers)
        connection.end_headers()
        connection.wfile.write(body)

    return behave


def no_length(body: bytes) -> Serve:
    def behave(connection: Connection) -> None:
        connection.send_response(200)
        connection.end_headers()
        connection.wfile.write(body)

    return behave


def endless(connection: Connection) -> None:
    connection.send_response(200)
    connection.end_headers()
    for _ in range(4000):
        connection.wfile.write(b"[" * 65536)


def drips(connection: Connection) -> None:
    connection.send_response(200)
    connection.send_header("Content-Length", "10000")
    connection.end_headers()
    for _ in range(100):
        connection.wfile.write(b"x")
        connection.wfile.flush()
        time.sleep(0.2)


def drips_headers(connection: Connection) -> None:
    connection.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(100):
        connection.wfile.write(b"x")
        connection.wfile.flush()
        time.sleep(0.2)


def drips_chunks(connection: Connection) -> None:
    connection.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n")
    for _ in range(100):
        connection.wfile.write(b"x")
        connection.wfile.flush()
        time.sleep(0.2)


def hangs(connection: Connection) -> None:
    time.sleep(20)


def hangs_up(connection: Connection) -> None:
    connection.connection.shutdown(socket.SHUT_RDWR)


def circles(connection: Connection) -> None:
    sends(b"", status=302, headers=("Location", connection.path))(connection)


def to_a_file(connection: Connection) -> None:
    sends(b"", status=302, headers=("Location", "file:///etc/passwd"))(connection)


def nonsense(connection: Connection) -> None:
    connection.wfile.write(b"\x00\xff nothing that HTTP knows\r\n\r\n")


def entry_bytes(**changes: object) -> bytes:
    """Return an entry whose own hash fits, whatever it says."""
    body = json.loads(dump(ENTRY))
    del body["sha256"]
    body |= changes
    return json.dumps({**body, "sha256": digest(body)}).encode()


def wheel_entry(**changes: object) -> bytes:
    return entry_bytes(wheel={"name": NAME, "size": len(WHEEL), "sha256": ENTRY.sha256} | changes)


GOOD = sends(dump(ENTRY))


def test_a_wheel_of_a_server_is_taken(serve: Callable[..., Loopback], borrower: Borrower) -> None:
    server = serve(GOOD)
    stored = borrower(server.place)
    assert stored
    assert stored.path.read_bytes() == WHEEL
    assert stored.provenance["copied-from"] == server.place.name
    assert server.asked == [f"/store/entries/{KEY}.json", f"/store/objects/{ENTRY.sha256}/{NAME.replace('+', '%2B')}"]
    assert borrower.warnings == []


def test_a_server_without_the_key_is_no_fault(serve: Callable[..., Loopback], borrower: Borrower) -> None:
    assert borrower(serve(sends(b"not here", status=404)).place) is None
    assert borrower.warnings == []


ENTRIES: dict[str, Serve] = {
    "500": sends(b"", status=500),
    "403": sends(b"", status=403),
    "HTML with 200": sends(b"<html><body>Please log in</body></html>", headers=("Content-Type", "text/html")),
    "nothing": sends(b""),
    "truncated": sends(dump(ENTRY)[:50], length=len(dump(ENTRY))),
    "cut, and no length says so": no_length(dump(ENTRY)[:-20]),
    "huge": sends(b'{"x": "' + b"y" * 5_000_000 + b'"}'),
    "deep": sends(b"[" * 1_000_000),
    "deep, and hashed": sends(b'{"schema": 1, "sha256": "", "key": ' + b"[" * 900 + b"]" * 900 + b"}"),
    "not UTF-8": sends(b"\xff\xfe\x00"),
    "a number without end": sends(b"1" * 100_000),
    "endless": endless,
    "a byte now and then": drips,
    "headers, a byte now and then": drips_headers,
    "chunks, a byte now and then": drips_chunks,
    "hangs": hangs,
    "hangs up": hangs_up,
    "circles": circles,
    "to a file": to_a_file,
    "nonsense": nonsense,
    "gzip": sends(b"\x1f\x8b" + bytes(100), headers=("Content-Encoding", "gzip")),
    "another key": sends(entry_bytes(key="b" * 64)),
    "other parts": sends(entry_bytes(**{"key-parts": {"package": "toy", "source": "b2"}})),
    "another schema": sends(entry_bytes(schema=99)),
    "no wheel": sends(entry_bytes(wheel=None)),
    "a name that leads out": sends(wheel_entry(name="../../x.whl")),
    "an absolute name": sends(wheel_entry(name="/etc/x.whl")),
    "a name with a line end": sends(wheel_entry(name="x\n.whl")),
    "no wheel's name": sends(wheel_entry(name="x.sh")),
    "a hash that leads out": sends(wheel_entry(sha256="../" * 21 + "x")),
    "a negative size": sends(wheel_entry(size=-1)),
    "a size that is none": sends(wheel_entry(size="5")),
    "lone surrogate": sends(b'{"schema": 1, "sha256": "x", "key": "\\ud800"}'),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_server_whose_entry_is_not_right_is_a_warning(
    name: str, serve: Callable[..., Loopback], borrower: Borrower
) -> None:
    server = serve(ENTRIES[name])
    assert server.place.name in borrower.refuses(server.place)
    assert not any("/objects/" in path for path in server.asked), "its wheel is not asked for"


WHEELS: dict[str, Serve] = {
    "404": sends(b"", status=404),
    "503": sends(b"", status=503),
    "HTML with 200": sends(b"<html></html>"),
    "nothing": sends(b""),
    "other content of that size": sends(bytes(len(WHEEL))),
    "truncated": sends(WHEEL[:-100], length=len(WHEEL)),
    "cut, and no length says so": no_length(WHEEL[:-100]),
    "a length that is too short": sends(WHEEL, length=len(WHEEL) - 5),
    "longer than stated": sends(WHEEL + bytes(1000)),
    "longer, and no length says so": no_length(WHEEL + bytes(1000)),
    "a length of gigabytes": sends(WHEEL, length=10**12),
    "endless": endless,
    "a byte now and then": drips,
    "headers, a byte now and then": drips_headers,
    "chunks, a byte now and then": drips_chunks,
    "hangs": hangs,
    "hangs up": hangs_up,
    "circles": circles,
    "to a file": to_a_file,
    "nonsense": nonsense,
}


@pytest.mark.parametrize("name", WHEELS)
def test_a_server_whose_wheel_is_not_right_is_a_warning(
    name: str, serve: Callable[..., Loopback], borrower: Borrower
) -> None:
    server = serve(GOOD, WHEELS[name])
    assert server.place.name in borrower.refuses(server.place)
    assert any("/objects/" in path for path in server.asked)


def test_a_wheel_that_fails_its_check_is_not_taken(serve: Callable[..., Loopback], borrower: Borrower) -> None:
    wheel = wheel_of({"toy-1.0.dist-info/METADATA": "", "toy-1.0.dist-info/WHEEL": ""})
    server = serve(sends(dump(entry_of(wheel))), sends(wheel))
    assert "Wheel-Version" in borrower.refuses(server.place)


@pytest.mark.parametrize("behaviour", [hangs, drips, endless])
def test_a_place_that_is_of_no_use_is_given_up_for_the_run(
    behaviour: Serve, serve: Callable[..., Loopback], borrower: Borrower
) -> None:
    found = serve(behaviour).place
    assert "it is not asked again" in borrower.refuses(found)
    assert found.given_up
    started = time.monotonic()
    assert borrower(found) is None
    assert time.monotonic() - started < 0.5
    assert len(borrower.warnings) == 1


def test_nobody_there_is_a_warning(serve: Callable[..., Loopback], borrower: Borrower) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert "Connection refused" in borrower.refuses(place(f"http://127.0.0.1:{port}"))


def test_a_listener_that_never_answers_is_a_warning(serve: Callable[..., Loopback], borrower: Borrower) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "does not answer" in borrower.refuses(place(f"http://127.0.0.1:{silent.getsockname()[1]}"))


def test_offline_uses_folders_and_no_network(
    serve: Callable[..., Loopback], borrower: Borrower, tmp_path: Path
) -> None:
    server = serve(GOOD)
    assert borrower(server.place, offline=True) is None
    assert server.asked == []
    assert borrower(server.place, place(str(fill(tmp_path / "others"))), offline=True)


def test_a_full_disk_of_our_own_is_no_fault_of_the_place(
    serve: Callable[..., Loopback], borrower: Borrower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise FetchError(code="disk-full", message="cannot write: No space left on device")

    monkeypatch.setattr(remote, "download", full)
    with pytest.raises(FetchError, match="disk-full"):
        borrower(serve(GOOD).place)
