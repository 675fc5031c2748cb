"""The CUDA toolkit that a lock pins: known before it is there, installed whole, never changed afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sglforge.base import proc
from sglforge.base.diskfaults import disk_faults
from sglforge.base.exclusive import TOOLKIT, exclusive
from sglforge.base.files import digest, listed, publish_directory, remove
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Runner
from sglforge.base.rubbish import discard, rubbish
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedToolkit
from sglforge.config.model import CudaNeeds, Toolkit
from sglforge.errors import InstallError
from sglforge.host.cuda.complete import lacking, summary
from sglforge.host.cuda.model import LOCKED, CudaToolkit
from sglforge.provision.progress import Progress, silent
from sglforge.provision.python import Interpreter
from sglforge.provision.toolkit_receipt import changed, read_receipt
from sglforge.provision.uv import open_uv

FORMAT = 1
"""Counted up when something else is made of the same wheels."""
_NVCC = "nvidia-cuda-nvcc"


def locked_toolkit(locked: LockedToolkit, recipe: Toolkit, workspace: Workspace) -> CudaToolkit:
    """Return the toolkit that a lock pins, whether it is installed or not."""
    fingerprint = digest(
        {
            "format": FORMAT,
            "release": locked.release,
            "driver-symbols": sorted(recipe.driver_symbols),
            "requirements": [
                [pin.name, pin.version, sorted(file.sha256 for file in pin.files)]
                for pin in sorted(locked.requirements, key=lambda pin: pin.name)
            ],
        }
    )
    return CudaToolkit(
        home=workspace.toolkits / fingerprint / "cuda",
        origin=LOCKED,
        release=locked.release,
        version=next((pin.version for pin in locked.requirements if pin.name == _NVCC), locked.release),
        fingerprint=fingerprint,
    )


def is_installed(toolkit: CudaToolkit) -> bool:
    """Say whether a locked toolkit is there, and by size, time and inode of its files what it was when it was made."""
    receipt = read_receipt(toolkit.home.parent)
    return bool(receipt and receipt.fingerprint == toolkit.fingerprint and not changed(toolkit.home.parent, receipt))


def provide(
    chosen: CudaToolkit,
    *,
    recipe: Toolkit,
    locked: LockedToolkit,
    needs: Sequence[CudaNeeds],
    interpreter: Interpreter,
    workspace: Workspace,
    locations: IndexLocations,
    offline: bool = False,
    log: Path | None = None,
    progress: Progress = silent,
    run: Runner = proc.run,
    pause: Callable[[float], None] = time.sleep,
) -> CudaToolkit:
    """Make sure that the locked toolkit of a plan is on this machine, whole and unchanged, and return it.

    It is made beside its place and renamed: a kill at any instant leaves the whole toolkit or none. One run at a time
    makes it, others wait and take it.

    Args:
        chosen: What :func:`locked_toolkit` returned.
        recipe: The toolkit's recipe.
        locked: Its wheels.
        needs: What builds take of it; what was made is held to that.
        interpreter: A Python that uv takes the platform from; nothing of it is changed.
        workspace: Where it is made.
        locations: Package locations, as pip's configuration states them.
        offline: Whether only what is on this machine may be used.
        log: File for the full output of uv.
        progress: Told which part is being done.
        run: Runs processes.
        pause: Waits some seconds for another run; what it raises ends the waiting.

    Raises InstallError (``toolkit-incomplete``, ``disk-full``, ``compiler-missing``, ``workspace-busy``, ...) and
    FetchError (``offline-missing``, ``network-unreachable``, ``hash-mismatch``).
    """
    from sglforge.provision.toolkit_making import make_toolkit

    folder, needed = chosen.home.parent, (recipe.cuda, *needs)
    if is_installed(chosen):
        require_whole(chosen.home, recipe, needed)  # what builds take may have come later
        return chosen
    lock = workspace.locks / f"toolkit-{chosen.fingerprint}"
    with (
        exclusive(lock, waiting=lambda note: progress(note=note), use=TOOLKIT, pause=pause),
        disk_faults(workspace.toolkits, InstallError, in_the_way=True),
    ):
        if is_installed(chosen):  # another run has made it meanwhile
            return chosen
        for left in listed(workspace.toolkits):
            if left.name.startswith(f".{folder.name}."):  # of a run that was killed: nobody else holds the lock
                remove(left)
        if folder.exists():
            progress(note="it was changed: making it again")
            discard(rubbish("toolkit", folder, "it was changed"))
        with publish_directory(folder) as draft:
            make_toolkit(
                draft,
                chosen,
                recipe=recipe,
                locked=locked,
                needs=needed,
                interpreter=interpreter,
                uv=open_uv(locations, offline=offline, run=run),
                log=log,
                progress=progress,
            )
    return chosen


def require_whole(home: Path, recipe: Toolkit, needs: Sequence[CudaNeeds]) -> None:
    """Refuse a toolkit that lacks something that builds take.

    Raises InstallError ``toolkit-incomplete``.
    """
    if lacks := summary(lacking(home, needs, recipe.driver_symbols)):
        raise not_the_toolkit(recipe, f"it lacks {lacks}")


def not_the_toolkit(recipe: Toolkit, why: str) -> InstallError:
    """Return the error for wheels that are not what the recipe says."""
    return InstallError(
        code="toolkit-incomplete",
        message=f"the wheels of {recipe.name} do not make up the toolkit: {why}",
        hint=f"correct its recipe, as by adding to `requires`, then nox -s lock -- --update {recipe.name}",
    )
