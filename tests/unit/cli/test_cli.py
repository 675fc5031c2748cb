"""The command as a process: what it prints where, and how it ends."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglforge import cli, pipeline
from sglforge.base.console import Console
from sglforge.pipeline.request import Outcome, Request

ROOT = Path(__file__).parents[3]


def sglforge(
    *words: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sglforge", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
        timeout=120,
    )


def codes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [finding["code"] for finding in json.loads(done.stdout)["findings"]]


@pytest.mark.parametrize(
    "words", [[], ["no-such-verb"], ["build", "--no-such-option"], ["build", "--tar", "cpu"], ["render"]]
)
def test_a_wrong_command_line_is_a_fault_with_a_hint(words: list[str]) -> None:
    done = sglforge(*words)
    assert done.returncode == 2
    assert "[usage]" in done.stderr
    assert "--help" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["biuld"], "no verb `biuld`", "did you mean `build`?"),
        (["build", "--tagret", "cpu"], "`--tagret", "did you mean `--target`? (sglforge build --help)"),
        (["plan", "--zzz"], "`--zzz`", "sglforge plan --help"),
        (["plan", "stray"], "`stray`", "sglforge plan --help"),
        (["--json", "plan"], "before the verb", "come after"),
        (["build", "--python", ""], "--python: it is empty", "sglforge build --help"),
        (["smoke", "--probe="], "--probe: it is empty", "sglforge smoke --help"),
        (["store", "gc", "--keep-days", "-1"], "'-1' is no number of days", "sglforge store gc --help"),
        (["store", "gc", "--keep-days=nan"], "'nan' is no number of days", "sglforge store gc --help"),
        (["store", "gc", "--keep-days=soon"], "'soon' is no number of days", "sglforge store gc --help"),
        (["smoke", ""], "PROFILE: it is empty", "sglforge smoke --help"),
        (["plan", "--workspace", " "], "--workspace: it is empty", "sglforge plan --help"),
    ],
)
def test_the_hint_about_a_wrong_command_line_is_of_use(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert cli.run(words) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    talk = capsys.readouterr().err
    assert message in talk
    assert hint in talk
    assert "[usage]" in talk


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["smoke", "--probe", "started,fatcs"], "unknown-probe"),
        (["build", "sglagn"], "unknown-package"),
        (["lock", "--update", "pydantc"], "unknown-package"),
        (["patch", "--topic", "cpu-overlap"], "unknown-topic"),
    ],
)
def test_a_name_that_does_not_exist_is_told_before_anything_is_done(
    words: list[str], code: str, tmp_path: Path
) -> None:
    done = sglforge(*words, "--target", "cpu", "--workspace", tmp_path / "workspace")
    assert done.returncode == 2, done.stderr
    assert f"[{code}]" in done.stderr
    assert not (tmp_path / "workspace").exists()


def test_with_json_stdout_is_one_document_also_when_it_fails(tmp_path: Path) -> None:
    done = sglforge("plan", "--json", "--stack", "release-0.5.22", "--target", "cpu", "--workspace", tmp_path)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["verdict"] == "fail"
    assert codes(done) == ["unknown-stack"]
    assert "release-0.5.23" in document["findings"][0]["hint"]


def test_doctor_prints_facts_and_a_verdict(tmp_path: Path) -> None:
    done = sglforge("doctor", "--json", "--target", "cpu", "--workspace", tmp_path)
    document = json.loads(done.stdout)
    assert document["verdict"] in {"pass", "warn"}, done.stderr
    assert document["facts"]["cores"] >= 1
    assert (document["stack"], document["target"]) == ("release-0.5.23", "cpu")
    assert done.returncode == 0
    kept = document["sandbox"]
    held = (kept["network"], kept["writes"], kept["processes"], kept["place"])
    complete = held == ("none", "own-folder", "contained", "fixed")
    assert ("sandbox-incomplete" in codes(done)) == (not complete)


def test_doctor_refuses_a_workspace_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = sglforge("doctor", "--json", "--target", "cpu", "--workspace", blocked)
    assert done.returncode == 4
    assert "workspace-unusable" in codes(done)


def test_doctor_judges_facts_from_a_file(tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"gpus": [], "cores": 2, "ram_gib": 1.0, "disk_gib": 0.5, "python": "3.11.7"}))
    done = sglforge("doctor", "--json", "--target", "cpu", "--facts", facts, "--workspace", tmp_path)
    assert done.returncode == 4
    assert {"memory-too-small", "disk-too-small"} <= set(codes(done))
    assert json.loads(done.stdout)["sandbox"] is None


def test_a_target_that_waits_can_be_planned_but_not_built(tmp_path: Path) -> None:
    words = ("--target", "sm120", "--workspace", tmp_path)
    planned = sglforge("plan", "--json", *words)
    assert planned.returncode == 0, planned.stderr
    document = json.loads(planned.stdout)
    assert document["stack"] == "main"
    assert {step["package"] for step in document["steps"]} == {"sglang", "sgl-kernel", "flashinfer"}
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"gpus": [], "cores": 64, "ram_gib": 256.0, "disk_gib": 900.0, "python": "3.11.7"}))
    built = sglforge("build", "--json", *words, "--facts", facts)
    assert built.returncode == 7, built.stderr
    assert codes(built) == ["target-waits"]
    assert "nox -s build -- --target sm120 flashinfer;" in built.stderr


def test_plan_says_hit_or_miss_and_why_and_writes_nothing(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    done = sglforge("plan", "--explain", "--target", "cpu", "--workspace", workspace)
    assert done.returncode == 0, done.stderr
    assert "miss  sglang" in done.stdout
    assert "never built here" in done.stdout
    assert "patches" in done.stdout
    assert not workspace.exists()


def test_every_finding_code_in_the_source_has_a_page_and_explain_prints_it() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "errors").glob("*.md")}
    done = sglforge("explain", "target-waits")
    assert done.stdout.startswith("# target-waits\n")
    unknown = sglforge("explain", "target-wait")
    assert unknown.returncode == 2
    assert "target-waits" in unknown.stderr
    assert "target-waits" in pages


def test_explain_does_not_read_outside_the_pages() -> None:
    assert sglforge("explain", "../../README").returncode == 2


def test_a_catalog_without_recipes_is_named(tmp_path: Path) -> None:
    done = sglforge("plan", "--catalog", tmp_path)
    assert done.returncode == 2
    assert "[catalog-missing]" in done.stderr


def test_a_workspace_that_cannot_be_written_is_a_fault_of_the_user(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = sglforge("build", "--target", "cpu", "--workspace", blocked)
    assert done.returncode not in {0, 70}
    assert "Traceback" not in done.stderr
    assert "[workspace-unusable]" in done.stderr


@pytest.mark.parametrize("folder", ["/proc/nope", "/proc/nope/deeper", f"/tmp/{'x' * 300}"])
def test_a_workspace_that_cannot_be_made_is_a_fault_of_the_user(folder: str) -> None:
    done = sglforge("smoke", "--url", "http://127.0.0.1:9", "--workspace", folder, "--json")
    assert (done.returncode, codes(done)) == (9, ["workspace-unusable"])
    assert "Traceback" not in done.stderr


def test_a_result_is_json_whatever_numbers_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {"a": [float("nan"), 1.5], "b": float("-inf"), "c": "NaN ü"}
    monkeypatch.setattr(pipeline, "verb", lambda _name: lambda _request, _console: Outcome(document=odd))
    cli.run(["doctor", "--json", "--workspace", str(tmp_path)])
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [None, 1.5],
        "b": None,
        "c": "NaN ü",
    }


def test_a_file_that_is_missing_elsewhere_stays_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def miss(_request: Request, _console: Console) -> Outcome:
        return Outcome(document={}, text=(tmp_path / "missing").read_text())

    monkeypatch.setattr(pipeline, "verb", lambda _name: miss)
    assert cli.run(["doctor", "--workspace", str(tmp_path)]) == 70
    assert cli.run(["doctor", "--workspace", str(tmp_path / "other")]) == 70


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOSPC])
def test_a_disk_that_fails_is_no_bug(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_request: Request, _console: Console) -> Outcome:
        raise OSError(number, os.strerror(number), str(tmp_path / "store"))

    monkeypatch.setattr(pipeline, "verb", lambda _name: fail)
    assert cli.run(["build", "--json", "--workspace", str(tmp_path)]) == 9
    finding = json.loads(capsys.readouterr().out)["findings"][0]
    assert finding["code"] == ("disk-full" if number == errno.ENOSPC else "workspace-unusable")
    assert finding["where"] == str(tmp_path / "store")
    assert "--workspace DIR" in finding["hint"]


def test_verbs_that_need_an_environment_say_how_to_get_one(tmp_path: Path) -> None:
    for words in (["verify"], ["smoke"], ["render", "tiny-cpu"]):
        done = sglforge(*words, "--target", "cpu", "--workspace", tmp_path)
        assert done.returncode == 9, done.stderr
        assert "[environment-not-installed]" in done.stderr
        assert "nox -s build" in done.stderr


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/b", "..", ".hidden", "", "-x", "x" * 101, "a\nb"])
def test_an_environment_name_stays_in_the_workspace(name: str, tmp_path: Path) -> None:
    done = sglforge("install", f"--env={name}", "--target", "cpu", "--workspace", tmp_path / "w")
    assert done.returncode == 2, done.stderr
    assert "[environment-name-invalid]" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_verb_still_prints_one_document(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> pipeline.Verb:
        def verb(_request: Request, _console: Console) -> Outcome:
            os.kill(os.getpid(), number)
            time.sleep(10)
            raise AssertionError("the signal did not arrive")

        return verb

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(pipeline, "verb", interrupted)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    try:
        assert cli.run(["plan", "--json"]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    document = json.loads(out.getvalue())
    assert [finding["code"] for finding in document["findings"]] == ["run-interrupted"]


@pytest.mark.parametrize("module", ["argparse", "sglforge.errors", "platformdirs"])
def test_ctrl_c_while_modules_are_loaded_is_no_traceback(module: str, tmp_path: Path) -> None:
    program = f"""
