"""The work of an installation, step by step, into an empty folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sglforge.base import files
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Runner
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedRequirement, LockedTorch
from sglforge.errors import FetchError, InstallError
from sglforge.plan import BuildPlan
from sglforge.provision.distributions import read_distributions
from sglforge.provision.inspection import InstalledWheel, inspect, look_at
from sglforge.provision.mend import mend, unusable
from sglforge.provision.progress import Progress
from sglforge.provision.python import Interpreter
from sglforge.provision.receipt import PYTHON_CONFIG, VENV, PythonReceipt, Receipt, TorchReceipt
from sglforge.provision.torch import TorchWheel, find_torch, require_variant, torch_missing
from sglforge.provision.uv import Uv, open_uv
from sglforge.sources.tags import rank, supported_tags

if TYPE_CHECKING:
    from sglforge.provision.install import Wheel

PHASES = 5


def make_environment(
    plan: BuildPlan,
    wheels: Sequence[Wheel],
    *,
    name: str,
    folder: Path,
    interpreter: Interpreter,
    workspace: Workspace,
    locations: IndexLocations,
    offline: bool,
    log: Path | None,
    progress: Progress,
    run: Runner,
    suspects: Collection[str],
) -> Receipt:
    """Make the environment of a plan in ``folder`` and return its receipt; arguments as for ``install``.

    torch comes first and is held to its variant before anything else is installed; what follows is installed
    without dependencies and with hashes, so that nothing can replace it. ``suspects`` names distributions whose
    files in uv's cache may have been changed.
    """
    locked = plan.python
    require_fitting_files(locked.requirements, locked.minor)
    uv = open_uv(locations, offline=offline, run=run)
    venv = folder / VENV
    python = venv / "bin" / "python"
    site = venv / "lib" / f"python{locked.minor}" / "site-packages"
    into: list[str | Path] = ["--python", python, "--compile-bytecode"]
    reinstall = partial(install_lines, into=[*into, "--reinstall"], what="again", folder=folder, uv=uv, log=log)
    folder.mkdir(parents=True)

    progress(0, PHASES, note=f"venv of Python {interpreter.version}")
    uv("venv", "--no-project", "--python", interpreter.path, "--prompt", name, venv, log=log)
    progress(1, PHASES, note=f"torch {locked.torch.version}+{locked.torch.variant}")
    torch, line = install_torch(
        locked.torch,
        locked.minor,
        into,
        folder=folder,
        uv=uv,
        workspace=workspace,
        log=log,
        progress=progress,
    )
    if line and "torch" in suspects:
        mend({"torch": line}, site=site, uv=uv, log=log, install=reinstall)
    require_variant(python, locked.torch, plan.target.kind, uv)
    torch_record = read_distributions(site)["torch"].record

    progress(2, PHASES, note=f"{len(locked.requirements)} requirements")
    if locked.requirements:
        install_requirements(locked.requirements, into, folder=folder, uv=uv, log=log)
        lines = {entry.name: pinned_line(entry) for entry in locked.requirements if entry.name in suspects}
        mend(lines, site=site, uv=uv, log=log, install=reinstall)
    progress(3, PHASES, note=f"{len(wheels)} built packages")
    built = _install_wheels(wheels, site, into, folder=folder, uv=uv, log=log)

    progress(4, PHASES, note="checks")
    receipt = inspect(
        plan,
        built,
        name=name,
        folder=folder,
        site=site,
        python=PythonReceipt(
            minor=locked.minor,
            version=interpreter.version,
            base=str(interpreter.path),
            config_sha256=files.sha256_file(venv / PYTHON_CONFIG),
        ),
        torch=torch,
        torch_record=torch_record,
    )
    progress(PHASES, PHASES)
    return receipt


def require_fitting_files(requirements: Sequence[LockedRequirement], minor: str) -> None:
    """Refuse a lock that has no file for this machine, before anything is downloaded.

    Raises InstallError ``no-file-for-python``, with every requirement that has none.
    """
    supported = supported_tags(minor)
    without = [
        requirement
        for requirement in requirements
        if all(rank(file.name, supported) is None for file in requirement.files)
    ]
    if without:
        raise InstallError(
            code="no-file-for-python",
            message=f"the lock has no file for Python {minor} on this machine of {len(without)} requirements",
            context={
                f"{entry.name} {entry.version}": ", ".join(file.name for file in entry.files) for entry in without
            },
            hint="locks are for Linux with glibc 2.34 or newer, x86_64 or aarch64; see: nox -s doctor",
        )


def install_torch(
    pin: LockedTorch,
    minor: str,
    into: Sequence[str | Path],
    *,
    folder: Path,
    uv: Uv,
    workspace: Workspace,
    log: Path | None,
    progress: Progress,
) -> tuple[TorchReceipt, str | None]:
    """Install torch and nothing else; also return the line that installs its wheel, None where uv found one."""
    wheel = find_torch(pin, minor, locations=uv.locations, workspace=workspace, offline=uv.offline, progress=progress)
    if not wheel:
        return install_torch_by_uv(pin, minor, into, folder=folder, uv=uv, log=log), None
    line = f"torch @ {wheel.path.as_uri()} --hash=sha256:{wheel.sha256}\n"
    install_lines([line], into, "torch", folder=folder, uv=uv, log=log)
    return torch_receipt(pin, wheel), line


def install_torch_by_uv(
    pin: LockedTorch,
    minor: str,
    into: Sequence[str | Path],
    *,
    folder: Path,
    uv: Uv,
    log: Path | None,
) -> TorchReceipt:
    """Ask uv for the same version and variant with its ``--torch-backend``: the last resort, marked unproven.

    Raises InstallError ``torch-variant-missing``.
    """
    hashes = "".join(f" --hash=sha256:{sha256}" for sha256 in pin.sha256)
    try:
        install_lines(
            [f"torch=={pin.version}+{pin.variant}{hashes}\n"],
            [*into, "--torch-backend", pin.variant],
            "torch",
            folder=folder,
            uv=uv,
            log=log,
            hashed=bool(pin.sha256),
        )
    except (FetchError, InstallError) as error:
        raise torch_missing(pin, minor, uv.locations, why_not_uv=error.message) from error
    known = pin.sha256[0] if len(pin.sha256) == 1 else None
    return TorchReceipt(version=pin.version, variant=pin.variant, sha256=known, origin="uv-torch-backend", proven=False)


def torch_receipt(pin: LockedTorch, wheel: TorchWheel) -> TorchReceipt:
    """Return what a receipt says about a wheel that was found."""
    return TorchReceipt(
        version=pin.version,
        variant=pin.variant,
        sha256=wheel.sha256,
        origin=wheel.origin,
        proven=wheel.proven,
    )


def install_requirements(
    requirements: Sequence[LockedRequirement],
    into: Sequence[str | Path],
    *,
    folder: Path,
    uv: Uv,
    log: Path | None,
) -> None:
    """Install locked requirements: exactly these, with hashes, without dependencies, only wheels.

    ``into`` are the words that tell uv the place.
    """
    install_lines([pinned_line(entry) for entry in requirements], into, "requirements", folder=folder, uv=uv, log=log)


def pinned_line(requirement: LockedRequirement) -> str:
    """Return the line that tells uv a requirement with the hashes of its files."""
    hashes = "".join(f" \\\n    --hash=sha256:{file.sha256}" for file in requirement.files)
    return f"{requirement.name}=={requirement.version}{hashes}\n"


def _install_wheels(
    wheels: Sequence[Wheel], site: Path, into: Sequence[str | Path], *, folder: Path, uv: Uv, log: Path | None
) -> list[InstalledWheel]:
    """Install our wheels and return what was installed of each.

    uv links files from its cache: an edit in place, in any environment, is in the cache too and would come again.
    A package that differs from its wheel is therefore unpacked anew, past the cache.
    """
    lines = {
        wheel.path: f"{wheel.path.name.partition('-')[0]} @ {wheel.path.as_uri()} --hash=sha256:{wheel.sha256}\n"
        for wheel in wheels
    }
    install_lines(list(lines.values()), into, "built", folder=folder, uv=uv, log=log)
    distributions = read_distributions(site)
    installed = [look_at(wheel, distributions) for wheel in wheels]
    if damaged := [entry.wheel for entry in installed if entry.differing]:
        again = [*into, "--reinstall", "--no-cache"]
        install_lines([lines[wheel.path] for wheel in damaged], again, "built-again", folder=folder, uv=uv, log=log)
        distributions = read_distributions(site)
        installed = [look_at(entry.wheel, distributions) if entry.differing else entry for entry in installed]
    return installed


def install_lines(
    lines: Sequence[str],
    into: Sequence[str | Path],
    what: str,
    *,
    folder: Path,
    uv: Uv,
    log: Path | None,
    hashed: bool = True,
) -> None:
    """Install requirement lines, without dependencies and only wheels; what uv's cache has damaged is fetched anew.

    ``into`` are the words that tell uv the place, ``what`` names the list in ``folder``.
    """
    wanted = folder / "wanted" / f"{what}.txt"
    files.write_text(wanted, "".join(lines))
    words = ["pip", "install", "--no-deps", "--no-build", *(["--require-hashes"] if hashed else []), *into]
    try:
        uv(*words, "-r", wanted, log=log)
    except InstallError as error:
        damaged = () if error.code == "disk-full" else unusable(error)
        if not damaged:
            raise
        uv("cache", "clean", *damaged, log=log)
        uv(*words, "--reinstall", "-r", wanted, log=log)
