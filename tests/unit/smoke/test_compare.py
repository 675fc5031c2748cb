"""Two smoke tests of the fake server compared: verdicts, texts, speed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fake_serving import FakeEnvironment, make_environment
from hypothesis import given
from hypothesis import strategies as st
from unit.smoke.conftest import ROOT, make_profile

from sglforge.base import runrecord
from sglforge.cli import run as cli
from sglforge.config.model import Profile, Target
from sglforge.smoke.afterwards import Baseline, Wanted
from sglforge.smoke.compare import Comparison, compare
from sglforge.smoke.conditions import Conditions, conditions_of, weights_digest
from sglforge.smoke.measure import Figure, Speed
from sglforge.smoke.run import run
from sglforge.smoke.transcript import Transcript, transcript_of
from sglforge.smoke.verdict import SmokeReport

PROBES = ["started", "decode-single", "facts"]
HOST = {"machine": "x86_64", "cores": "2"}
CPU = Target(name="cpu", description="This machine's CPU.", kind="cpu")
GPU = Target(name="sm120", description="A GPU.", kind="cuda")


SPEED = {"FAKE_TOKEN_MS": "4"}


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.measure._WAVES", ((1, 24), (3, 8)))
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.3)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder with an environment, a model and runs."""

    folder: Path
    environment: FakeEnvironment

    def profile(self, fault: str = "", **variables: str) -> Profile:
        return make_profile(model=str(self.folder / "model"), environment={"FAKE_FAULT": fault, **SPEED, **variables})

    def test(
        self, profile: Profile | None = None, *, target: Target = CPU, measure: bool = False, **wanted: Baseline
    ) -> SmokeReport:
        return run(
            profile or self.profile(),
            environment=self.environment,
            catalog_root=ROOT,
            target=target,
            record=runrecord.start(self.folder / "runs"),
            probes=PROBES,
            wanted=Wanted(measure=measure, **wanted),
            host=HOST,
            stop_grace_s=5.0,
        )


