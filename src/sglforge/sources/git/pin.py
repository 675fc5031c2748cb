"""Pin what a stack takes from git repositories: one commit for each repository and ref."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sglforge.base.download import redact
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit
from sglforge.config.model import GitSource
from sglforge.errors import FetchError, LockError
from sglforge.sources.git.bring import bring_files
from sglforge.sources.git.describe import describe, version_of
from sglforge.sources.git.mirror import Waiting, mirror_of, opened, put_aside
from sglforge.sources.git.resolve import resolve
from sglforge.sources.git.submodules import submodules
from sglforge.sources.git.trees import locked_paths, seen_paths


def newest(url: str, ref: str, *, workspace: Workspace, waiting: Waiting) -> str:
    """Return the commit that a ref is now, with its history and all tags in the mirror.

    Raises LockError ``git-ref-missing``, ``git-ref-ambiguous``, ``git-ref-no-commit``; FetchError.
    """
    mirror = mirror_of(url, workspace)
    with opened(mirror, workspace, waiting=waiting):
        try:
            return resolve(mirror, ref)
        except FetchError as error:
            if error.code != "mirror-damaged":
                raise
    with opened(mirror, workspace, waiting=waiting):
        put_aside(mirror)
    with opened(mirror, workspace, waiting=waiting):
        return resolve(mirror, ref)


def pin_commit(
    source: GitSource, commit: str, *, package: str, workspace: Workspace, waiting: Waiting, described: str = ""
) -> LockedGit:
    """Return what a lock says about a package at a commit.

    Args:
        source: What the stack asks for.
        commit: The commit.
        package: The package's name, for messages.
        workspace: Where mirrors are.
        waiting: Told for whom a run waits.
        described: How the commit is described, where that is known already.

    Raises LockError ``git-path-missing``, ``git-no-version-tag``, ``submodule-unknown``, ``submodule-unsafe`` and
    ``git-ref-missing``; FetchError.
    """

    bring = partial(bring_files, workspace=workspace, waiting=waiting)
    mirror = bring(source.url, commit, ())
    described = described or describe(mirror, commit)
    paths = seen_paths(source)
    return LockedGit(
        kind="git",
        url=source.url,
        ref=source.ref,
        commit=commit,
        described=described,
        version=source.version or _version(described, source, package),
        paths=locked_paths(mirror, commit, paths),
        submodules=list(submodules(mirror, commit, paths, bring=bring)),
    )


def still_holds(locked: LockedGit, source: GitSource) -> bool:
    """Tell whether a lock's entry says all that a stack asks for now, as far as it can be told without the mirror."""
    return (
        (locked.url, locked.ref) == (source.url, source.ref)
        and tuple(entry.path for entry in locked.paths) == seen_paths(source)
        and locked.version == (source.version or version_of(locked.described))
    )


def contradicted(locked: LockedGit, workspace: Workspace) -> bool:
    """Tell whether the commit that a lock names is here and has other trees than the lock says: a hand, or a merge of
    two locks, changed it.
    """
    mirror = mirror_of(locked.url, workspace)
    try:
        if not mirror.has_commit(locked.commit):
            return False
        return locked_paths(mirror, locked.commit, [entry.path for entry in locked.paths]) != locked.paths
    except LockError:  # it has no such path
        return True
    except FetchError:  # a mirror that cannot be read tells nothing
        return False


def groups(sources: Mapping[str, GitSource]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the packages that share a commit, by repository and ref."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for package, source in sources.items():
        found[source.url, source.ref] = (*found.get((source.url, source.ref), ()), package)
    return found


def kept_commit(
    packages: Sequence[str], sources: Mapping[str, GitSource], previous: Mapping[str, object]
) -> str | None:
    """Return the commit that a lock has for packages that share one, None where it has none or they differ."""
    found = {
        locked.commit
        for package in packages
        if isinstance(locked := previous.get(package), LockedGit)
        and (locked.url, locked.ref) == (sources[package].url, sources[package].ref)
    }
    return found.pop() if len(found) == 1 else None


def _version(described: str, source: GitSource, package: str) -> str:
    version = version_of(described)
    if version is None:
        raise LockError(
            code="git-no-version-tag",
            message=f"nothing says what version {package} is: no tag `v<version>` lies behind commit "
            f"{described} of {redact(source.url)}",
            hint=f'name it in the stack: packages.{package}.source: version = "1.2.3"',
        )
    return version
