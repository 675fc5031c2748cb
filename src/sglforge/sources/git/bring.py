"""Bring commits and files into mirrors, where they are not there yet."""

from __future__ import annotations

from collections.abc import Sequence

from sglforge.base.cancel import Cancellation
from sglforge.base.download import redact
from sglforge.base.workspace import Workspace
from sglforge.errors import FetchError
from sglforge.sources.git import trees
from sglforge.sources.git.mirror import Mirror, Waiting, mirror_of, opened
from sglforge.sources.git.resolve import bring_commit


def bring_files(
    url: str,
    commit: str,
    paths: Sequence[str],
    *,
    workspace: Workspace,
    waiting: Waiting,
    offline: bool = False,
    cancellation: Cancellation | None = None,
) -> Mirror:
    """Return the mirror of a URL that holds a commit, and every blob below some of its paths; nobody is asked where
    they are there.

    Raises LockError ``git-ref-missing``; FetchError.
    """
    mirror = mirror_of(url, workspace, offline=offline, cancellation=cancellation)
    if not mirror.has_commit(commit):
        with opened(mirror, workspace, waiting=waiting):
            bring_commit(mirror, commit)
    if not paths:
        return mirror
    entries = trees.files(mirror, commit, paths)
    if trees.missing_blobs(mirror, commit, entries):
        with opened(mirror, workspace, waiting=waiting):
            if absent := trees.missing_blobs(mirror, commit, entries):
                mirror.fetch_objects(absent)
            if absent := trees.missing_blobs(mirror, commit, entries):
                raise FetchError(
                    code="git-failed",
                    message=f"{redact(url)} did not give {len(absent)} files of commit {commit[:12]}",
                    hint="fetch again; a server that leaves out blobs must give them when it is asked",
                )
    return mirror
