"""base.eventstream: whole lines, wherever they go, and nothing that stops the writer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sglforge.base import eventstream
from sglforge.base.eventstream import open_stream
from sglforge.errors import ConfigError


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("before\n")
    stream = open_stream(path)
    stream.write(b"one\n")
    assert path.read_text() == "before\none\n"
    stream.close()
    stream.write(b"late\n")
    assert path.read_text() == "before\none\n"


def test_a_fifo_without_a_reader_is_refused_soon(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventstream, "READER_WITHIN_S", 0.2)
    start = time.monotonic()
    with pytest.raises(ConfigError, match="events-without-reader"):
        open_stream(fifo)
    assert time.monotonic() - start < 5


def test_a_reader_that_comes_a_moment_later_is_waited_for(fifo: Path) -> None:
    read: list[str] = []
    reader = threading.Timer(0.3, lambda: read.append(fifo.read_text()))
    reader.start()
    stream = open_stream(fifo)
    stream.write(b"one\n")
    stream.close()
    reader.join()
    assert read == ["one\n"]


def test_a_reader_that_goes_away_is_forgotten(fifo: Path) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    stream = open_stream(fifo)
    stream.write(b"one\n")
    assert os.read(reader, 100) == b"one\n"
    os.close(reader)
    stream.write(b"two\n")
    stream.write(b"three\n")
    stream.close()


def test_a_reader_that_reads_nothing_stops_nobody_and_gets_whole_lines(
    fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventstream, "BACKLOG_LINES", 100)
    monkeypatch.setattr(eventstream, "LAST_WORDS_WITHIN_S", 0.2)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    stream, start = open_stream(fifo), time.monotonic()
    for number in range(2000):
        stream.write(f"{number:>99}\n".encode())
    assert time.monotonic() - start < 5
    told = _drain(reader)
    stream.write(b"after\n")
    told += _drain(reader)
    stream.close()
    told += _drain(reader)
    os.close(reader)
    lines = told.split(b"\n")
    assert lines[-1] == b""
    assert lines[:-2] == [f"{number:>99}".encode() for number in range(len(lines) - 2)]
    assert len(lines) > 600


def _drain(descriptor: int) -> bytes:
    read = b""
    try:
        while chunk := os.read(descriptor, 65536):
            read += chunk
    except BlockingIOError:
        pass
    return read


def test_what_is_no_place_for_events_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "file", Path("/dev/fd/873")):
        with pytest.raises(ConfigError, match="output-not-written"):
            open_stream(path)


def test_a_device_that_is_full_loses_events_only() -> None:
    stream = open_stream(Path("/dev/full"))
    stream.write(b"one\n")
    stream.write(b"two\n")
    stream.close()


def test_an_open_descriptor_is_written_to(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stream = open_stream(Path(f"/dev/fd/{writer}"))
    stream.write(b"one\n")
    assert os.read(reader, 100) == b"one\n"
    assert os.get_blocking(writer), "the descriptor of whoever called is left as it is"
    for descriptor in (reader, writer):
        os.close(descriptor)
    stream.close()


def test_a_file_that_cannot_grow_keeps_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events"
    script = (
        "import os, resource, sys; from pathlib import Path; from sglforge.base.eventstream import open_stream\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (25, 25)); stream = open_stream(Path(sys.argv[1]))\n"
        "for line in (b'123456789\\n', b'abcdefghi\\n', b'ABCDEFGHI\\n', b'xy\\n'): stream.write(line)\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert path.read_text() == "123456789\nabcdefghi\nxy\n"
