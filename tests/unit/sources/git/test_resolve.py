"""Refs and what they are: branches, tags, commits, and those that are none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repositories import Repository, make_repository

from sglforge.base.workspace import Workspace
from sglforge.errors import LockError
from sglforge.sources.git import pin


def resolved(repository: Repository, ref: str, workspace: Workspace) -> str:
    return pin.newest(repository.url, ref, workspace=workspace, waiting=pytest.fail)


def test_branches_tags_and_full_names_are_commits(upstream: Repository, workspace: Workspace) -> None:
    tagged = upstream.git("rev-parse", "HEAD")
    upstream.git("tag", "--annotate", "v1.1", "--message", "one")
    upstream.git("tag", "--annotate", "again", "--message", "a tag of a tag", "v1.1")
    upstream.git("update-ref", "refs/pull/7/head", "HEAD")
    newer = upstream.commit({"python/engine.py": "ONE = 2\n"})
    for ref in ("v1.0", "v1.1", "again", "refs/tags/v1.1", "pull/7/head", "refs/pull/7/head"):
        assert resolved(upstream, ref, workspace) == tagged, ref
    for ref in ("main", "refs/heads/main", "HEAD"):
        assert resolved(upstream, ref, workspace) == newer, ref


def test_a_branch_is_what_it_is_now(upstream: Repository, workspace: Workspace) -> None:
    before = resolved(upstream, "main", workspace)
    after = upstream.commit({"python/engine.py": "ONE = 3\n"})
    assert resolved(upstream, "main", workspace) == after != before
    upstream.git("reset", "--quiet", "--hard", before)
    assert resolved(upstream, "main", workspace) == before


@pytest.mark.parametrize("protocol", [0, 2])
def test_a_commit_is_itself_also_when_its_branch_is_gone(
    upstream: Repository, workspace: Workspace, own_git: Path, protocol: int
) -> None:
    """A server may refuse to give out commits by their ids: then they are found in the branches."""
    own_git.write_text(f"[protocol]\nversion = {protocol}\n")
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "false")
    old = upstream.git("rev-parse", "HEAD~1")
    assert resolved(upstream, old, workspace) == old
    assert resolved(upstream, old.upper(), workspace) == old
    upstream.git("checkout", "--quiet", "--orphan", "other")
    upstream.commit({"x": "x"})
    upstream.git("branch", "--delete", "--force", "main")
    upstream.git("tag", "--delete", "v1.0")
    assert resolved(upstream, old, workspace) == old


def test_what_is_not_there_is_told_with_what_is_like_it(upstream: Repository, workspace: Workspace) -> None:
    upstream.git("branch", "release/v0.5.9")
    with pytest.raises(LockError, match="git-ref-missing") as caught:
        resolved(upstream, "mains", workspace)
    assert caught.value.hint == "did you mean `main`?"
    with pytest.raises(LockError, match="git-ref-missing") as caught:
        resolved(upstream, "release/0.5.9", workspace)
    assert caught.value.hint == "did you mean `release/v0.5.9`?"
    with pytest.raises(LockError, match="git-ref-missing") as caught:
        resolved(upstream, "zzzzzzzz", workspace)
    assert caught.value.hint == "it has: main, release/v0.5.9, v1.0"
    with pytest.raises(LockError, match="has no commit") as caught:
        resolved(upstream, "a" * 40, workspace)
    with pytest.raises(LockError, match="git-ref-missing") as caught:
        resolved(upstream, upstream.git("rev-parse", "--short=10", "HEAD"), workspace)
    assert "all 40 digits" in caught.value.hint


def test_an_empty_repository_says_so(tmp_path: Path, workspace: Workspace) -> None:
    with pytest.raises(LockError, match="neither branches nor tags"):
        resolved(make_repository(tmp_path / "empty"), "main", workspace)


def test_a_tag_and_a_branch_of_one_name_are_ambiguous_unless_they_are_the_same(
    upstream: Repository, workspace: Workspace
) -> None:
    upstream.git("branch", "next")
    upstream.git("tag", "next")
    assert resolved(upstream, "next", workspace) == upstream.git("rev-parse", "HEAD")
    tagged = upstream.git("rev-parse", "HEAD")
    newer = upstream.commit({"x": "x"})
    upstream.git("branch", "--force", "next", "main")
    with pytest.raises(LockError, match="git-ref-ambiguous") as caught:
        resolved(upstream, "next", workspace)
    assert caught.value.context == {"refs/tags/next": tagged, "refs/heads/next": newer}
    assert resolved(upstream, "refs/heads/next", workspace) == newer


def test_a_tag_of_a_file_is_no_commit(upstream: Repository, workspace: Workspace) -> None:
    upstream.git("tag", "blob", upstream.id_of("HEAD", "python/engine.py"))
    upstream.git("tag", "--annotate", "tree", "--message", "x", upstream.id_of("HEAD", "python"))
    with pytest.raises(LockError, match=r"blob of .* is a blob, not a commit"):
        resolved(upstream, "blob", workspace)
    with pytest.raises(LockError, match="git-ref-no-commit"):
        resolved(upstream, "tree", workspace)
    with pytest.raises(LockError, match="git-ref-no-commit"):
        resolved(upstream, upstream.id_of("HEAD", "python"), workspace)


def test_branches_whose_names_lie_in_one_another_may_follow_each_other(
    upstream: Repository, workspace: Workspace
) -> None:
    upstream.git("branch", "a")
    resolved(upstream, "a", workspace)
    upstream.git("branch", "--move", "a", "a/b")
    upstream.git("tag", "t")
    assert resolved(upstream, "a/b", workspace) == upstream.git("rev-parse", "HEAD")
    upstream.git("tag", "--delete", "t")
    upstream.git("tag", "t/u")
    assert resolved(upstream, "t/u", workspace) == upstream.git("rev-parse", "HEAD")
