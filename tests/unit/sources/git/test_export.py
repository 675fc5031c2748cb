"""What a build sees of a commit: the right files, as git keeps them, and no others."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from git_locking import lock_of, mirror_here, source_of
from git_repositories import Repository, git, make_repository
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.base.treeid import tree_id
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit, LockedPath
from sglforge.errors import FetchError, LockError
from sglforge.sources.git import pin, trees
from sglforge.sources.git.export import export
from sglforge.sources.git.fetch import fetch, fetch_proven
from sglforge.sources.git.worktree import Worktree


def fetched(locked: LockedGit, workspace: Workspace, *, offline: bool = False) -> None:
    fetch(locked, package="toy", workspace=workspace, offline=offline, waiting=pytest.fail)


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def test_only_the_locked_paths_come_laid_out_as_upstream(
    upstream: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    locked = lock_of(source_of(upstream, "python", "include/deep", "tool.sh"), workspace)
    fetched(locked, workspace)
    tree = export(locked, tmp_path / "out", workspace=workspace)
    assert files_of(tree) == {"python/engine.py", "python/link", "include/deep/b.h", "tool.sh"}
    assert (tree / "python/link").readlink() == Path("engine.py")
    assert stat.S_IMODE((tree / "tool.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "python/engine.py").stat().st_mode) == 0o644
    assert files_of(tmp_path / "ws/scratch") == set()


def test_without_paths_the_packages_folder_or_all_is_seen(upstream: Repository, workspace: Workspace) -> None:
    source = source_of(upstream)
    head = upstream.git("rev-parse", "HEAD")
    assert lock_of(source, workspace).paths == [LockedPath(path=".", id=upstream.id_of(head, "."))]
    inside = source.model_copy(update={"subdirectory": "python"})
    assert lock_of(inside, workspace).paths == [LockedPath(path="python", id=upstream.id_of(head, "python"))]


def test_paths_may_lie_in_one_another(upstream: Repository, workspace: Workspace, tmp_path: Path) -> None:
    paths = ("include", "include/deep", "include/deep/b.h", "python/engine.py")
    locked = lock_of(source_of(upstream, *reversed(paths)), workspace)
    assert [(entry.path, entry.id) for entry in locked.paths] == [
        (path, upstream.id_of("HEAD", path)) for path in paths
    ]
    fetched(locked, workspace)
    tree = export(locked, tmp_path / "out", workspace=workspace)
    assert files_of(tree) == {"include/a.h", "include/deep/b.h", "python/engine.py"}


def test_the_whole_repository_is_what_git_says(upstream: Repository, workspace: Workspace, tmp_path: Path) -> None:
    locked = lock_of(source_of(upstream), workspace)
    fetched(locked, workspace)
    assert tree_id(export(locked, tmp_path / "out", workspace=workspace)) == upstream.id_of("HEAD", ".")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_do_not_hang_on_the_umask(upstream: Repository, workspace: Workspace, tmp_path: Path, umask: int) -> None:
    locked = lock_of(source_of(upstream), workspace)
    fetched(locked, workspace)
    before = os.umask(umask)
    try:
        tree = export(locked, tmp_path / "out", workspace=workspace)
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tree / name).stat().st_mode) for name in ("tool.sh", "include/a.h")} == {0o755, 0o644}


def test_nothing_converts_what_git_keeps(
    upstream: Repository, workspace: Workspace, tmp_path: Path, own_git: Path
) -> None:
    """Attributes of the repository and settings of the user, which a checkout would obey."""
    own_git.write_text('[core]\nautocrlf = true\neol = crlf\n[filter "shout"]\nsmudge = tr a-z A-Z\nrequired = true\n')
    raw: dict[str, str | bytes] = {
        ".gitattributes": "*.py text eol=crlf\n*.c filter=shout\n*.h ident\n*.u working-tree-encoding=UTF-16\n",
        "a.py": b"x = 1\ny = 2\n", "a.c": b"int a;\n", "a.h": b"/* $Id$ */\n", "a.u": b"plain\n", "b.py": b"z\r\n",
    }  # fmt: skip
    upstream.commit(raw)
    locked = lock_of(source_of(upstream), workspace)
    fetched(locked, workspace)
    tree = export(locked, tmp_path / "out", workspace=workspace)
    assert {name: (tree / name).read_bytes() for name in raw if name != ".gitattributes"} == {
        name: content for name, content in raw.items() if name != ".gitattributes"
    }


def test_a_path_that_is_not_there_is_told_with_the_nearest_one(upstream: Repository, workspace: Workspace) -> None:
    for path, near in (("python3", "python"), ("python/engin.py", "python/engine.py"), ("deep", "include/deep")):
        with pytest.raises(LockError, match="git-path-missing") as caught:
            lock_of(source_of(upstream, path), workspace)
        assert caught.value.hint == f"did you mean `{near}`?"
    with pytest.raises(LockError, match="git-path-missing") as caught:
        lock_of(source_of(upstream, "qqq"), workspace)
    assert caught.value.hint == "at its top it has: include, python, tool.sh"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "loop"])
def test_links_out_of_the_tree_are_refused(
    upstream: Repository, workspace: Workspace, tmp_path: Path, target: str
) -> None:
    (upstream.path / "python" / "loop").symlink_to(target)
    upstream.commit()
    locked = lock_of(source_of(upstream, "python"), workspace)
    fetched(locked, workspace)
    with pytest.raises(FetchError, match="source-path-unsafe"):
        export(locked, tmp_path / "out", workspace=workspace)


def test_a_link_to_what_is_not_exported_stays_inside_and_leads_nowhere(
    upstream: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    (upstream.path / "python" / "header").symlink_to("../include/a.h")
    upstream.commit()
    locked = lock_of(source_of(upstream, "python"), workspace)
    fetched(locked, workspace)
    tree = export(locked, tmp_path / "out", workspace=workspace)
    assert not (tree / "python/header").exists()


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", ".git ", ".git...", "git~1", ".git::$INDEX_ALLOCATION"])
def test_names_that_would_leave_the_folder_are_refused(upstream: Repository, workspace: Workspace, name: str) -> None:
    """git itself makes no such trees, but a repository may hold one."""
    blob = upstream.id_of("HEAD", "tool.sh")
    entry = f"100644 {name}\0".encode() + bytes.fromhex(blob)
    made = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        input=entry, cwd=upstream.path, capture_output=True, check=True,
    )  # fmt: skip
    tree = made.stdout.decode().strip()
    commit = upstream.git("commit-tree", tree, "-m", "evil", "-p", "HEAD")
    upstream.git("update-ref", "refs/heads/evil", commit)
    with pytest.raises(FetchError, match="source-path-unsafe"):
        lock_of(source_of(upstream, ref="evil"), workspace)


def test_a_file_that_git_does_not_write_is_named(upstream: Repository, workspace: Workspace, tmp_path: Path) -> None:
    blob = upstream.git("hash-object", "-w", "python/engine.py")
    upstream.git("config", "core.protectNTFS", "false")
    upstream.git("update-index", "--add", "--cacheinfo", f"120000,{blob},python/gitmod~1")
    upstream.git("commit", "--quiet", "--message", "a link that Windows would take for .gitmodules")
    locked = lock_of(source_of(upstream, "python"), workspace)
    fetch(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail)
    with pytest.raises(FetchError, match=r"python/gitmod~1.*source-path-unsafe"):
        export(locked, tmp_path / "out", workspace=workspace)


def test_a_flipped_byte_in_the_mirror_is_noticed_and_fetch_makes_it_again(
    upstream: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    upstream.commit({"python/big.bin": os.urandom(100_000)})
    locked = lock_of(source_of(upstream, "python"), workspace)
    fetched(locked, workspace)
    mirror = mirror_here(upstream, workspace)
    for pack in mirror.path.glob("objects/pack/*.pack"):
        pack.chmod(0o644)
        content = bytearray(pack.read_bytes())
        content[len(content) // 2] ^= 1
        pack.write_bytes(bytes(content))
    with pytest.raises(FetchError, match="mirror-damaged"):
        export(locked, tmp_path / "out", workspace=workspace)
    with pytest.raises(FetchError, match="mirror-damaged"):
        fetch_proven(locked, package="toy", workspace=workspace, offline=True, waiting=pytest.fail, command="c")
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    export(locked, tmp_path / "again", workspace=workspace)
    assert mirror.path.with_name(f"{mirror.path.name}.damaged").is_dir()


def test_a_lock_that_names_another_tree_is_not_obeyed_in_silence(
    upstream: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    locked = lock_of(source_of(upstream, "python"), workspace)
    fetched(locked, workspace)
    other = locked.model_copy(update={"paths": [LockedPath(path="python", id="0" * 40)]})
    with pytest.raises(LockError, match="names other trees than commit"):
        export(other, tmp_path / "out", workspace=workspace)


def test_what_was_fetched_needs_no_repository_any_more(
    upstream: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    locked = lock_of(source_of(upstream, "python"), workspace)
    with pytest.raises(FetchError, match="offline-missing"):
        export(locked, tmp_path / "early", workspace=workspace)
    fetched(locked, workspace)
    upstream.path.rename(tmp_path / "moved")
    fetched(locked, workspace, offline=True)
    fetched(locked, workspace)
    assert (export(locked, tmp_path / "out", workspace=workspace) / "python/engine.py").read_text() == "ONE = 1\n"
    with pytest.raises(FetchError, match="offline-missing"):
        fetched(locked.model_copy(update={"commit": "0" * 40}), workspace, offline=True)


def test_only_the_blobs_of_the_locked_paths_are_brought(upstream: Repository, workspace: Workspace) -> None:
    locked = lock_of(source_of(upstream, "python"), workspace)
    mirror = mirror_here(upstream, workspace)
    everything = trees.files(mirror, locked.commit)
    assert set(trees.missing_blobs(mirror, locked.commit, everything)) == {entry.id for entry in everything.values()}
    fetched(locked, workspace)
    absent = trees.missing_blobs(mirror, locked.commit, everything)
    assert set(absent) == {everything[name].id for name in ("include/a.h", "include/deep/b.h", "tool.sh")}


def test_a_server_that_leaves_out_nothing_gives_everything(tmp_path: Path, workspace: Workspace) -> None:
    repository = make_repository(tmp_path / "whole", blobless=False)
    repository.commit({"a/b": "c", "d": "e"})
    repository.git("tag", "v1")
    locked = lock_of(source_of(repository, "a"), workspace)
    mirror = mirror_here(repository, workspace)
    assert trees.missing_blobs(mirror, locked.commit, trees.files(mirror, locked.commit)) == []
    fetched(locked, workspace)
    assert files_of(export(locked, tmp_path / "out", workspace=workspace)) == {"a/b"}


NAMES = st.lists(st.sampled_from(["a", "b", "c-d", "e.f"]), min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(NAMES, st.binary(max_size=8), min_size=1, max_size=6)


def without_conflicts(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Drop files that would be folders of others."""
    return {name: raw for name, raw in tree.items() if not any(other.startswith(f"{name}/") for other in tree)}


