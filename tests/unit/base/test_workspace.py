"""base.workspace: where things are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base import workspace


def test_the_given_folder_wins_then_the_variable_then_the_user_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLFORGE_HOME", str(tmp_path / "variable"))
    assert workspace.locate(tmp_path / "given").root == tmp_path / "given"
    assert workspace.locate(None).root == tmp_path / "variable"
    monkeypatch.delenv("SGLFORGE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert workspace.locate(None).root == tmp_path / "data" / "sglforge"
