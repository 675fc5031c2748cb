"""Which rule stopped a build, told from its last words."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.build.stepfaults import named

LOG = Path("build.log")


def code(output: str, own: Path = Path("/nowhere")) -> str | None:
    error = named(output, "toy", own=(own,), log=LOG)
    return error.code if error else None


@pytest.mark.parametrize(
    "line",
    [
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "curl: (6) Could not resolve host: files.example.org",
        "fatal: unable to access 'https://example.org/x.git/': Could not resolve proxy: nowhere",
        "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
        "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
        "urllib.error.URLError: <urlopen error [Errno 13] Permission denied>",
        "  failed to lookup address information: Name or service not known",
        "fatal: transport 'https' not allowed",
        "error: attempting to make an HTTP request, but --offline was specified",
        "wget: unable to connect to remote host",
    ],
)
def test_who_asks_for_the_network_is_told(line: str) -> None:
    assert code(f"building\n{line}\nninja: build stopped\n") == "build-needs-network"


@pytest.mark.parametrize(
    "line",
    [
        "PermissionError: [Errno 13] Permission denied: '{}'",
        "OSError: [Errno 30] Read-only file system: '{}'",
        "mkdir: cannot create directory \u2018{}\u2019: Permission denied",
        "touch: cannot touch '{}': Read-only file system",
        "/bin/sh: 1: cannot create {}: Permission denied",
        "c++: fatal error: cannot open {}: Permission denied",
    ],
)
def test_who_writes_outside_is_told_where(line: str, tmp_path: Path) -> None:
    place = tmp_path / "theirs" / "file.txt"
    error = named(f"building\n{line.format(place)}\nstopped\n", "toy", own=(tmp_path / "own",), log=LOG)
    assert error is not None
    assert error.code == "build-writes-outside"
    assert f"writes to {place}," in error.message
    assert error.context["output"].endswith("stopped")


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device",
        "ld: final link failed: No space left on device",
        "fatal error: error writing to /x/a.s: Disk quota exceeded",
    ],
)
def test_a_full_disk_is_told_from_a_broken_backend(line: str) -> None:
    error = named(f"compiling\n{line}\nstopped\n", "toy", own=(), log=LOG)
    assert error is not None
    assert (error.code, line in error.message, str(LOG) in error.hint) == ("disk-full", True, True)


def test_a_fault_in_its_own_folder_is_none_of_the_rules(tmp_path: Path) -> None:
    place = tmp_path / "own" / "file.txt"
    assert code(f"PermissionError: [Errno 13] Permission denied: '{place}'", tmp_path / "own") is None


def test_what_we_may_not_write_either_is_none_of_the_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = f"PermissionError: [Errno 13] Permission denied: '{tmp_path}/a'"
    assert code(line) == "build-writes-outside"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert code(line) is None


@pytest.mark.parametrize(
    "line",
    ["/bin/sh: 1: ./configure: Permission denied", "error: no such file: x.h", "make: *** [all] Error 1", ""],
)
def test_other_faults_are_left_alone(line: str) -> None:
    assert code(line) is None


def test_only_the_end_counts_and_the_last_word_wins(tmp_path: Path) -> None:
    network = "curl: (6) Could not resolve host: example.org"
    write = f"touch: cannot touch '{tmp_path}/x': Permission denied"
    assert code(f"{network}\n{write}") == "build-writes-outside"
    assert code(f"{write}\n{network}") == "build-needs-network"
    assert code(network + "\nfine" * 500) is None
