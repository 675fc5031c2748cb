"""Folders as sources: what counts, what does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sglforge.errors import FetchError
from sglforge.sources.paths import copy_folder, digest_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "src" / "toy" / "build").mkdir(parents=True)
    (root / "pyproject.toml").write_text("x")
    (root / "src" / "toy" / "__init__.py").write_text("y")
    (root / "src" / "toy" / "build" / "real.py").write_text("a module that happens to be called build")
    (root / "run.sh").write_text("z")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("src/toy")
    return root


def change_content(root: Path) -> None:
    (root / "pyproject.toml").write_text("X")


def change_name(root: Path) -> None:
    (root / "pyproject.toml").rename(root / "setup.py")


def change_bit(root: Path) -> None:
    (root / "run.sh").chmod(0o644)


def change_link(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("src")


def change_in_build_package(root: Path) -> None:
    (root / "src" / "toy" / "build" / "real.py").write_text("other")


def move_a_byte(root: Path) -> None:
    (root / "pyproject.toml").write_text("xy")
    (root / "src" / "toy" / "__init__.py").write_text("")


@pytest.mark.parametrize(
    "change", [change_content, change_name, change_bit, change_link, change_in_build_package, move_a_byte]
)
def test_what_counts_changes_the_digest(folder: Path, change: Callable[[Path], None]) -> None:
    before = digest_folder(folder)
    change(folder)
    assert digest_folder(folder) != before


def test_what_builds_leave_behind_does_not_count(folder: Path) -> None:
    before = digest_folder(folder)
    for name in (
        "build/x",
        "dist/x.whl",
        ".venv/x",
        "toy.egg-info/x",
        "src/toy/__pycache__/x.pyc",
        ".git/HEAD",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left behind")
    (folder / "src" / "toy" / "old.pyc").write_text("x")
    (folder / "src" / "empty").mkdir()
    os.utime(folder / "pyproject.toml", (1, 1))
    (folder / "pyproject.toml").chmod(0o600)
    assert digest_folder(folder) == before


def test_the_place_does_not_count_and_a_copy_is_the_same(folder: Path, tmp_path: Path) -> None:
    (folder / "build").mkdir()
    (folder / "build" / "old").write_text("x")
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved, symlinks=True)
    copy = tmp_path / "deep" / "copy"
    copy_folder(moved, copy)
    assert digest_folder(copy) == digest_folder(moved) == digest_folder(folder)
    assert not (copy / "build").exists()
    assert (copy / "run.sh").stat().st_mode & 0o100
    assert (copy / "link").is_symlink()


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="source-path-missing"):
        digest_folder(tmp_path / "none")


def test_links_out_and_special_files_are_refused(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    (folder / "out").symlink_to(outside)
    with pytest.raises(FetchError, match="source-path-unsafe") as caught:
        digest_folder(folder)
    assert caught.value.where == str(folder / "out")
    (folder / "out").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(FetchError, match="source-path-unsafe"):
        digest_folder(folder)
    (folder / "pipe").unlink()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x")
    with pytest.raises(FetchError, match="source-path-unsafe"):
        digest_folder(folder)
