"""What uv is told, and how its failures are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Completed, failed
from sglforge.errors import SglforgeError
from sglforge.provision.uv import Uv, open_uv


def test_only_what_does_not_change_the_outcome_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
    monkeypatch.setenv("UV_CONSTRAINT", "/somewhere.txt")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "7")
    monkeypatch.setenv("VIRTUAL_ENV", "/some/venv")
    monkeypatch.setenv("PYTHONPATH", "/some/path")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    environment = open_uv(IndexLocations(find_links=("/wheels",))).environment
    assert not environment.keys() & {"UV_TORCH_BACKEND", "UV_CONSTRAINT", "VIRTUAL_ENV", "PYTHONPATH"}
    assert environment["UV_HTTP_TIMEOUT"] == "7"
    assert environment["SOMETHING_ELSE"] == "kept"
    assert environment["UV_FIND_LINKS"] == "/wheels"
    assert environment["UV_PYTHON_DOWNLOADS"] == "never"
    assert "UV_OFFLINE" not in environment


@pytest.mark.parametrize(("set_to", "offline"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_offline_comes_from_the_caller_or_the_user(
    monkeypatch: pytest.MonkeyPatch, set_to: str, *, offline: bool
) -> None:
    monkeypatch.setenv("UV_OFFLINE", set_to)
    assert open_uv(IndexLocations()).offline is offline
    assert open_uv(IndexLocations(), offline=True).environment["UV_OFFLINE"] == "1"


def test_constraints_count_only_while_resolving(tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def run(argv: list[str | Path], **_: object) -> Completed:
        commands.append([str(word) for word in argv[1:]])
        return Completed(argv=(), returncode=0, stdout="", stderr="", seconds=0.0)

    locations = IndexLocations(no_index=True, constraints=(tmp_path / "c.txt",))
    uv = Uv(program=Path("uv"), locations=locations, environment={}, offline=False, run=run)  # type: ignore[arg-type]
    uv("pip", "compile", "in")
    uv("pip", "install", "x")
    uv("venv", "y")
    constraints = ["--constraints", str(tmp_path / "c.txt")]
    assert commands == [
        ["pip", "compile", "--no-index", *constraints, "in"],
        ["pip", "install", "--no-index", "x"],
        ["venv", "y"],
    ]


@pytest.mark.parametrize(
    ("said", "code", "exit_code"),
    [
        (
            "  cause: Network connectivity is disabled, but the requested data wasn't found in the cache",
            "offline-missing",
            5,
        ),
        ("because the network was disabled and x was not found in the cache", "offline-missing", 5),
        ("error: Hash mismatch for `toydep==1.2`", "hash-mismatch", 5),
        ("  cause: client error (Connect)\n  cause: dns error", "network-unreachable", 5),
        ("error: Failed to fetch: `http://127.0.0.1/x`\n  cause: operation timed out", "network-unreachable", 5),
        ("error: No solution found when resolving\n  cause: there is no version of x==1", "not-on-index", 5),
        ("failed to copy: No space left on device (os error 28)", "disk-full", 9),
        ("error: something that nobody has seen", "uv-failed", 9),
    ],
)
def test_failures_have_names(said: str, code: str, exit_code: int) -> None:
    def run(argv: list[str | Path], **_: object) -> Completed:
        raise failed(Completed(argv=("uv", "pip"), returncode=2, stdout="", stderr=said, seconds=0.1))

    uv = Uv(program=Path("uv"), locations=IndexLocations(), environment={}, offline=False, run=run)  # type: ignore[arg-type]
    with pytest.raises(SglforgeError) as caught:
        uv("pip", "install", "x")
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert said.splitlines()[-1].strip() in caught.value.context["uv said"]
