"""Unpacked archives in the workspace: whole or not there, and made again when they are not what was unpacked."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

import sglforge
from sglforge.base import proc
from sglforge.base.files import sha256_file
from sglforge.base.treeid import tree_id, tree_id_of
from sglforge.base.workspace import Workspace
from sglforge.errors import FetchError
from sglforge.patches.upstream import MANIFEST, UpstreamTree, kept_tree, upstream_tree
from sglforge.sources.model import SourceArchive
from sglforge.sources.unpack import unpack

FILES = {"toy/__init__.py": "", "toy/a.py": "x = 1\n", "toy-1.0.dist-info/METADATA": "Version: 1.0\n"}


def archive_of(path: Path) -> SourceArchive:
    return SourceArchive(package="toy", path=path, sha256=sha256_file(path))


@pytest.fixture
def archive(tmp_path: Path) -> SourceArchive:
    path = tmp_path / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
        tool = zipfile.ZipInfo("toy/tool.sh")
        tool.external_attr = 0o100755 << 16
        wheel.writestr(tool, "#!/bin/sh\n")
    return archive_of(path)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "workspace")


def test_it_is_unpacked_once_and_the_archive_is_not_needed_again(archive: SourceArchive, workspace: Workspace) -> None:
    assert kept_tree(archive.sha256, workspace) is None
    first = upstream_tree(archive, workspace)
    assert (first.root / "toy/a.py").read_text() == "x = 1\n"
    assert tree_id_of(first.blobs) == tree_id(first.root)
    archive.path.unlink()
    assert kept_tree(archive.sha256, workspace) == upstream_tree(archive, workspace) == first


def test_a_source_archive_keeps_its_root(tmp_path: Path, workspace: Workspace) -> None:
    path = tmp_path / "toy-1.0.tar.gz"
    (tmp_path / "PKG-INFO").write_text("Version: 1.0\n")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "PKG-INFO", "toy-1.0/PKG-INFO")
    tree = upstream_tree(archive_of(path), workspace)
    assert [entry.name for entry in tree.root.iterdir()] == ["PKG-INFO"]
    assert set(tree.blobs) == {"PKG-INFO"}


def change(tree: UpstreamTree) -> None:
    (tree.root / "toy/a.py").write_text("x = 2\n")


def exchange(tree: UpstreamTree) -> None:
    path = tree.root / "toy/a.py"
    state = path.stat()
    other = path.with_name("other")
    other.write_text("x = 2\n")
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)


def lose(tree: UpstreamTree) -> None:
    (tree.root / "toy/a.py").unlink()


def gain(tree: UpstreamTree) -> None:
    (tree.root / "toy/__pycache__").mkdir()
    (tree.root / "toy/__pycache__/a.pyc").write_bytes(b"")


def make_a_pipe(tree: UpstreamTree) -> None:
    (tree.root / "toy/a.py").unlink()
    os.mkfifo(tree.root / "toy/a.py")


def cut_the_manifest(tree: UpstreamTree) -> None:
    path = tree.root.parent / MANIFEST
    path.write_text(path.read_text()[:-20])


def forge_the_manifest(tree: UpstreamTree) -> None:
    (tree.root.parent / MANIFEST).write_text('{"format": 1, "root": "tree", "files": []}')


def lose_the_tree(tree: UpstreamTree) -> None:
    shutil.rmtree(tree.root)


@pytest.mark.parametrize(
    "damage",
    [change, exchange, lose, gain, make_a_pipe, cut_the_manifest, forge_the_manifest, lose_the_tree],
)
def test_what_is_not_as_it_was_unpacked_is_unpacked_again(
    damage: object, archive: SourceArchive, workspace: Workspace
) -> None:
    first = upstream_tree(archive, workspace)
    assert callable(damage)
    damage(first)
    assert kept_tree(archive.sha256, workspace) is None
    again = upstream_tree(archive, workspace)
    assert tree_id(again.root) == tree_id_of(again.blobs) == tree_id_of(first.blobs)
    assert [entry.name for entry in workspace.trees.iterdir()] == [archive.sha256]


def test_a_bad_archive_leaves_nothing(tmp_path: Path, workspace: Workspace) -> None:
    path = tmp_path / "bad.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(FetchError) as caught:
        upstream_tree(archive_of(path), workspace)
    assert caught.value.code == "archive-corrupt"
    assert list(workspace.trees.iterdir()) == []


def test_several_at_once_unpack_once(
    archive: SourceArchive, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[Path] = []

    def slow(path: Path, into: Path) -> Path:
        unpacked.append(path)
        time.sleep(0.2)
        return unpack(path, into)

    monkeypatch.setattr("sglforge.patches.upstream.unpack", slow)
    found: list[UpstreamTree] = []
    threads = [threading.Thread(target=lambda: found.append(upstream_tree(archive, workspace))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(unpacked) == 1
    assert len(found) == 4
    assert all(tree == found[0] for tree in found)


KILLED = """
import os, signal, sys
from pathlib import Path
from sglforge.base.workspace import Workspace
from sglforge.patches import upstream
from sglforge.sources.model import SourceArchive

real = upstream.unpack

def unpack(path, into):
    real(path, into)
    os.kill(os.getpid(), signal.SIGKILL)

upstream.unpack = unpack
path, sha256, root = sys.argv[1:]
upstream.upstream_tree(SourceArchive(package="toy", path=Path(path), sha256=sha256), Workspace(root=Path(root)))
"""


def test_a_kill_leaves_nothing_that_counts_and_the_next_run_sweeps_it(
    archive: SourceArchive, workspace: Workspace
) -> None:
    source = str(Path(sglforge.__file__).parents[1])
    done = proc.run(
        [sys.executable, "-c", KILLED, archive.path, archive.sha256, workspace.root],
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [entry.name for entry in workspace.trees.iterdir() if not entry.name.startswith(".")] == []
    assert len(list(workspace.trees.iterdir())) == 1
    upstream_tree(archive, workspace)
    assert [entry.name for entry in workspace.trees.iterdir()] == [archive.sha256]
