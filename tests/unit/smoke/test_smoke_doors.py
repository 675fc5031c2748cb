"""The other doors: a server that somebody else runs, and a transcript that is judged again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from unit.smoke.conftest import ROOT, Bench, make_profile
from werkzeug import Request, Response

from sglforge.base import runrecord
from sglforge.cli import run as cli
from sglforge.config.model import Profile
from sglforge.errors import ConfigError, SmokeError
from sglforge.smoke import attached
from sglforge.smoke.afterwards import Baseline, Wanted
from sglforge.smoke.deadline import Patience
from sglforge.smoke.judging import judge_again
from sglforge.smoke.ports import free_port
from sglforge.smoke.server import serving
from sglforge.smoke.transcript import transcript_of
from sglforge.smoke.verdict import SmokeReport


@pytest.fixture
def short_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.4)


def again(report: SmokeReport) -> dict[str, tuple[str, str]]:
    transcript = transcript_of(json.loads(report.transcript.read_text()))
    return {result.name: (result.verdict, result.message) for result in judge_again(transcript)}


@pytest.mark.parametrize(
    "fault", ["", "garbage-together", "dies-after-json", "hangs-after-200-tokens", "dies-at-start"]
)
@pytest.mark.usefixtures("short_settle")
def test_a_transcript_that_is_judged_again_says_the_same(bench: Bench, fault: str) -> None:
    report = bench.run(make_profile(fault, speculative=True, request_timeout_s=4.0))
    assert again(report) == {result.name: (result.verdict, result.message) for result in report.probes}


def test_a_transcript_without_a_probe_does_not_miss_it(bench: Bench) -> None:
    report = bench.run(make_profile(), probes=["decode-single", "facts"])
    assert set(again(report)) == {"decode-single", "facts"}


def test_a_changed_answer_changes_the_verdict(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = bench.run(make_profile(), probes=["started", "facts"])
    document = json.loads(report.transcript.read_text())
    for step in document["steps"]:
        step["response"]["text"] = "no such thing"
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    assert cli(["smoke", "--judge", str(report.transcript), "--json"]) == 0
    capsys.readouterr()
    assert cli(["smoke", "--judge", str(changed), "--json"]) == 11
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "fail"
    assert [finding["code"] for finding in said["findings"]] == ["fact-wrong"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "transcript-unreadable"),
        ("{", "transcript-invalid"),
        ("3", "transcript-invalid"),
        ("[" * 100_000, "transcript-invalid"),
        ('{"subject": {}, "probes": {}}', "transcript-invalid"),
        (
            '{"profile": "x", "subject": {"scope": "mars"}, "probes": {}, "steps": [], "log": "", "argv": []}',
            "transcript-invalid",
        ),
    ],
)
def test_what_is_no_transcript_is_refused_with_its_place(
    tmp_path: Path, text: str | None, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "transcript.json"
    if text is not None:
        file.write_text(text)
    assert cli(["smoke", "--judge", str(file), "--json"]) == 2
    finding = json.loads(capsys.readouterr().out)["findings"][0]
    assert finding["code"] == code
    assert finding["hint"]


def test_a_run_is_judged_by_its_name(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = bench.run(make_profile(), probes=["facts"])
    workspace = tmp_path / "workspace"
    old, new, other = (runrecord.start(workspace / "runs") for _ in range(3))
    for record in (old, new):
        (record.folder / "transcript.json").write_text(report.transcript.read_text())
    os.utime(old.folder / "transcript.json", (1, 1))
    monkeypatch.chdir(tmp_path)
    for word, judged in [(str(old.folder), old), (old.id, old), (new.id, new), ("latest", new)]:
        assert cli(["smoke", "--judge", word, "--workspace", str(workspace), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["transcript"] == str(judged.folder / "transcript.json")
    for word in (other.id, str(other.folder), "nothing"):
        assert cli(["smoke", "--judge", word, "--workspace", str(workspace), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "transcript-unreadable"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"schema": 1', '"schema": 2', "schema is 2"),
        ('"schema": 1', '"schema": 1, "x": NaN', "NaN"),
        ('"schema": 1', '"schema": 1, "x": -1e999', "-1e999"),
    ],
)
def test_our_own_transcript_holds_what_this_release_writes(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    text = bench.run(make_profile(), probes=["facts"]).transcript.read_text()
    file = tmp_path / "t.json"
    file.write_text(text.replace(old, new, 1))
    assert cli(["smoke", "--judge", str(file), "--json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "transcript-invalid"
    assert said in finding["message"]


@pytest.mark.usefixtures("short_settle")
def test_our_own_sound_transcript_is_sound_as_that_of_somebody_else(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = bench.run(make_profile())
    assert report.verdict == "pass"
    document = json.loads(report.transcript.read_text())
    del document["subject"]
    file = tmp_path / "t.json"
    file.write_text(json.dumps(document))
    cli(["smoke", "--judge", str(file), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert [finding for finding in said["findings"] if finding["severity"] == "error"] == []


def test_the_nan_of_somebody_else_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.json"
    answer = '{"text": "!!", "meta_info": {"output_token_logprobs": [[NaN, 0, null]]}}'
    file.write_text(f'{{"steps": [{{"request": "a", "status": 200, "response": {answer}}}]}}')
    assert cli(["smoke", "--judge", str(file), "--json"]) == 11
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [finding["code"] for finding in said["findings"]] == ["nan-logits"]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert cli(["smoke", "--judge", str(tmp_path / "pipe"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "transcript-unreadable"


@pytest.fixture
def running(bench: Bench, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a fake server as somebody else would, and yield its address."""
    from sglforge.launch.render import render_bash

    profile: Profile = make_profile(getattr(request, "param", ""))
    with serving(
        lambda port: render_bash(
            profile, environment=bench.environment, catalog_root=ROOT, port=port, folder=bench.record.folder
        ),
        folder=bench.record.folder,
        log=tmp_path / "server.log",
        pinned_port=None,
        patience=Patience(start_s=20.0, request_s=5.0, stop_s=5.0),
        progress=lambda _note: None,
    ) as server:
        yield server.url


