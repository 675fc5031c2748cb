"""The verb check: one document about any number of files, an exit code by its verdict, and nothing left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from calling import Called, argv, call
from gpu_files import container, cubin, library, wheel_of

TAGS = "py3-none-linux_x86_64"


class Checker:
    """Calls check for the target sm120 with a workspace of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "workspace"

    def __call__(self, *words: str | Path) -> Called:
        return call("check", "--target", "sm120", *words, workspace=self.workspace)

    def codes(self, *words: str | Path) -> tuple[int, list[str]]:
        done = self(*words)
        findings: Any = done.document["findings"]
        return done.code, [one["code"] for one in findings if one["severity"] != "info"]

    def made(self, name: str, *containers: bytes, **more: Any) -> Path:
        return library(self.folder / name, *containers, **more)


def files(done: Called) -> list[dict[str, Any]]:
    found = done.document["files"]
    assert isinstance(found, list)
    return found


@pytest.fixture
def check(tmp_path: Path) -> Checker:
    return Checker(tmp_path)


def test_a_library_that_fits(check: Checker) -> None:
    done = check(check.made("good.so", container("120f", "ptx:90")))
    assert (done.code, done.document["verdict"], done.document["gpus"]) == (0, "pass", ["12.0"])
    (file,) = files(done)
    (binary,) = file["binaries"]
    assert (binary["sass"], binary["ptx"], binary["units"]) == (["sm_120f"], ["compute_90"], 1)
    assert binary["unresolved"] is None
    assert list((check.workspace / "scratch").iterdir()) == []


def test_each_file_is_judged(check: Checker) -> None:
    good, bad = check.made("good.so", container("120f")), check.made("bad.so", container("90a"))
    done = check(good, bad)
    assert done.code == 8
    assert [file["verdict"] for file in files(done)] == ["pass", "fail"]


def test_a_wheel(check: Checker) -> None:
    path = check.made("x.so", container("90a"))
    wheel = wheel_of(check.folder, {"toy_gpu/x.so": path}, name=f"toy_gpu-1.0-{TAGS}.whl")
    assert check.codes(wheel) == (8, ["so-missing-arch"])
    assert check.codes(wheel, "--gpu", "9.0") == (0, [])
    assert check.codes(wheel, "--gpu", "9.0,12.0") == (8, ["so-missing-arch"])


def test_symbols_are_looked_up_in_a_folder_that_is_named(check: Checker) -> None:
    site = check.folder / "venv" / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    path = check.made("x.so", body="int nowhere(void); int call(void) { return nowhere(); }")
    assert check.codes(path) == (0, [])
    assert check.codes(path, "--site", check.folder / "venv") == (8, ["so-own-undefined-symbol"])
    assert check.codes(path, "--site", site) == (8, ["so-own-undefined-symbol"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--gpu", "120f"], "usage"),
        (["--claim", "fp5"], "usage"),
        (["gone.whl"], "file-missing"),
        (["--env", "gone"], "environment-not-installed"),
    ],
)
def test_what_cannot_be_asked(check: Checker, words: list[str], code: str) -> None:
    done, found = check.codes(check.made("x.so"), *words)
    assert found == [code]
    assert done in {2, 9}


def test_a_claim_without_cuobjdump_is_no_pass(check: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = check(check.made("x.so", container("120f")), "--claim", "*.so=fp4-convert")
    assert (done.code, done.document["verdict"]) == (8, "inconclusive")


def test_what_is_no_wheel_or_library_is_said(check: Checker) -> None:
    odd = {
        "empty.so": b"",
        "script.so": b"INPUT(libc.so.6)",
        "cut.so": b"\x7fELF\x02\x01\x01",
        "toy-1.0-py3-none-any.whl": b"PK\x03\x04",
        "no-wheel.whl": b"x",
        "a\nb\x1b[31m.so": b"x",
        "kernel.cubin": cubin(120)[:100],
    }
    for name, content in odd.items():
        (check.folder / name).write_bytes(content)
    done = check(*(check.folder / name for name in odd))
    assert done.code == 8
    assert [file["verdict"] for file in files(done)] == ["fail"] * len(odd)
    assert "\x1b[31m" not in done.talk


def test_a_name_steers_no_terminal(check: Checker) -> None:
    odd = check.made("good.so", container("120f")).rename(check.folder / "new\nline\x1b[31m.so")
    words = argv("check", "--target", "sm120", odd, "--workspace", check.workspace)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[0].endswith("new\\nline\\x1b[31m.so")
