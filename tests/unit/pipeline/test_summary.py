"""The summary of a run: a table that people read, and a page in which nothing is taken for a mark."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from mini_catalog import FAILS, Mini

from sglforge.base.console import Console, Verbosity
from sglforge.pipeline.summary import append_github_summary, say_summary

TABLE = """\
  step       state  why                                                           seconds  CPU s  peak MiB
  doctor     ok     2 cores                                                       0.0
  build toy  built  yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…  0.0      1.2    34
  build hit  hit    in the store                                                  0.0
"""


def run(out: io.StringIO, *, build: bool = True, verbosity: Verbosity = Verbosity.NORMAL) -> Console:
    shared = Console(stream=out, verbosity=verbosity)
    with shared.step("doctor") as step:
        step.say("2 cores")
    shared.expect(("fetch gone", "build toy", "build hit"))
    shared.passed("build hit", "in the store")
    if build:
        with shared.step("build toy") as step:
            step.took(cpu_s=1.23, peak_mib=34.4)
            step.say("y" * 70)
    out.truncate(0)
    out.seek(0)
    return shared


def test_the_table_has_what_every_step_came_to_in_the_order_of_the_plan() -> None:
    out = io.StringIO()
    say_summary(run(out))
    assert out.getvalue() == TABLE


@pytest.mark.parametrize(("verbosity", "shown"), [(Verbosity.NORMAL, False), (Verbosity.VERBOSE, True)])
def test_where_nothing_was_built_only_v_shows_it(verbosity: Verbosity, shown: bool) -> None:
    out = io.StringIO()
    say_summary(run(out, build=False, verbosity=verbosity))
    assert bool(out.getvalue()) is shown


def test_the_page_is_appended_and_takes_every_text_as_text(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    file.write_text("before\n")
    finding = {
        "severity": "error",
        "code": "x",
        "where": None,
        "message": "a|b <img src=x>\n## c `d`",
        "hint": "[e](f)",
    }
    document = {"verdict": "fail", "findings": [finding] * 101, "environment": {"path": "/w/_e_"}}
    shared = run(io.StringIO())
    append_github_summary(
        shared, document, verb="build", again="nox -s build", environment={"GITHUB_STEP_SUMMARY": str(file)}
    )
    lines = file.read_text().splitlines()
    assert lines[:2] == ["before", "### sglforge build: fail"]
    assert "| build toy | built | " + "y" * 70 + r" | 0\.0 | 1\.2 | 34 |" in lines
    assert "| fetch gone | left |  |  |  |  |" in lines
    assert r"| error | x |  | a\|b &lt;img src=x&gt; \#\# c \`d\` | \[e\]\(f\) |" in lines
    assert lines[-6:] == ["and 1 more findings", "", r"environment /w/\_e\_", "", r"go on with nox \-s build", ""]


@pytest.mark.parametrize("file", ["/dev/full", "/nowhere/summary", "/"])
def test_a_page_that_cannot_be_written_does_no_harm(file: str) -> None:
    append_github_summary(run(io.StringIO()), {}, verb="build", again="x", environment={"GITHUB_STEP_SUMMARY": file})


def test_a_build_that_fails_in_github_actions_says_what_is_done_what_is_left_and_how_to_go_on(tmp_path: Path) -> None:
    mini = Mini(root=tmp_path)
    mini.source("good")
    mini.source("bad", does=FAILS, depends=["good"])
    mini.write()
    ci = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    done = mini.call("build", "bad", env=ci)
    assert done.returncode == 7
    lines = done.stderr.splitlines()
    assert lines[-3:] == [
        "  done: build good",
        "  left: build bad",
        f"  go on with: nox -s build -- bad --catalog {mini.catalog} --workspace {mini.workspace} --target toy",
    ]
    marks = [line.partition("::")[2].partition("::")[0].partition(" ")[0] for line in lines if line.startswith("::")]
    assert marks == ["group", "endgroup", "group", "endgroup", "error"]
    assert "the toy cannot be built" in done.stderr
    page = (tmp_path / "summary").read_text()
    assert page.startswith("### sglforge build: fail\n")
    assert "| build bad | failed |" in page
    assert "| build good | built |" in page


@pytest.mark.parametrize("scheme", ["http", "HTTP", "ftp"])
@pytest.mark.parametrize("joined", [False, True])
def test_nothing_secret_of_an_address_is_said_or_kept(tmp_path: Path, scheme: str, joined: bool) -> None:
    mini = Mini(root=tmp_path)
    mini.source("bad", does=FAILS)
    mini.write()
    address = f"{scheme}://me:hunter2@127.0.0.1:1/store?token=hunter2"
    words = [f"--store={address}"] if joined else ["--store", address]
    ci = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    events = tmp_path / "events"
    done = mini.call("build", "bad", "--json", "--events", events, *words, env={**ci, "SGLFORGE_STORES": address})
    refused = mini.call("install", *words)
    assert (done.returncode, refused.returncode) == (2 if scheme == "ftp" else 7, 2)
    assert f"{scheme.lower()}://127.0.0.1:1/store" in done.stderr
    kept = [path for path in (*mini.workspace.rglob("*"), events, tmp_path / "summary") if path.is_file()]
    assert len(kept) > 3
    said = [done.stdout, done.stderr, refused.stderr, *(path.read_text(errors="replace") for path in kept)]
    assert not [text for text in said if "hunter2" in text]
