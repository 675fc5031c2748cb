"""base.console: one line per step, plain where nobody watches."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from screen import Shown, run_in_terminal

from sglforge.base import console
from sglforge.base.console import Console, Verbosity
from sglforge.base.dialects import Dialect, GitHub, GitLab, Plain, dialect_of, markdown
from sglforge.errors import BuildError, Finding, Severity


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


def test_what_a_step_says_and_what_others_say_never_mix_within_a_line() -> None:
    out = io.StringIO()
    shared = Console(stream=out)

    def work(number: int) -> None:
        for turn in range(50):
            shared.line(f"<{number} {turn}>")
            with shared.step(f"[{number} {turn}]"):
                pass

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4
    lines = out.getvalue().splitlines()
    assert len(lines) == 400
    assert all(re.fullmatch(r"<\d \d+>|  ok    \[\d \d+\]  \(\d\.\d s\)", line) for line in lines)


def failing_step(shared: Console, log: Path) -> None:
    log.write_text("$ cc x.c\n::error::forged\n\x1b[31mx.c:1: no\x1b[0m ##[error]forged\nsection_start:1:x\r\n")
    with suppress(BuildError), shared.step("build toy") as step:
        step.progress(1, 10, note="unpack 1")
        step.progress(2, 10, note="unpack 2")
        step.progress(note="compile")
        raise BuildError(code="build-backend-failed", message="m", log=str(log))


def said(dialect: Dialect, tmp_path: Path) -> str:
    out = io.StringIO()
    shared = Console(stream=out, dialect=dialect)
    with shared.step("fetch toy") as step:
        step.say("1 MB")
    failing_step(shared, tmp_path / "log")
    finding = Finding(
        code="patch-drifted",
        severity=Severity.WARNING,
        message="50 % of it\n::error::forged",
        where="/checkout/patches/a,b.toml:7",
        detail=("::stop-commands::x",),
        hint="nox -s drift",
    )
    shared.finding(finding)
    text = re.sub(r"\d+\.\d s", "0.0 s", out.getvalue())
    return re.sub(r"(section_(?:start|end)):\d+:sglforge_\w+", r"\1:0:sglforge_x", text)


PLAIN = """\
  ok    fetch toy                    1 MB  (0.0 s)
  FAIL  build toy  (0.0 s)
    | $ cc x.c
    | ::error::forged
    | x.c:1: no ##[error]forged
    | section_start:1:x
warning: /checkout/patches/a,b.toml:7: 50 % of it
::error::forged [patch-drifted]
    ::stop-commands::x
  next: nox -s drift
"""
GITHUB = """\
  ok    fetch toy                    1 MB  (0.0 s)
::group::  FAIL  build toy  (0.0 s)
         0.0 s  unpack 1
         0.0 s  compile
    | $ cc x.c
    | ::error::forged
    | x.c:1: no # #[error]forged
    | section_start:1:x
::endgroup::
::warning title=patch-drifted,file=patches/a%2Cb.toml,line=7::\
/checkout/patches/a,b.toml:7: 50 %25 of it%0A::error::forged [patch-drifted]
|     ::stop-commands::x
  next: nox -s drift
"""
GITLAB = """\
  ok    fetch toy                    1 MB  (0.0 s)