import os, signal, sys

class Interrupting:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(cls)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
sys.argv = ["sglforge", "plan", "--json", "--target", "cpu"]
from sglforge.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={name: value for name, value in os.environ.items() if name != "SGLFORGE_HOME"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "[run-interrupted]" in done.stderr
    assert codes(done) == ["run-interrupted"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_interpreter_ends_changes_nothing(number: signal.Signals) -> None:
    program = f"""
import atexit, os, signal, sys

atexit.register(os.kill, os.getpid(), {int(number)})
sys.argv = ["sglforge", "explain", "usage"]
from sglforge.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("form", ["--workspace={}", "--workspace {}"])
def test_a_bug_is_recorded_in_the_workspace_that_was_named(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_name: str) -> pipeline.Verb:
        raise ZeroDivisionError("toy")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(pipeline, "verb", broken)
    monkeypatch.setenv("SGLFORGE_HOME", str(tmp_path / "another"))
    try:
        assert cli.run(["plan", "--json", *form.format(tmp_path / "here").split()]) == 70
    finally:
        signal.signal(signal.SIGTERM, before)
    out, talk = capsys.readouterr()
    assert [finding["code"] for finding in json.loads(out)["findings"]] == ["bug"]
    record = tmp_path / "here" / "runs" / "bug.txt"
    assert str(record) in talk
    assert "ZeroDivisionError: toy" in record.read_text()
    assert "Traceback" not in talk
    assert not (tmp_path / "another").exists()


@pytest.mark.parametrize("form", ["", "--json"])
@pytest.mark.parametrize(
    ("redirection", "status", "talk"),
    [
        (">/dev/full", "1", "the result cannot be written: No space left on device"),
        ("2>/dev/full", "0", ""),
        (">&-", "0", ""),
        ("2>&-", "0", ""),
        ("", "1", ""),
    ],
    ids=["full", "log full", "closed", "log closed", "nobody reads"],
)
def test_what_becomes_of_the_output_is_no_traceback(
    form: str, redirection: str, status: str, talk: str, tmp_path: Path
) -> None:
    command = f"{sys.executable} -m sglforge explain usage {form} {redirection}; echo $? >{tmp_path}/status"
    done = subprocess.run(
        ["/bin/sh", "-c", command if redirection else f"{{ {command}; }} | true; sleep 1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "status").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "status").read_text().strip() == status, done.stderr
    assert talk in done.stderr
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_paths_that_no_document_can_name_are_refused(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"ol\xe9")
    odd.mkdir()
    (odd / "catalog").symlink_to(ROOT)
    catalogs = ("--catalog", ROOT)
    for words, env in (
        (("--workspace", odd / "ws", *catalogs), {}),
        (catalogs, {"SGLFORGE_HOME": str(odd)}),
        (catalogs, {"HOME": str(odd), "XDG_DATA_HOME": "", "SGLFORGE_HOME": ""}),
        (("--catalog", odd / "catalog", "--workspace", tmp_path / "ws"), {}),
    ):
        done = sglforge("plan", "--json", *words, env=env)
        assert (done.returncode, codes(done)) == (2, ["usage"]), done.stderr
        assert "ol\\udce9' is not UTF-8" in done.stderr or "ol\\udce9/" in done.stderr


def test_a_current_folder_that_is_gone_is_no_bug(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys, sglforge.cli as cli; os.rmdir(os.getcwd()); sys.exit(cli.run(sys.argv[1:]))"
    words = ["plan", "--json", "--catalog", str(ROOT), "--workspace", str(tmp_path / "ws")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=gone, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, codes(done)) == (2, ["usage"])
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_a_result_is_json_whatever_stdout_takes(tmp_path: Path, encoding: str) -> None:
    place = tmp_path / "wörk→"
    words, env = ("--workspace", place, "--catalog", place), {"PYTHONIOENCODING": encoding}
    done = sglforge("store", "list", *words, env=env)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    done = sglforge("store", "list", "--json", *words, env=env)
    document = json.loads(done.stdout)
    assert str(place) in json.dumps(document, ensure_ascii=False)
    assert done.stdout.isascii() == (encoding != "utf-8")
