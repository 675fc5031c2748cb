"""base.workspace: where things are, and what killed runs left there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sglforge.base import workspace
from sglforge.base.workspace import Workspace


def test_the_given_folder_wins_then_the_variable_then_the_user_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLFORGE_HOME", str(tmp_path / "variable"))
    assert workspace.locate(tmp_path / "given").root == tmp_path / "given"
    assert workspace.locate(None).root == tmp_path / "variable"
    monkeypatch.delenv("SGLFORGE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert workspace.locate(None).root == tmp_path / "data" / "sglforge"


def test_only_what_was_abandoned_is_swept(tmp_path: Path) -> None:
    place = Workspace(root=tmp_path)
    assert workspace.sweep_scratch(place) == ()
    for name in ("old", "young"):
        (place.scratch / name).mkdir(parents=True)
        (place.scratch / name / "file").write_text("x")
    past = time.time() - 3 * 24 * 3600
    os.utime(place.scratch / "old", (past, past))
    assert workspace.sweep_scratch(place) == (place.scratch / "old",)
    assert [path.name for path in place.scratch.iterdir()] == ["young"]
