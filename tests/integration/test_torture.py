"""A hundred rounds of torture, and the proof that they would notice."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from torture import reference
from torture.__main__ import main
from torture.reference import Reference
from torture.rounds import Report, play
from torture.scenario import Scenario

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

WHOLE = "        yield draft\n        try:\n            draft.rename(final)\n"
TORN = "        draft.rename(final)\n        yield final\n        try:\n            pass\n"


def test_a_hundred_rounds_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = main(["--rounds", "100", "--seed", "5", "--folder", str(tmp_path)])
    said = capsys.readouterr().out
    assert not lost, said
    print(said)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference.make(tmp_path_factory.mktemp("torture") / "reference")


def killed_in(phase: str, operation: int) -> Scenario:
    return Scenario(
        number=0,
        seed="0:0",
        fault="kill",
        phase=phase,
        start="fetched",
        verbs=(("build", "toy-wheel"),),
        operation=operation,
        part=0.0,
        shift_s=0.0,
    )


def broken(undisturbed: Reference, folder: Path, file: str, *, sound: str, instead: str) -> Reference:
    """Return the reference with an sglforge that has one thing wrong."""
    shutil.copytree(reference.SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "sglforge" / file
    text = path.read_text()
    assert text.count(sound) == 1
    path.write_text(text.replace(sound, instead))
    return dataclasses.replace(undisturbed, source=folder)


def test_an_entry_that_is_not_published_whole_is_noticed(undisturbed: Reference, tmp_path: Path) -> None:
    hasty = broken(undisturbed, tmp_path / "src", "base/files.py", sound=WHOLE, instead=TORN)
    operations = undisturbed.counts["build toy-wheel"]["store"]
    lost: list[Report] = []
    for operation in range(operations, operations // 2, -1):
        place = tmp_path / str(operation)
        place.mkdir()
        report = play(killed_in("store", operation), hasty, place)
        lost += [report] if report.lost else []
    assert any("has no provenance" in problem for report in lost for problem in report.problems)


def test_a_working_folder_that_stays_is_noticed(undisturbed: Reference, tmp_path: Path) -> None:
    path = "base/scratch.py"
    messy = broken(undisturbed, tmp_path / "src", path, sound="            if free or (", instead="            if (")
    (tmp_path / "round").mkdir()
    report = play(killed_in("unpack", 3), messy, tmp_path / "round")
    assert report.hit
    assert any("a working folder" in problem for problem in report.problems)
