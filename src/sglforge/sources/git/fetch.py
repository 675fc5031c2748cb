"""Bring all that a build sees of a locked commit, so that no network is needed afterwards."""

from __future__ import annotations

from sglforge.base.cancel import Cancellation
from sglforge.base.download import redact
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit
from sglforge.errors import FetchError, LockError
from sglforge.sources.git import trees
from sglforge.sources.git.bring import bring_files
from sglforge.sources.git.export import export
from sglforge.sources.git.mirror import Waiting, mirror_of, opened, put_aside
from sglforge.sources.model import SourceCommit


def fetch(
    locked: LockedGit,
    *,
    package: str,
    workspace: Workspace,
    offline: bool,
    waiting: Waiting,
    command: str = "nox -s fetch",
    cancellation: Cancellation | None = None,
) -> SourceCommit:
    """Bring a locked commit with the files that the build sees, where they are not here; ask nobody where they are.

    Args:
        locked: The commit and its paths.
        package: The package's name.
        workspace: Where mirrors are.
        offline: Whether only repositories on this machine may be asked.
        waiting: Told for whom a run waits.
        command: What brings it, for a hint where it may not be fetched.
        cancellation: What ends it.

    Raises FetchError, ``offline-missing`` among others.
    """
    wanted = [(locked.url, locked.commit, tuple(entry.path for entry in locked.paths))]
    wanted += [(module.url, module.commit, (trees.WHOLE,)) for module in locked.submodules]
    for url, commit, paths in wanted:
        try:
            bring_files(
                url, commit, paths, workspace=workspace, waiting=waiting, offline=offline, cancellation=cancellation
            )
        except (FetchError, LockError) as error:
            if not offline or error.code in {"disk-full", "git-missing", "mirror-damaged"}:
                raise
            raise FetchError(
                code="offline-missing",
                message=f"commit {commit[:12]} of {redact(url)} was never fetched, or not all of it",
                context={"cause": error.message},
                hint=f"run it once with a network: {command}",
            ) from error
    return SourceCommit(package=package, mirror=mirror_of(locked.url, workspace).path, locked=locked)


def fetch_proven(
    locked: LockedGit,
    *,
    package: str,
    workspace: Workspace,
    offline: bool,
    waiting: Waiting,
    command: str,
    cancellation: Cancellation | None = None,
) -> SourceCommit:
    """Do what :func:`fetch` does, then export everything and hash it; a damaged mirror is made again, once.

    Raises FetchError.
    """
    for again in (False, True):
        try:
            found = fetch(
                locked,
                package=package,
                workspace=workspace,
                offline=offline,
                waiting=waiting,
                command=command,
                cancellation=cancellation,
            )
            with working_folder(workspace, "proof") as folder:
                export(locked, folder / package, workspace=workspace, command=command)
        except FetchError as error:
            if error.code != "mirror-damaged" or offline or again:
                raise
            for url in {locked.url, *(module.url for module in locked.submodules)}:
                mirror = mirror_of(url, workspace)
                with opened(mirror, workspace, waiting=waiting):
                    put_aside(mirror)
        else:
            return found
    raise AssertionError("a second attempt ends in one way or the other")