@given(history=st.lists(st.tuples(TREES, st.booleans()), min_size=1, max_size=4), data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_locks_and_exports_equal_what_git_says(
    history: list[tuple[dict[str, bytes], bool]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Small histories: ids, descriptions and trees are git's own, and a moved tree is the same as a new one."""
    folder = tmp_path_factory.mktemp("history")
    workspace = Workspace(root=folder / "ws")
    repository = make_repository(folder / "upstream")
    repository.commit({"zero": "0"})
    repository.git("tag", "--annotate", "v0.1", "--message", "x")
    commits = []
    for number, (files, tagged) in enumerate(history):
        git("rm", "-r", "-q", "--ignore-unmatch", ".", cwd=repository.path)
        commits.append(repository.commit(dict(without_conflicts(files))))
        if tagged:
            repository.git("tag", f"v0.{number + 2}")
    moving = Worktree(folder / "moving", index=folder / "index")
    for number, commit in enumerate(commits):
        names = sorted(without_conflicts(history[number][0]))
        folders = {name.rpartition("/")[0] for name in names} - {""}
        path = data.draw(st.sampled_from(sorted({*names, *folders, "."})))
        source = source_of(repository, *([] if path == "." else [path]), ref=commit)
        locked = lock_of(source, workspace)
        assert locked.commit == commit
        assert locked.paths[0].id == repository.id_of(commit, path)
        assert locked.described.partition("-g")[0] == repository.git("describe", "--tags", commit).partition("-g")[0]
        fetched(locked, workspace)
        tree = export(locked, folder / f"out{number}", workspace=workspace)
        below = {name for name in names if path in {".", name} or name.startswith(f"{path}/")}
        assert files_of(tree) == below
        moving.move(mirror_here(repository, workspace), trees.files(mirror_here(repository, workspace), commit, [path]))
        assert tree_id(moving.folder) == tree_id(tree)
    assert pin.newest(repository.url, "main", workspace=workspace, waiting=pytest.fail) == commits[-1]
