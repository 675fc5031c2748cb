"""host.place: whether a workspace can be worked in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglforge.base.workspace import Workspace
from sglforge.host.place import judge_place


def refused(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Refuse to let anybody write to some folders; root, who runs these tests in CI, may write everywhere."""
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in paths and real(path, mode))


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workspace(root=tmp_path / "deep" / "er")
    assert judge_place(place) == ()
    refused(monkeypatch, tmp_path)
    (finding,) = judge_place(place)
    assert (finding.code, finding.where) == ("workspace-unusable", str(tmp_path))
    assert not (tmp_path / "deep").exists()


def test_a_part_that_belongs_to_somebody_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workspace(root=tmp_path)
    place.store.mkdir()
    place.runs.mkdir()
    refused(monkeypatch, place.store)
    assert [finding.where for finding in judge_place(place)] == [str(place.store)]


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_what_is_no_folder_is_said(tmp_path: Path, kind: str) -> None:
    place = Workspace(root=tmp_path / "place")
    if kind == "file":
        place.root.write_text("")
    else:
        place.root.symlink_to("/nonexistent/folder")
    (finding,) = judge_place(place)
    assert finding.message == "it is not a folder"
