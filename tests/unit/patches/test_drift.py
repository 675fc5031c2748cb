"""The matrix: what is in it, what is expected of it, and how it is shown."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from sglforge.base.ids import Sha256, TreeId
from sglforge.errors import Finding, PatchError, Severity
from sglforge.patches.drift import (
    FAULTS,
    LETTERS,
    Cell,
    Matrix,
    column,
    faults,
    read_expectation,
    text_of,
    unexpected,
    updated,
)
from sglforge.patches.faults import STATES
from sglforge.patches.heatmap import COLOURS, svg
from sglforge.patches.result import PatchResult, TopicResult, TopicState
from sglforge.patches.series import load_series

ROOT = Path(__file__).parents[3]
A, NOT, D = TopicState.APPLIED, TopicState.NOT_FOR_VERSION, TopicState.DRIFTED


def matrix(**states: dict[str, TopicState]) -> Matrix:
    """Return a matrix of topics by versions (`v0_5_9`)."""
    columns = []
    for name, topics in states.items():
        version = name[1:].replace("_", ".")
        broken = any(state in FAULTS for state in topics.values())
        results = tuple(
            TopicResult(name=topic, state=state, message=f"is <{state.value}> & so") for topic, state in topics.items()
        )
        findings = tuple(
            Finding(
                code="patch-drifted", severity=Severity.ERROR, subject=f"toy/{topic}", message="no anchor", hint="look"
            )
            for topic, state in topics.items()
            if state in FAULTS
        )
        result = PatchResult(topics=results, tree_id=None if broken else TreeId("a" * 40), diff="", findings=findings)
        columns.append(
            column(result, package="toy", version=version, file=f"toy-{version}.whl", sha256=Sha256("0" * 64))
        )
    first = next(iter(states.values()))
    return Matrix(package="toy", topics=tuple(first), columns=tuple(columns))


TWO = matrix(v0_5_9={"one": A, "two": NOT}, v0_5_10_post1={"one": A, "two": D}, v0_5_11={"one": A, "two": D})


def expected(path: Path, text: str) -> list[tuple[str, str]]:
    path.write_text(text)
    found = unexpected(TWO, read_expectation(path), where=path, whole=True)
    return [(finding.subject, finding.message) for finding in found]


def test_every_state_has_a_letter_and_a_colour_of_its_own() -> None:
    assert set(LETTERS) == set(COLOURS) == set(TopicState)
    assert len(set(LETTERS.values())) == len(LETTERS)
    assert len({ground for ground, _ in COLOURS.values()}) == len(COLOURS)


def test_every_fault_is_a_state_that_stops_the_series() -> None:
    assert {TopicState.DRIFTED, TopicState.CONFLICT, TopicState.CORRUPT, TopicState.REJECTED} == FAULTS
    assert set(STATES.values()) >= FAULTS


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("state", TopicState)
def test_letters_can_be_read(state: TopicState) -> None:
    low, high = sorted(map(luminance, COLOURS[state]))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_the_document_has_every_cell() -> None:
    document = json.loads(json.dumps(TWO.to_json()))
    assert document["topics"] == ["one", "two"]
    assert [entry["tree_id"] for entry in document["versions"]] == ["a" * 40, None, None]
    cells = {(cell["topic"], cell["version"]): cell for cell in document["cells"]}
    assert len(cells) == 6
    assert cells["two", "0.5.11"]["state"] == "drifted"
    assert [finding["code"] for finding in cells["two", "0.5.11"]["findings"]] == ["patch-drifted"]
    assert cells["one", "0.5.11"]["findings"] == []
    assert cells["one", "0.5.11"]["tree_id"] is None


def test_what_is_recorded_is_expected(tmp_path: Path) -> None:
    text = updated(TWO, None, topics=["one", "two"])
    assert expected(tmp_path / "drift.json", text) == []
    document = json.loads(text)
    assert list(document["topics"]["one"]) == ["0.5.9", "0.5.10.post1", "0.5.11"]


def test_each_difference_is_a_finding(tmp_path: Path) -> None:
    document = json.loads(updated(TWO, None, topics=["one", "two"]))
    document["topics"]["one"]["0.5.9"] = "drifted"
    del document["topics"]["two"]["0.5.11"]
    document["topics"]["three"] = {"0.5.9": "applied"}
    document["topics"]["one"]["0.5.1"] = "applied"  # a version that was not looked at
    assert expected(tmp_path / "drift.json", json.dumps(document)) == [
        ("toy/one 0.5.9", "one on 0.5.9: expected drifted, it is applied"),
        ("toy/two 0.5.11", "two on 0.5.11: nothing is recorded, it is drifted"),
        ("toy/three", "states of three are recorded, which is no topic"),
    ]


def test_a_topic_that_nobody_recorded_is_one_finding_with_its_states(tmp_path: Path) -> None:
    document = json.loads(updated(TWO, None, topics=["one", "two"]))
    del document["topics"]["two"]
    path = tmp_path / "drift.json"
    path.write_text(json.dumps(document))
    (finding,) = unexpected(TWO, read_expectation(path), where=path, whole=True)
    assert (finding.code, finding.subject) == ("drift-unexpected", "toy/two")
    assert finding.detail == ("0.5.9: not-for-version", "0.5.10.post1: drifted", "0.5.11: drifted")


def test_a_record_of_another_package_says_nothing(tmp_path: Path) -> None:
    text = updated(TWO, None, topics=["one", "two"]).replace('"toy"', '"other"')
    assert [message for _, message in expected(tmp_path / "drift.json", text)] == ["the file is about other"]


def test_recording_keeps_what_was_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    path.write_text(updated(TWO, None, topics=["one", "two"]))
    later = matrix(v0_5_11={"two": A}, v0_5_12={"two": A})
    document = json.loads(updated(later, read_expectation(path), topics=["two", "one"]))
    assert list(document["topics"]) == ["two", "one"]
    assert document["topics"]["two"] == {
        "0.5.9": "not-for-version",
        "0.5.10.post1": "drifted",
        "0.5.11": "applied",
        "0.5.12": "applied",
    }
    assert document["topics"]["one"]["0.5.9"] == "applied"
    assert "one" not in json.loads(updated(later, read_expectation(path), topics=["two"]))["topics"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "package": "toy", "topics": {}}',
        '{"format": 1, "package": "toy", "topics": {"A B": {}}}',
    ],
)
def test_a_file_that_holds_no_states_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    path.write_text(text)
    for place in (path, tmp_path / "missing.json"):
        with pytest.raises(PatchError) as caught:
            read_expectation(place)
        assert (caught.value.code, caught.value.where) == ("drift-file-invalid", str(place))


def test_without_a_record_faults_are_findings_with_their_version() -> None:
    assert [(finding.code, finding.subject) for finding in faults(TWO)] == [
        ("patch-drifted", "toy/two 0.5.10.post1"),
        ("patch-drifted", "toy/two 0.5.11"),
    ]


def test_the_table_for_people() -> None:
    assert text_of(TWO) == (
        "toy 0.5.x  9  10.p1  11\n".replace("10.p1", "10p1")
        + "one        A     A   A\n"
        + "two        -     D   D\n"
        + "\n"
        + "A applied  - not-for-version  D drifted\n"
        + "drifted          two on 0.5.10.post1, 0.5.11: is <drifted> & so"
    )


def test_what_differs_in_the_version_only_is_said_once() -> None:
    cells = [
        Cell(topic="one", version=version, state=D, message=f"is needed for {version} and lacks it", findings=())
        for version in ("0.5.9", "0.5.11")
    ]
    columns = [replace(TWO.columns[0], version=cell.version, cells=(cell,)) for cell in cells]
    shown = text_of(Matrix(package="toy", topics=("one",), columns=tuple(columns))).splitlines()
    assert shown[-1] == "drifted          one on 0.5.9, 0.5.11: is needed for each and lacks it"
    shown = text_of(Matrix(package="toy", topics=("one",), columns=tuple(columns[:1]))).splitlines()
    assert shown[-1] == "drifted          one on 0.5.9: is needed for 0.5.9 and lacks it"


@pytest.mark.parametrize(
    ("states", "shown"),
    [("DDDD", "1 to 4"), ("DADA", "1, 3"), ("DDAD", "1, 2, 4"), ("ADDD", "2 to 4"), ("DDDA", "1 to 3")],
)
def test_versions_in_a_row_are_a_range(states: str, shown: str) -> None:
    made = matrix(**{f"v{number}": {"one": D if letter == "D" else A} for number, letter in enumerate(states, start=1)})
    assert text_of(made).splitlines()[-1] == f"drifted          one on {shown}: is <drifted> & so"


def test_a_table_of_one_version_names_it_in_full() -> None:
    assert text_of(matrix(v0_5_9={"one": A})).splitlines()[:2] == ["toy  0.5.9", "one      A"]


def test_the_picture_is_svg_with_a_title_in_every_cell() -> None:
    space = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(svg(TWO))
    assert root.tag == f"{space}svg"
    assert root.find(f"{space}desc") is not None
    titles = [entry.text for entry in root.iter(f"{space}title")]
    assert "0.5.11 two: drifted: is <drifted> & so" in titles
    letters = [entry.text for entry in root.iter(f"{space}text")]
    assert [letters.count(letter) for letter in "AD-"] == [4, 3, 2]  # the cells and one of each in the legend
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for square in root.iter(f"{space}rect"):
        assert float(square.attrib.get("x", 0)) + float(square.attrib["width"]) <= width
        assert float(square.attrib.get("y", 0)) + float(square.attrib["height"]) <= height


def test_the_shipped_record_is_about_the_shipped_topics() -> None:
    recorded = read_expectation(ROOT / "patches/sglang/drift.json")
    series = load_series(ROOT, "sglang")
    assert series is not None
    assert set(recorded.topics) <= {topic.name for topic in series.topics}
    assert {state for states in recorded.topics.values() for state in states.values()} <= {s.value for s in TopicState}