def make_place(folder: Path) -> Place:
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    return Place(folder=folder, environment=make_environment(folder / "env", sglang_version="0.5.23"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def first(place: Place) -> SmokeReport:
    """Return a sound run that has measured its speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sglforge.smoke.measure._WAVES", ((1, 24), (3, 8)))
        return place.test(measure=True)


@pytest.fixture(scope="module")
def unmeasured(place: Place) -> SmokeReport:
    return place.test()


def transcript(report: SmokeReport) -> Transcript:
    return transcript_of(json.loads(report.transcript.read_text()))


def baseline(report: SmokeReport) -> Baseline:
    return Baseline(where="before", transcript=transcript(report))


def compared(report: SmokeReport) -> Comparison:
    assert report.comparison is not None
    return report.comparison


def codes(report: SmokeReport) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity.value) for finding in report.findings]


def test_the_same_server_twice_is_the_same(place: Place, first: SmokeReport) -> None:
    assert first.speed is not None
    assert list(first.speed.figures) == ["1 request of 24 tokens", "3 requests of 8 tokens"]
    assert all(len(figure.values) == 5 for figure in first.speed.figures.values())
    second = place.test(baseline=baseline(first))
    found = compared(second)
    assert (found.differs, found.verdicts, found.texts, found.no_speed) == ((), (), (), "")
    assert found.same_texts == 3
    assert set(found.seconds) == {"ready", "decode-single", "facts"}
    assert [change.name for change in found.speed] == list(first.speed.figures)
    document = json.loads(json.dumps(second.to_json()))
    assert document["baseline"]["texts"] == {"same": found.same_texts, "changed": []}
    assert document["speed"].keys() == first.speed.figures.keys()
    assert "baseline" not in first.to_json()


def test_a_run_without_measure_has_no_speed_to_compare(first: SmokeReport, unmeasured: SmokeReport) -> None:
    assert unmeasured.speed is None
    assert "speed" not in unmeasured.to_json()
    found = compare(transcript(first), transcript(unmeasured), where="before")
    assert found.no_speed.startswith("the baseline has no measured speed: nothing was measured: neither --measure")
    assert {change.word for change in found.speed} == {"not comparable"}
    assert found.findings == ()


def test_slower_beyond_the_noise_is_a_warning_and_no_failure(place: Place, first: SmokeReport) -> None:
    slow = place.test(place.profile(FAKE_TOKEN_MS="40"), baseline=baseline(first))
    assert codes(slow) == [("slower-than-baseline", "warning")] * 2
    assert (slow.verdict, compared(slow).differs) == ("warn", ("variables: FAKE_TOKEN_MS",))
    back = compare(transcript(first), transcript(slow), where="before")
    assert ([change.word for change in back.speed], back.findings) == (["faster", "faster"], ())


def test_a_probe_that_passed_and_fails_now_is_said_with_what_changed(place: Place, first: SmokeReport) -> None:
    worse = place.test(place.profile("wrong-fact"), baseline=baseline(first))
    found = [(code, severity) for code, severity in codes(worse) if code != "slower-than-baseline"]  # a busy machine
    assert found == [("fact-wrong", "error"), ("verdict-worse-than-baseline", "error")]
    assert compared(worse).differs == ("variables: FAKE_FAULT",)
    assert "since then changed: variables: FAKE_FAULT" in worse.findings[-1].hint
    assert [(one.probe, one.before, one.after) for one in compared(worse).verdicts] == [("facts", "pass", "fail")]
    assert [text.probe for text in compared(worse).texts] == ["facts"]
    better = compare(transcript(first), transcript(worse), where="before")
    assert [(one.before, one.after, one.worse) for one in better.verdicts] == [("fail", "pass", False)]
    assert better.findings == ()


def other_text(report: SmokeReport, **changes: object) -> Transcript:
    """Return the transcript of a run with another text and another token id in one answer."""
    document = json.loads(report.transcript.read_text())
    step = next(step for step in document["steps"] if step["probe"] == "decode-single")
    step["response"]["output_ids"][10] += 1
    step["response"]["text"] = "x" + step["response"]["text"][1:]
    document["conditions"] |= changes
    return transcript_of(document)


def test_another_text_of_the_same_server_is_a_fault(place: Place, first: SmokeReport) -> None:
    report = place.test(baseline=Baseline(where="before", transcript=other_text(first)))
    assert ("texts-differ-from-baseline", "error") in codes(report)
    assert report.verdict == "fail"
    (text,) = compared(report).texts
    assert (text.probe, text.request, text.how) == ("decode-single", "single", "other")
    assert text.difference.startswith("token 10 is ")


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"sglang": "0.5.9"}, "SGLang: 0.5.9 was, 0.5.23 is"),
        ({"receipt": "0" * 64}, "the environment: its receipt is another one"),
        ({"weights": "0" * 64}, "the weights"),
        ({"weights": None}, "the weights: not known to be the same"),
        ({"host": {**HOST, "cores": "4"}}, "the machine: cores"),
        ({"host": {}}, "the machine: not known to be the same"),
        ({"variables": {}}, "variables: FAKE_FAULT, FAKE_TOKEN_MS, PYTHONUNBUFFERED"),
    ],
)
def test_another_text_of_another_server_is_a_change(
    first: SmokeReport, changes: dict[str, object], differs: str
) -> None:
    found = compare(transcript(first), other_text(first, **changes), where="before")
    assert (found.differs, len(found.texts), found.findings) == ((differs,), 1, ())


def test_no_value_of_a_variable_is_in_the_transcript(place: Place) -> None:
    report = place.test(place.profile(HF_TOKEN="hf_much-too-secret"))
    assert "hf_much-too-secret" not in report.transcript.read_text()


def test_options_and_threshold_are_compared_ports_and_places_are_not(first: SmokeReport) -> None:
    then = transcript(first)
    words = ["--port", "1", "--model-path", "/elsewhere", "--dtype", "float32", "--speculative-adaptive-config", "/x"]
    moved = replace(then, argv=(*then.argv, *words))
    found = compare(moved, replace(then, subject=replace(then.subject, threshold=4)), where="before")
    assert found.differs == ("options: --dtype", "the threshold: 4 was, None is")


def test_a_gpu_scores_where_texts_part(place: Place) -> None:
    first = place.test(target=GPU)
    report = place.test(target=GPU, baseline=Baseline(where="before", transcript=other_text(first)))
    (text,) = compared(report).texts
    assert text.how in {"tie", "other"}  # it was scored: one that was not would be open
    unscored = compare(transcript(report), other_text(first), where="before")
    assert [one.how for one in unscored.texts] == ["open"]
    assert [finding.severity.value for finding in unscored.findings] == ["warning"]


def test_speeds_of_two_machines_are_not_compared(first: SmokeReport) -> None:
    then = transcript(first)
    elsewhere = replace(then, conditions={**then.conditions, "host": {"machine": "aarch64", "cores": "2"}})
    found = compare(then, elsewhere, where="before")
    assert found.no_speed == "the machine: machine, speeds of two machines say nothing of the software"
    assert {change.word for change in found.speed} == {"not comparable"}


def test_a_server_that_dies_has_no_speed(place: Place) -> None:
    report = place.test(place.profile("refuses"), measure=True)
    assert report.speed is not None
    assert (report.speed.figures, report.speed.missing[:31]) == ({}, "1 of 1 measured requests have n")


conditions = st.builds(
    Conditions,
    sglang=st.none() | st.text(),
    receipt=st.none() | st.text(),
    weights=st.none() | st.text(),
    host=st.dictionaries(st.text(), st.text(), max_size=3),
    variables=st.dictionaries(st.text(), st.text(), max_size=3),
    seconds_to_ready=st.none() | st.floats(0, 1e4).map(lambda seconds: round(seconds, 3)),
    speed=st.builds(
        Speed,
        figures=st.dictionaries(
            st.text(),
            st.lists(st.integers(1, 10**6), min_size=1).map(lambda one: Figure(values=tuple(map(float, one)))),
        ),
        missing=st.text(min_size=1),
    ),
)


@given(conditions)
def test_conditions_survive_their_document(found: Conditions) -> None:
    assert conditions_of(json.loads(json.dumps(found.to_json()))) == found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["sglang", "host", "speed", "weights", "seconds_to_ready"]), json_values))
def test_conditions_of_anybody_do_not_break_the_reader(said: dict[str, object]) -> None:
    assert isinstance(conditions_of(said), Conditions)


def test_weights_are_told_apart_by_names_sizes_and_ends(tmp_path: Path) -> None:
    def folder(name: str, content: bytes, file: str = "model.safetensors") -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(content)
        return tmp_path / name

    large = bytes(3 << 20)
    one = weights_digest([folder("one", large)])
    assert one == weights_digest([folder("two", large)])
    assert one != weights_digest([folder("three", large[:-1] + b"x")])
    assert one != weights_digest([folder("four", large + b"\0")])
    assert one != weights_digest([folder("five", large, "other.safetensors")])
    assert weights_digest([]) is None
    assert weights_digest([folder("six", b"x"), tmp_path / "one"]) != weights_digest([tmp_path / "one"])


@pytest.mark.parametrize("door", ["id", "folder", "file", "latest"])
def test_a_baseline_is_named_by_run_folder_file_or_latest(
    place: Place, first: SmokeReport, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = place.test()
    folder = first.transcript.parent
    word = {"id": folder.name, "folder": str(folder), "file": str(first.transcript), "latest": "latest"}[door]
    argv = ["smoke", "--judge", str(now.transcript), "--baseline", word, "--workspace", str(place.folder)]
    assert cli([*argv, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["baseline"]["transcript"] == (now.transcript.parent if door == "latest" else folder).name
    assert cli(argv) == 0
    text = capsys.readouterr().out
    assert "  verdicts      the same" in text
    assert "  speed         not comparable: " in text


@pytest.mark.parametrize("word", ["nothing-here", "latest", "foreign"])
def test_a_baseline_that_is_none_is_refused(
    first: SmokeReport, tmp_path: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "foreign.json").write_text('{"steps": []}')
    named = str(tmp_path / "foreign.json") if word == "foreign" else word
    argv = ["smoke", "--judge", str(first.transcript), "--baseline", named, "--workspace", str(tmp_path), "--json"]
    assert cli(argv) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == ("transcript-invalid" if word == "foreign" else "baseline-not-found")


@pytest.mark.parametrize("more", [["--measure"], ["--stack", "main"]])
def test_what_says_nothing_beside_a_transcript_is_refused(
    first: SmokeReport, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["smoke", "--judge", str(first.transcript), *more, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "usage"
