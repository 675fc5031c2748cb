"""Our tree id against real git's."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.base import proc
from sglforge.base.treeid import tree_id
from sglforge.errors import PatchError

EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The id that git gives to no files at all."""


def by_git(tree: Path, git_dir: Path) -> str:
    """Return what git write-tree says, undisturbed by configuration and by what the tree says about itself."""
    env = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(tree.parent),
    }
    proc.run(["git", "init", "--quiet", "--bare", git_dir], env=env)
    env |= {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(tree)}
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
    proc.run(["git", "add", "--force", "--all", "."], env=env, cwd=tree)
    return proc.run(["git", "write-tree"], env=env, cwd=tree).stdout.strip()


def fill(tree: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def test_a_tree_with_everything_that_misleads(tree: Path, tmp_path: Path) -> None:
    fill(
        tree,
        {
            "a/b.py": b"x = 1\r\n",
            "a.py": b"",
            "a-b": b"sorted between a.py and a/",
            "a0": b"$Id$\n",
            ".gitattributes": b"* text=auto eol=lf ident\n",
            ".gitignore": b"ignored\n*.pyc\n",
            "ignored": b"counts",
            "deep/.gitignore": b"*\n",
            "deep/er/big.bin": bytes(range(256)) * 5000,
            "tool.sh": b"#!/bin/sh\n",
            "ünï/ö": b"name that is not ASCII",
        },
    )
    (tree / "tool.sh").chmod(0o755)
    (tree / "a0").chmod(0o655)
    (tree / "empty" / "folders").mkdir(parents=True)
    (tree / "to-file").symlink_to("a.py")
    (tree / "to-folder").symlink_to("deep", target_is_directory=True)
    (tree / "dangling").symlink_to("/no/where")
    assert tree_id(tree) == by_git(tree, tmp_path / "git")


def test_no_files_at_all(tree: Path, tmp_path: Path) -> None:
    (tree / "empty").mkdir()
    assert tree_id(tree) == by_git(tree, tmp_path / "git") == EMPTY


def test_each_thing_that_counts_changes_it(tree: Path) -> None:
    fill(tree, {"a": b"1", "b": b"1"})
    seen = {tree_id(tree)}
    (tree / "a").write_bytes(b"2")
    seen.add(tree_id(tree))
    (tree / "b").chmod(0o755)
    seen.add(tree_id(tree))
    (tree / "a").rename(tree / "c")
    seen.add(tree_id(tree))
    (tree / "c").unlink()
    (tree / "c").symlink_to("2")
    seen.add(tree_id(tree))
    assert len(seen) == 5


def test_what_does_not_count_does_not(tree: Path) -> None:
    fill(tree, {"a": b"1"})
    before = tree_id(tree)
    fill(tree, {".git/config": b"", "empty/.git/HEAD": b""})
    os.utime(tree / "a", (1, 1))
    (tree / "a").chmod(0o600)
    assert tree_id(tree) == before


def test_a_socket_is_refused(tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "s"))
        with pytest.raises(PatchError) as caught:
            tree_id(tree)
    assert caught.value.code == "tree-unreadable"


NAMES = st.text(st.sampled_from("abé-._0 "), min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=40), max_size=8))
def test_any_tree_has_the_id_that_git_gives_it(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = set(files)
    kept = {name: data for name, data in files.items() if not any(other.startswith(f"{name}/") for other in names)}
    folder = tmp_path_factory.mktemp("any")
    tree = folder / "tree"
    tree.mkdir()
    fill(tree, kept)
    assert tree_id(tree) == by_git(tree, folder / "git")
