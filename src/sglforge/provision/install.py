"""From a plan and its wheels to an environment with a receipt."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sglforge.base import files, proc
from sglforge.base.exclusive import exclusive
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.proc import Runner
from sglforge.base.workspace import Workspace
from sglforge.errors import Finding, InstallError
from sglforge.provision.progress import Progress, silent
from sglforge.provision.receipt import RECEIPT, Environment, read_environment, write_receipt
from sglforge.provision.verify import quick

if TYPE_CHECKING:
    from sglforge.base.index_locations import IndexLocations
    from sglforge.plan import BuildPlan
    from sglforge.provision.python import Interpreter

Check = Callable[[Environment], tuple[Finding, ...]]


class Wheel(Protocol):
    """What is needed of a wheel that we built: its key, its file, the file's hash."""

    @property
    def key(self) -> BuildKey: ...
    @property
    def path(self) -> Path: ...
    @property
    def sha256(self) -> Sha256: ...


def install(
    plan: BuildPlan,
    wheels: Sequence[Wheel],
    *,
    name: str,
    interpreter: Interpreter,
    workspace: Workspace,
    locations: IndexLocations,
    offline: bool = False,
    log: Path | None = None,
    progress: Progress = silent,
    run: Runner = proc.run,
    check: Check = quick,
) -> Environment:
    """Make the environment of a plan, or return the one that is there and unchanged.

    It is made at ``environments/<environment key>``; ``environments/<name>`` points at it once it is whole.
    An environment without a receipt, or one that was changed, is made again from nothing; what was changed in it
    is then held to its RECORD, for uv's cache may have the same change.

    Args:
        plan: Key, target, stack and the locked Python section.
        wheels: The built wheels of the plan.
        name: The environment's name.
        interpreter: The Python that it is made from.
        workspace: Where it is made.
        locations: Package locations, as pip's configuration states them.
        offline: Whether only what is on this machine may be used.
        log: File for the full output of uv.
        progress: Told which part is being done.
        run: Runs processes.
        check: Tells what was changed in the environment that is there.

    Raises InstallError (``torch-variant-missing``, ``environment-busy``, ``file-owned-twice``, ...) and
    FetchError (``offline-missing``, ``network-unreachable``, ``hash-mismatch``).
    """
    folder = workspace.environments / plan.environment_key
    from sglforge.provision.make import make_environment

    with exclusive(environment_lock(workspace, plan.environment_key), waiting=lambda note: progress(note=note)):
        before = _read(folder, name)
        changes = check(before) if before else ()
        if before and not changes:  # another run has made it meanwhile
            return _named(before)
        _clear(folder)
        with _room_made(folder):
            receipt = make_environment(
                plan,
                wheels,
                name=name,
                folder=folder,
                interpreter=interpreter,
                workspace=workspace,
                locations=locations,
                offline=offline,
                log=log,
                progress=progress,
                run=run,
                suspects=frozenset(finding.subject for finding in changes),
            )
            write_receipt(folder, receipt)
        if ready := current_environment(folder, name):
            return ready
    raise InstallError(
        code="environment-changed",
        message="the new environment was changed while it was being finished",
        hint="end what else writes to it, then repeat",
    )


def environment_lock(workspace: Workspace, key: BuildKey) -> Path:
    """Return the lock of whoever makes an environment or serves from it to prove it."""
    return workspace.locks / f"environment-{key}"


def current_environment(folder: Path, name: str, *, check: Check = quick) -> Environment | None:
    """Return the environment in a folder if it is finished and unchanged, with the name pointing at it.

    ``check`` tells what was changed.
    """
    environment = _read(folder, name)
    return _named(environment) if environment and not check(environment) else None


def _read(folder: Path, name: str) -> Environment | None:
    """Return the environment in a folder; one whose receipt cannot be read is none."""
    try:
        return read_environment(folder, name)
    except InstallError:
        return None


def _named(environment: Environment) -> Environment:
    """Point the environment's name at it."""
    link, target = environment.path.parent / environment.name, Path(environment.path.name)
    if not (link.is_symlink() and link.readlink() == target):
        files.replace_link(link, target)
    return environment


@contextlib.contextmanager
def _room_made(folder: Path) -> Iterator[None]:
    """Remove what was made so far when the disk is full: it would stay full."""
    try:
        yield
    except (InstallError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        if isinstance(error, OSError) or error.code == "disk-full":
            _clear(folder)
        raise


def _clear(folder: Path) -> None:
    """Remove what an earlier run left, the receipt first: a kill in between leaves nothing that counts."""
    (folder / RECEIPT).unlink(missing_ok=True)
    files.remove(folder)
