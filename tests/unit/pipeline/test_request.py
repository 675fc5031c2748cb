"""What a request says again in a hint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sglforge.base import workspace
from sglforge.pipeline.request import Request


def request(
    *argv: str, stack: str | None = None, target: str = "auto", options: Mapping[str, object] | None = None
) -> Request:
    return Request(
        argv=argv,
        catalog_root=Path("/catalog"),
        workspace=workspace.locate(None),
        stack=stack,
        target=target,
        options=options or {},
    )


def test_a_hint_repeats_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLFORGE_HOME", "/default")
    assert request().command("install") == "nox -s install"
    assert request(stack="main", target="cpu").command("build") == "nox -s build -- --stack main --target cpu"
    assert request("--catalog=x").command("plan") == "nox -s plan -- --catalog /catalog"
    elsewhere = Request(argv=(), catalog_root=Path("/c"), workspace=workspace.locate(Path("/my place")))
    assert elsewhere.command("verify") == "nox -s verify -- --workspace '/my place'"


def test_the_package_is_repeated_where_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLFORGE_HOME", "/default")
    other = request(stack="main", target="cpu", options={"package": "torchvision"})
    assert other.command("drift", "--lock", "1.0") == "nox -s drift -- --package torchvision --lock 1.0"
    given = "--stack main --target cpu --package torchvision"
    assert other.command("patch", "--edit", "t") == f"nox -s patch -- {given} --edit t"
    assert other.command("fetch") == "nox -s fetch -- --stack main --target cpu"
    assert request(options={"package": "sglang"}).command("drift") == "nox -s drift"


@pytest.mark.parametrize(("verb", "named"), [("install", True), ("verify", True), ("smoke", True), ("build", False)])
def test_the_name_of_an_environment_is_repeated_where_it_is_taken(verb: str, named: bool) -> None:
    command = request(options={"env": "other"}).command(verb)
    assert command.endswith("--env other") is named
