"""A hundred rounds of torture, and the proof that they would notice."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from torture import reference
from torture.__main__ import main
from torture.reference import Reference
from torture.rounds import play
from torture.scenario import Scenario

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

PLACED = "            _place(wheel, object_path(workspace.store, made))\n"
WRITTEN = "            write_bytes(path, dump(made), mode=READ_ONLY)\n"


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
        number=1,
        seed="0:1",
        fault="kill",
        phase=phase,
        start="fetched",
        verbs=(("build", "toy-wheel"),),
        operation=operation,
        part=0.0,
        shift_s=0.0,
    )


def broken(undisturbed: Reference, folder: Path, file: str, **changes: str) -> Reference:
    """Return the reference with an sglforge that has one thing wrong: pairs of `sound...` and `wrong...` texts."""
    shutil.copytree(reference.SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "sglforge" / file
    text = path.read_text()
    for name in (name for name in changes if name.startswith("sound")):
        assert text.count(changes[name]) == 1, changes[name]
        text = text.replace(changes[name], changes[name.replace("sound", "wrong")])
    path.write_text(text)
    return dataclasses.replace(undisturbed, source=folder)


def test_an_entry_that_comes_before_its_wheel_is_noticed(undisturbed: Reference, tmp_path: Path) -> None:
    hasty = broken(
        undisturbed,
        tmp_path / "src",
        "build/store.py",
        sound_place=PLACED,
        wrong_place="",
        sound_entry=WRITTEN,
        wrong_entry=WRITTEN + PLACED,
    )
    problems: list[str] = []
    for operation in range(undisturbed.counts["build toy-wheel"]["store"], 0, -1):
        place = tmp_path / str(operation)
        place.mkdir()
        problems += play(killed_in("store", operation), hasty, place).problems
        if problems:
            break
    assert any("damaged" in problem and "is not there" in problem for problem in problems), problems


def test_a_working_folder_that_stays_is_noticed(undisturbed: Reference, tmp_path: Path) -> None:
    messy = broken(
        undisturbed,
        tmp_path / "src",
        "base/scratch.py",
        sound="            if free or (",
        wrong="            if (",
    )
    (tmp_path / "round").mkdir()
    report = play(killed_in("unpack", 3), messy, tmp_path / "round")
    assert report.hit
    assert any("a working folder" in problem for problem in report.problems)
