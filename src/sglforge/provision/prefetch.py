"""Bring torch and requirements onto this machine, so that a later installation needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sglforge.base import proc
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Runner
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedRequirement, LockedTorch
from sglforge.provision.progress import Progress, silent
from sglforge.provision.python import Interpreter
from sglforge.provision.receipt import TorchReceipt
from sglforge.provision.torch import find_torch
from sglforge.provision.uv import open_uv


def download_requirements(
    requirements: Sequence[LockedRequirement],
    *,
    interpreter: Interpreter,
    workspace: Workspace,
    locations: IndexLocations,
    offline: bool = False,
    log: Path | None = None,
    run: Runner = proc.run,
) -> None:
    """Put locked requirements into uv's cache, from where an offline installation takes them.

    uv has no command for that: they are installed, as they will be later, into a folder that is dropped.

    Raises FetchError (``offline-missing``, ``network-unreachable``, ``hash-mismatch``) and InstallError.
    """
    from sglforge.provision.make import install_requirements, require_fitting_files

    require_fitting_files(requirements, interpreter.minor)
    if not requirements:
        return
    with working_folder(workspace, "prefetch") as folder:
        install_requirements(
            requirements,
            ["--python", interpreter.path, "--target", folder / "dropped"],
            folder=folder,
            uv=open_uv(locations, offline=offline, run=run),
            log=log,
        )


def download_torch(
    pin: LockedTorch,
    *,
    interpreter: Interpreter,
    workspace: Workspace,
    locations: IndexLocations,
    offline: bool = False,
    log: Path | None = None,
    progress: Progress = silent,
    run: Runner = proc.run,
) -> TorchReceipt:
    """Make sure that the locked torch is on this machine: a local file, a kept archive, or uv's cache.

    Raises InstallError ``torch-variant-missing`` and ``torch-hash-not-accepted``.
    """
    from sglforge.provision.make import install_torch_by_uv, torch_receipt

    uv = open_uv(locations, offline=offline, run=run)
    wheel = find_torch(
        pin,
        interpreter.minor,
        locations=locations,
        workspace=workspace,
        offline=uv.offline,
        progress=progress,
    )
    if wheel:
        return torch_receipt(pin, wheel)
    with working_folder(workspace, "prefetch") as folder:
        into: list[str | Path] = ["--python", interpreter.path, "--target", folder / "dropped"]
        return install_torch_by_uv(pin, interpreter.minor, into, folder=folder, uv=uv, log=log)
