"""Repositories in repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_locking import lock_of, source_of
from git_repositories import Repository, make_repository
from pydantic import ValidationError

from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit, LockedSubmodule
from sglforge.errors import FetchError, LockError
from sglforge.sources.git.export import export
from sglforge.sources.git.fetch import fetch_proven
from sglforge.sources.git.submodules import absolute


@pytest.fixture
def nested(tmp_path: Path, upstream: Repository) -> Repository:
    """The repository with a submodule beside it, named relatively, which has another one in it."""
    inner = make_repository(tmp_path / "inner")
    inner.commit({"inner.h": "#define INNER\n"})
    middle = make_repository(tmp_path / "libs" / "middle")
    middle.commit({"middle.h": "#define MIDDLE\n"})
    middle.git("submodule", "--quiet", "add", "--name", "odd name.url", "../../inner", "deps/inner")
    middle.commit()
    upstream.git("submodule", "--quiet", "add", "../libs/middle", "third/middle")
    upstream.commit()
    return upstream


def test_submodules_inside_the_paths_are_locked_and_exported(
    nested: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    locked = lock_of(source_of(nested, "python", "third"), workspace)
    middle = nested.id_of("HEAD", "third/middle")
    inner = Repository(path=tmp_path / "libs/middle").id_of(middle, "deps/inner")
    assert [(module.path, module.url, module.commit) for module in locked.submodules] == [
        ("third/middle", (tmp_path / "libs/middle").as_uri(), middle),
        ("third/middle/deps/inner", (tmp_path / "inner").as_uri(), inner),
    ]
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    for name in ("upstream", "libs", "inner"):
        (tmp_path / name).rename(tmp_path / f"{name}-moved")
    fetch_proven(locked, package="toy", workspace=workspace, offline=True, waiting=pytest.fail, command="c")
    tree = export(locked, tmp_path / "out", workspace=workspace)
    assert (tree / "third/middle/middle.h").read_text() == "#define MIDDLE\n"
    assert (tree / "third/middle/deps/inner/inner.h").read_text() == "#define INNER\n"
    assert not (tree / "include").exists()


def test_a_submodule_may_be_the_path_itself(nested: Repository, workspace: Workspace, tmp_path: Path) -> None:
    locked = lock_of(source_of(nested, "third/middle"), workspace)
    assert locked.paths[0].id == locked.submodules[0].commit
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    assert (export(locked, tmp_path / "out", workspace=workspace) / "third/middle/deps/inner/inner.h").is_file()


def test_submodules_elsewhere_do_not_count(nested: Repository, workspace: Workspace) -> None:
    assert lock_of(source_of(nested, "python"), workspace).submodules == []


def test_another_commit_of_a_submodule_is_another_source(nested: Repository, workspace: Workspace) -> None:
    before = lock_of(source_of(nested, "third", version="1.0"), workspace)
    module = Repository(path=nested.path / "third/middle")
    module.git("checkout", "--quiet", "HEAD~1")
    nested.commit()
    after = lock_of(source_of(nested, "third", version="1.0"), workspace)
    assert before.seen_by_build(None) != after.seen_by_build(None)


def test_a_gitlink_that_nothing_names_is_an_error(nested: Repository, workspace: Workspace) -> None:
    nested.git("rm", "--quiet", "--force", "--cached", ".gitmodules")
    nested.git("commit", "--quiet", "--message", "nobody knows")
    with pytest.raises(LockError, match="submodule-unknown"):
        lock_of(source_of(nested, "third"), workspace)


def test_a_repository_in_itself_ends(tmp_path: Path, workspace: Workspace) -> None:
    """Each commit names the one before it as a submodule; more than eight are refused."""
    repository = make_repository(tmp_path / "self")
    commit = repository.commit({"a": "a"})
    text = '[submodule "self"]\n\tpath = sub\n\turl = ../self\n'
    for number in range(10):
        (repository.path / ".gitmodules").write_text(text)
        repository.git("add", ".gitmodules")
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
        repository.git("commit", "--quiet", "--message", str(number))
        commit = repository.git("rev-parse", "HEAD")
    with pytest.raises(LockError, match="submodule-unsafe"):
        lock_of(source_of(repository, version="1.0"), workspace)


def test_a_submodule_may_lie_where_no_source_path_may(
    upstream: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    make_repository(tmp_path / "inner").commit({"inner.h": ""})
    upstream.git("submodule", "--quiet", "add", "../inner", "python/.deps/in ner é")
    upstream.commit()
    locked = lock_of(source_of(upstream, "python"), workspace)
    assert LockedGit.model_validate_json(locked.model_dump_json(by_alias=True)) == locked
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    assert (export(locked, tmp_path / "out", workspace=workspace) / "python/.deps/in ner é/inner.h").is_file()


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc", "a//b", ".", "..", "a/.", "", "a\\b", "a\nb"])
def test_a_lock_cannot_place_a_submodule_elsewhere(path: str) -> None:
    with pytest.raises(ValidationError):
        LockedSubmodule(path=path, url="https://host.example/x", commit="0" * 40)


def test_submodules_of_another_commit_contradict_the_lock(
    nested: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    """As a merge of two locks may leave it: each line is from one of them."""
    locked = lock_of(source_of(nested, "third", version="1.0"), workspace)
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    other = Repository(path=tmp_path / "libs/middle").git("rev-parse", "HEAD~1")
    first, second = locked.submodules
    for modules in ([first], [second], [first.model_copy(update={"commit": other}), second]):
        merged = locked.model_copy(update={"submodules": modules})
        with pytest.raises(LockError, match="lock-invalid"):
            fetch_proven(merged, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")


def test_what_a_damaged_submodule_mirror_holds_is_noticed(
    nested: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    locked = lock_of(source_of(nested, "third"), workspace)
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")
    for pack in (workspace.sources / "git").glob("*.git/objects/pack/*.pack"):
        pack.chmod(0o644)
        content = bytearray(pack.read_bytes())
        content[-30] ^= 0xFF
        pack.write_bytes(bytes(content))
    with pytest.raises(FetchError, match="mirror-damaged"):
        export(locked, tmp_path / "out", workspace=workspace)
    fetch_proven(locked, package="toy", workspace=workspace, offline=False, waiting=pytest.fail, command="c")


@pytest.mark.parametrize(
    ("url", "parent", "made"),
    [
        ("../b.git", "https://host.example/x/a.git", "https://host.example/x/b.git"),
        ("../../y/b", "https://host.example/x/a.git/", "https://host.example/y/b"),
        ("./b", "https://u:p@host.example/x/a", "https://u:p@host.example/x/a/b"),
        ("../b", "ssh://git@host.example:2222/x/a", "ssh://git@host.example:2222/x/b"),
        ("../b.git", "git@host.example:x/a.git", "git@host.example:x/b.git"),
        ("../b", "file:///srv/x/a", "file:///srv/x/b"),
        ("../b", "/srv/x/a", "/srv/x/b"),
        ("https://other.example/b", "https://host.example/x/a", "https://other.example/b"),
        ("git@other.example:b", "https://host.example/x/a", "git@other.example:b"),
        ("/srv/b", "/srv/x/a", "/srv/b"),
    ],
)
def test_addresses(url: str, parent: str, made: str) -> None:
    assert absolute(url, parent) == made


@pytest.mark.parametrize(
    ("url", "parent"),
    [
        ("../../../b", "https://host.example/a"),
        ("../../b", "git@host.example:a"),
        ("/etc", "https://host.example/x/a"),
        ("file:///etc", "https://host.example/x/a"),
        ("relative", "git@host.example:x/a"),
        ("relative", "/srv/x/a"),
        ("..", "file:///srv/x/a"),
        ("ext::sh -c id", "https://host.example/x/a"),
        ("ext::sh", "/srv/x/a"),
        ("--upload-pack=x", "/srv/x/a"),
        ("https://host.example/a b", "https://host.example/x/a"),
        ("../a b", "https://host.example/x/a"),
        ("../a\n", "https://host.example/x/a"),
        ("./a\x1b[0m", "/srv/x/a"),
        ("https://host.example/a\x1b[0m", "https://host.example/x/a"),
    ],
)
def test_addresses_that_are_not_followed(url: str, parent: str) -> None:
    with pytest.raises(LockError, match="submodule-unsafe"):
        absolute(url, parent)