\x1b[0Ksection_start:0:sglforge_x[collapsed=true]\r\x1b[0K  FAIL  build toy  (0.0 s)
         0.0 s  unpack 1
         0.0 s  compile
    | $ cc x.c
    | ::error::forged
    | x.c:1: no ##[error]forged
    | section_start:1:x
\x1b[0Ksection_end:0:sglforge_x\r\x1b[0K
warning: /checkout/patches/a,b.toml:7: 50 % of it
::error::forged [patch-drifted]
    ::stop-commands::x
  next: nox -s drift
"""


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [(Plain(), PLAIN), (GitHub(root=Path("/checkout")), GITHUB), (GitLab(), GITLAB)],
    ids=["plain", "github", "gitlab"],
)
def test_the_same_talk_in_every_dialect(dialect: Dialect, expected: str, tmp_path: Path) -> None:
    assert said(dialect, tmp_path) == expected


def test_groups_of_steps_that_run_at_once_do_not_nest() -> None:
    out, both = io.StringIO(), threading.Barrier(2)
    shared = Console(stream=out, dialect=GitHub())

    def work(name: str) -> None:
        with shared.step(name) as step:
            both.wait(10)
            step.progress(note="a phase")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, ("one", "two"))) == [None, None]
    marks = [line.split("::")[1] for line in out.getvalue().splitlines() if line.startswith("::")]
    assert marks == ["group", "endgroup"] * 2


@given(st.text())
@example("\u2028::set-output")
def test_no_text_is_a_command_to_the_runner(text: str) -> None:
    for line in GitHub().harmless(text).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line
    finding = Finding(code="x", severity=Severity.ERROR, message=text, where=f"{text}:1")
    assert len(GitHub().headline(finding).splitlines()) == 1
    assert GitHub().headline(finding).startswith("::error title=x,file=")


@given(st.text())
def test_a_markdown_cell_stays_one(text: str) -> None:
    cell = markdown(text)
    assert "\n" not in cell
    assert not re.search(r"(?<!\\)[|`*_<>\[\]]", cell)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Plain()),
        ({"GITHUB_ACTIONS": "false"}, Plain()),
        ({"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": "/w"}, GitHub(root=Path("/w"))),
        ({"GITLAB_CI": "true"}, GitLab()),
    ],
)
def test_the_dialect_is_that_of_the_ci_system(environment: dict[str, str], expected: Dialect) -> None:
    assert dialect_of(environment) == expected


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("live", [True, False])
def test_a_log_that_is_full_or_closed_harms_no_step(live: bool) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Full(), closed):
        ran = []
        shared = Console(stream=stream, live=live)
        with shared.step("a") as step:
            step.progress(1, 2, note="x")
            shared.line("talk")
            ran.append(True)
        assert ran == [True]


TWO_STEPS = """
import threading, time
from sglforge.base.console import Verbosity, for_terminal
console = for_terminal(Verbosity.NORMAL)
def work(name, end):
    with console.step(name) as step:
        turn = 0
        while not end.wait(0.05):
            turn += 1
            step.progress(turn, 1000, note=f"{turn} MB of a file with a long name, longer than some terminals")
        step.say("done")
ends = [threading.Event(), threading.Event()]
threads = [threading.Thread(target=work, args=words) for words in zip(("fetch one", "build two"), ends)]
for thread in threads: thread.start()
time.sleep(0.5)
console.line("a word in between")
time.sleep(0.3)
for thread, end in zip(threads, ends):
    end.set()
    thread.join()
console.line("the end")
"""


def watched(columns: int, variables: Mapping[str, str] | None = None, *, resized: int | None = None) -> Shown:
    away = {"CI", "NO_COLOR", "COLUMNS", "LINES", "GITHUB_ACTIONS", "GITLAB_CI"}
    kept = {name: value for name, value in os.environ.items() if name not in away}
    env = {**kept, "TERM": "xterm-256color", **(variables or {})}
    return run_in_terminal([sys.executable, "-c", TWO_STEPS], columns=columns, env=env, resized=resized)


ENDED = r"""a word in between
  ok    fetch one +done  \(\d+\.\d s\)
  ok    build two +done  \(\d+\.\d s\)
the end"""


@pytest.mark.parametrize("columns", [100, 60])
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_a_terminal_shows_the_steps_that_run_and_keeps_the_lines(columns: int, variables: dict[str, str]) -> None:
    shown = watched(columns, variables)
    assert shown.code == 0
    assert re.fullmatch(ENDED, shown.screen), shown.screen
    frames = shown.raw.split("\x1b[2K")
    assert any(
        "fetch one" in frame and "build two" in frame
        for frame in ("".join(frames[i : i + 2]) for i in range(len(frames)))
    )
    assert ("\x1b[3" in shown.raw) is not bool(variables)


def test_on_a_narrow_terminal_no_step_takes_more_than_a_line() -> None:
    shown = watched(30)
    assert shown.code == 0
    told = re.sub(r"\s+", " ", shown.screen)
    assert re.fullmatch(
        r"a word in between ok fetch one done \(\d+\.\d s\) ok build two done \(\d+\.\d s\) the end", told
    )


def test_a_terminal_that_is_made_wider_goes_on() -> None:
    shown = watched(60, resized=120)
    assert shown.code == 0
    assert shown.screen.endswith("the end")


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"CI": "true"}])
def test_a_terminal_that_cannot_or_should_not_gets_plain_lines(variables: dict[str, str]) -> None:
    shown = watched(100, variables)
    assert "\x1b" not in shown.raw
    assert re.fullmatch(ENDED, shown.screen)
