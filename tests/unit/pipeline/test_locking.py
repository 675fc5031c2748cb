"""Whatever keeps a pin from being made is a failure of the lock, and the old lock stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from git_catalog import Mini, make_mini


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    made = make_mini(tmp_path, "toy")
    assert made.call("lock").code == 0
    return made


def test_a_repository_that_is_gone(mini: Mini, tmp_path: Path) -> None:
    before = mini.lock_text()
    shutil.rmtree(tmp_path / "upstream")
    called = mini.call("lock", "--update")
    assert (called.code, called.codes) == (3, {"git-repository-missing"})
    assert mini.lock_text() == before


def test_a_release_that_no_index_has(mini: Mini) -> None:
    before = mini.lock_text()
    mini.stack('[packages.toy]\nsource = { kind = "wheel", project = "toy", version = "1.0" }\n')
    called = mini.call("lock")
    assert (called.code, called.codes) == (3, {"not-on-index"})
    assert mini.lock_text() == before


def test_a_requirement_that_nothing_meets(mini: Mini) -> None:
    before = mini.lock_text()
    mini.stack('[packages.toy]\nsource = { kind = "path", path = "toy" }\n', '["nothing-like-it==1"]')
    (mini.root / "toy").mkdir()
    mini.recipe("toy", 'build-requires = ["torch"]')
    called = mini.call("lock")
    assert called.code == 3, called.talk
    assert mini.lock_text() == before
