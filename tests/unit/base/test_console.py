"""base.console: one line per step, plain where nobody watches."""

from __future__ import annotations

import io
import re

import pytest

from sglforge.base import console
from sglforge.base.console import Console, Verbosity


def test_a_step_is_one_line_with_summary_and_time() -> None:
    out = io.StringIO()
    with Console(stream=out).step("fetch sglang") as step:
        step.progress(1, 2)
        step.say("38 MB")
    assert re.fullmatch(r"  ok    fetch sglang +38 MB  \(\d+\.\d s\)\n", out.getvalue())


def test_a_step_that_fails_says_so_and_the_error_goes_on() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="x"), Console(stream=out).step("build"):
        raise ValueError("x")
    assert out.getvalue().startswith("  FAIL  build")


def test_a_step_that_ended_badly_without_an_exception_says_so() -> None:
    out = io.StringIO()
    with Console(stream=out).step("patch") as step:
        step.say("1 conflict")
        step.failed = True
    assert out.getvalue().startswith("  FAIL  patch")


def test_a_long_step_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "ALIVE_EVERY_S", 0.0)
    out = io.StringIO()
    with Console(stream=out).step("smoke") as step:
        step.progress(1, 4, note="loading weights")
    assert "  ..  smoke 25% loading weights  (0 s)\n" in out.getvalue()


def test_quiet_says_errors_only() -> None:
    out = io.StringIO()
    quiet = Console(stream=out, verbosity=Verbosity.QUIET)
    with quiet.step("x"):
        quiet.line("talk")
        quiet.detail("more talk")
        quiet.error("wrong")
    assert out.getvalue() == "wrong\n"


def test_a_live_step_still_ends_in_its_line() -> None:
    out = io.StringIO()
    with Console(stream=out, live=True).step("fetch [red]x[/red]") as step:
        step.progress(5, 10, note="5 MB")
        step.say("done")
    assert "  ok    fetch [red]x[/red]" in out.getvalue()


def test_columns_are_aligned() -> None:
    out = io.StringIO()
    Console(stream=out).table(("name", "state"), [("sglang", "hit"), ("x", "miss")])
    assert out.getvalue().splitlines() == ["  name    state", "  sglang  hit", "  x       miss"]
