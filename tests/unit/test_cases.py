"""Case files: our own all pass, and the judging of expectations can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases.__main__ import OWN, judged, main
from cases.model import Case, CaseError, Judgement, faults, load

from sglforge.errors import Finding, Severity


@pytest.mark.parametrize("path", sorted(OWN.glob("*.json")), ids=lambda path: path.stem)
def test_own_cases(path: Path) -> None:
    results = judged(load(path))
    assert results
    assert [wrong for _, _, wrong in results] == [[] for _ in results]


def case(**expect: object) -> Case:
    return Case(path=Path("c.json"), id="c", title="t", kinds=("tree",), input={}, expect=expect)


def said(code: str, severity: Severity, message: str = "m") -> Judgement:
    finding = Finding(code=code, severity=severity, subject="s", message=message, hint="h")
    return Judgement(verdict="fail" if severity is Severity.ERROR else "pass", findings=(finding,))


@pytest.mark.parametrize(
    ("expect", "judgement", "wrong"),
    [
        ({"rule": "a-b", "verdict": "FAIL"}, said("a-b", Severity.ERROR), []),
        ({"rule": "a-b", "verdict": "FAIL"}, said("c-d", Severity.ERROR), ["wanted a-b, got c-d"]),
        ({"verdict": "PASS"}, said("a-b", Severity.INFO), []),
        ({"verdict": "PASS"}, said("a-b", Severity.WARNING), ["wanted PASS, got pass"]),
        ({"verdict": "PASS+NOTE", "rule": "a-b"}, said("a-b", Severity.INFO), []),
        ({"verdict": "FAIL / WARN (either)"}, said("a-b", Severity.WARNING), []),
        ({"must_not_rule": ["a-b"]}, said("a-b", Severity.INFO), []),
        ({"must_not_rule": ["a-b"]}, said("a-b", Severity.ERROR), ["a-b must not be found"]),
        ({"rule": "a-b", "must_say": ["Line 3"]}, said("a-b", Severity.ERROR, "on line 3"), []),
        ({"rule": "a-b", "must_say": ["line 4"]}, said("a-b", Severity.ERROR, "on line 3"), ["does not say 'line 4'"]),
        ({"must_not_say": ["oom"]}, said("a-b", Severity.ERROR, "an OOM"), ["says 'oom'"]),
    ],
)
def test_an_expectation_is_judged(expect: dict[str, object], judgement: Judgement, wrong: list[str]) -> None:
    assert list(faults(case(**expect), judgement)) == wrong


def test_a_folder_ends_with_its_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = OWN / "tree-neither.json"
    (tmp_path / "right.json").write_text(report.read_text())
    (tmp_path / "wrong.json").write_text(report.read_text().replace("y.txt", "z.txt").replace("z.txt:", "y.txt:"))
    (tmp_path / "none.json").write_text("[]")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 2 failed"


def test_no_case_is_no_pass(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1


def test_a_file_that_is_no_case_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}')
    with pytest.raises(CaseError, match=r"a\.json is no case file: the field `title` is missing; the field `kinds`"):
        load(tmp_path / "a.json")


def case_text(**other: object) -> str:
    fields = {"id": "c", "title": "t", "kinds": "tree", "input": {}, "expect": {}, **other}
    return json.dumps({name: value for name, value in fields.items() if value != "gone"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "it must be an object"),
        ('{\n"id": ,}', "a.json:2: not JSON"),
        ("\xff", "not JSON"),
        (case_text(expect="gone"), "the field `expect` is missing"),
        (case_text(input=[]), "`input` must be an object"),
        (case_text(kinds=7), "`kinds` must be a text or a list"),
        (case_text(expect={"must_say": "word"}), "`expect.must_say` must be a list"),
        (case_text(expect={"rule": ["a"]}), "`expect.rule` must be a text"),
        (case_text(input={"base": "y.txt: 'a", "patch": "x"}), "`input.base` must be"),
        (case_text(input={"tree": {"../out.txt": "x"}, "patch": "x"}), "no file inside a tree"),
        (case_text(input={"tree": {"a": "x", "a/b": "x"}, "patch": "x"}), "which a tree cannot have"),
    ],
)
def test_a_broken_case_is_told_with_its_file_and_field(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    assert main([str(tmp_path)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("FAIL  ")
    assert str(tmp_path / "a.json") in first
    assert words in first
    assert "Error" not in first
    assert last == "0 passed, 1 failed"