@pytest.mark.usefixtures("short_settle")
def test_a_running_server_is_asked_and_left_running(running: str, tmp_path: Path) -> None:
    record = runrecord.start(tmp_path / "asked")
    report = attached.run(f"{running}/v1", record=record, expectations=make_profile().smoke)
    verdicts = {result.name: result.verdict for result in report.probes}
    assert report.verdict == "pass", report.findings
    assert verdicts["facts"] == verdicts["parallel"] == verdicts["alive-after"] == "pass"
    assert verdicts["stops-clean"] == verdicts["spec-parity"] == "skipped"
    assert attached.Attached(url=running).health() == "200"
    assert again(report)["facts"][0] == "pass"


@pytest.mark.usefixtures("short_settle")
def test_a_running_server_is_compared_with_itself(
    running: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglforge.smoke.measure._WAVES", ((1, 24),))
    asked: Any = {"expectations": make_profile().smoke, "probes": ["decode-single", "facts"]}
    first = attached.run(running, record=runrecord.start(tmp_path), wanted=Wanted(measure=True), **asked)
    before = Baseline(where="before", transcript=transcript_of(json.loads(first.transcript.read_text())))
    report = attached.run(running, record=runrecord.start(tmp_path), wanted=Wanted(baseline=before), **asked)
    assert report.comparison is not None
    assert report.comparison.differs == (
        "the environment: not known to be the same",
        "the weights: not known to be the same",
    )
    assert (report.comparison.texts, report.comparison.same_texts, report.comparison.no_speed) == ((), 3, "")


@pytest.mark.parametrize("running", ["loses-a-token"], indirect=True)
@pytest.mark.usefixtures("short_settle")
def test_a_running_server_with_a_fault_fails(running: str, tmp_path: Path) -> None:
    record = runrecord.start(tmp_path / "asked")
    report = attached.run(running, record=record, probes=["decode-single"])
    assert [finding.code for finding in report.findings] == ["tokens-lost"]


def test_nobody_at_an_address_is_said(tmp_path: Path) -> None:
    with pytest.raises(SmokeError) as caught:
        attached.run(f"127.0.0.1:{free_port()}", record=runrecord.start(tmp_path))
    assert caught.value.code == "server-unreachable"


KEY = "sk-4f1c/=.secret"


@pytest.fixture
def guarded(httpserver: HTTPServer) -> str:
    """Answer like a server that wants a key, and that repeats what it was sent."""

    def answer(request: Request) -> Response:
        key = request.headers.get("Authorization", "")
        if key != f"Bearer {KEY}":
            return Response(json.dumps({"error": f"wrong: {key}"}), status=401)
        if request.path == "/v1/models":
            return Response(json.dumps({"data": [{"id": "m"}]}))
        choice = {"text": f" Hi {key}", "finish_reason": "length"}
        return Response(json.dumps({"choices": [choice], "usage": {"completion_tokens": 1, key: key}}))

    httpserver.expect_request(re.compile("/v1/.*")).respond_with_handler(answer)
    return httpserver.url_for("")


@pytest.mark.parametrize("key", ["", "other-key"])
def test_a_server_that_wants_a_key_says_so(
    guarded: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLFORGE_API_KEY", key)
    with pytest.raises(SmokeError) as caught:
        attached.run(guarded, record=runrecord.start(tmp_path))
    assert caught.value.code == "server-unreachable"
    assert "key" in caught.value.message
    assert "SGLFORGE_API_KEY" in caught.value.hint
    assert "other-key" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.usefixtures("short_settle")
def test_a_key_is_sent_and_written_nowhere(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGLFORGE_API_KEY", KEY)
    words = ["smoke", "--url", guarded, "--probe", "decode-single", "--workspace", str(tmp_path), "--json"]
    cli([*words, "--catalog", str(ROOT)])
    said = capsys.readouterr()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"Hi Bearer (the key)" in file.read_bytes() for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in said.out + said.err


def test_a_key_that_cannot_be_sent_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLFORGE_API_KEY", "se\ncret")
    with pytest.raises(ConfigError) as caught:
        attached.api_key()
    assert "cret" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize("url", ["http://u:secret@h:1", "u:secret@h", "http://secret@[::1", "http://u:secret@h/?a=b"])
def test_an_address_with_a_password_is_refused_unseen(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        attached.base_url(url)
    assert caught.value.code == "url-invalid"
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://", "http://h:0", "http://h:99999", "http://h/?a=b", "::", "http://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        attached.base_url(url)
    assert caught.value.code == "url-invalid"


@pytest.mark.parametrize(
    "words",
    [
        ["--url", "http://h", "--judge", "x"],
        ["--url", "http://h", "--env", "x"],
        ["--url", "http://h", "--set", "a=b"],
        ["--judge", "x", "tiny-cpu"],
        ["--judge", "x", "--stack", "main"],
    ],
)
def test_what_says_nothing_beside_a_door_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["smoke", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "usage"
