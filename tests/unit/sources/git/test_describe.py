"""Versions of commits."""

from __future__ import annotations

import pytest
from git_locking import lock_of, source_of
from git_repositories import Repository
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from sglforge.base.workspace import Workspace
from sglforge.errors import LockError
from sglforge.sources.git.describe import version_of

TAGS = st.builds(
    "{}{}{}{}".format,
    st.lists(st.integers(0, 99), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts))),
    st.sampled_from(["", "a0", "b3", "rc1"]),
    st.sampled_from(["", ".post1"]),
    st.sampled_from(["", ".dev4"]),
)


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v0.5.23", "0.5.23"),
        ("v0.5.23-14-g0123456789ab", "0.5.24.dev0"),
        ("v0.5.23.post1-1-g0123456789ab", "0.5.24.dev0"),
        ("v0.5.24rc0-3-g0123456789ab", "0.5.24rc1.dev0"),
        ("v0.5.24a2-3-g0123456789ab", "0.5.24a3.dev0"),
        ("v0.5.24rc1.post2-3-g0123456789ab", "0.5.24rc2.dev0"),
        ("v0.5.24.dev3-3-g0123456789ab", "0.5.24.dev4"),
        ("v0.5.23-branch-14-g0123456789ab", "0.5.24.dev0"),
        ("v0.5-3-g0123456789ab", "0.5.1.dev0"),
        ("v1.2.3.4-3-g0123456789ab", "1.2.3.5.dev0"),
        ("0123456789ab", None),
        ("gateway-v0.3.1-3-g0123456789ab", None),
    ],
)
def test_versions(described: str, version: str | None) -> None:
    assert version_of(described) == version


@given(TAGS)
def test_what_comes_after_a_tag_is_newer_than_it_and_older_than_what_follows(tag: str) -> None:
    after = version_of(f"v{tag}-1-g0123456789ab")
    assert after is not None
    here, later = Version(tag), Version(after)
    assert later > here
    assert later.is_devrelease
    assert version_of(f"v{tag}") == str(here)


def test_a_release_on_a_branch_of_its_own_is_told_by_where_its_branch_began(
    upstream: Repository, workspace: Workspace
) -> None:
    """So SGLang tags: main does not descend from any release since 0.5.6.post2."""

    def told(ref: str) -> tuple[str, str]:
        locked = lock_of(source_of(upstream, "python", ref=ref), workspace)
        return locked.described.rpartition("-g")[0] or locked.described, locked.version

    upstream.git("tag", "v1.0.1")
    upstream.commit({"x": "on the way"})
    for version in ("1.0.2", "1.0.3"):
        upstream.git("checkout", "-q", "-b", f"release/{version}")
        upstream.commit({"y": f"pins of {version}"})
        upstream.git("tag", f"v{version}rc1")
        upstream.commit({"y": f"more pins of {version}"})
        upstream.git("tag", f"v{version}")
        upstream.commit({"y": f"a mend of {version}"})
        upstream.git("checkout", "-q", "main")
        upstream.commit({"x": f"after {version}"})
    upstream.commit({"x": "newer still"})
    assert told("main") == ("v1.0.3-branch-2", "1.0.4.dev0")
    assert told("release/1.0.3") == ("v1.0.3-1", "1.0.4.dev0")
    assert told("release/1.0.2") == ("v1.0.2-1", "1.0.3.dev0")
    assert told(upstream.git("rev-parse", "main~2")) == ("v1.0.2-branch-1", "1.0.3.dev0")
    assert told(upstream.git("rev-parse", "main~3")) == ("v1.0.1-1", "1.0.2.dev0")
    assert told("v1.0.2") == ("v1.0.2", "1.0.2")


def test_only_tags_that_are_versions_count(upstream: Repository, workspace: Workspace) -> None:
    for name in ("gateway-v0.3.1", "v2", "vnext", "v9.9-rc.1", "1.1", "v3.0+local"):
        upstream.commit({"x": name})
        upstream.git("tag", name)
    head = upstream.commit({"x": "y"})
    locked = lock_of(source_of(upstream, "python"), workspace)
    assert locked.described == f"v2-5-g{head[:12]}"
    assert locked.version == "2.0.1.dev0"


def test_of_several_tags_on_a_commit_the_highest_counts(upstream: Repository, workspace: Workspace) -> None:
    upstream.git("tag", "v1.0.post1")
    upstream.git("tag", "--annotate", "v1.0rc1", "--message", "annotated tags come first in git describe")
    assert lock_of(source_of(upstream, "python"), workspace).described == "v1.0.post1"
    upstream.commit({"x": "y"})
    assert lock_of(source_of(upstream, "python"), workspace).described.startswith("v1.0.post1-1-g")


def test_the_distance_is_not_in_the_version(upstream: Repository, workspace: Workspace) -> None:
    upstream.commit({"x": "1"})
    first = lock_of(source_of(upstream, "python"), workspace)
    upstream.commit({"x": "2"})
    second = lock_of(source_of(upstream, "python"), workspace)
    assert first.described != second.described
    assert first.version == second.version == "1.0.1.dev0"
    assert first.seen_by_build(None) == second.seen_by_build(None)


def test_without_a_tag_the_stack_must_name_the_version(upstream: Repository, workspace: Workspace) -> None:
    upstream.git("tag", "--delete", "v1.0")
    with pytest.raises(LockError, match="git-no-version-tag") as caught:
        lock_of(source_of(upstream, "python"), workspace)
    assert 'version = "1.2.3"' in caught.value.hint
    locked = lock_of(source_of(upstream, "python", version="0.4.10"), workspace)
    assert locked.version == "0.4.10"
    assert locked.described == locked.commit[:12]


def test_a_tag_that_goes_upstream_goes_here(upstream: Repository, workspace: Workspace) -> None:
    upstream.commit({"x": "1"})
    upstream.git("tag", "v2.0")
    assert lock_of(source_of(upstream, "python"), workspace).version == "2.0"
    upstream.git("tag", "--delete", "v2.0")
    assert lock_of(source_of(upstream, "python"), workspace).version == "1.0.1.dev0"
