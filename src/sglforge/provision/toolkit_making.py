"""The work of installing a CUDA toolkit: its wheels, and what they lack for compiling and linking."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sglforge.base.files import listed, remove
from sglforge.config.lockfile import LockedToolkit
from sglforge.config.model import CudaNeeds, Toolkit
from sglforge.errors import InstallError
from sglforge.host.cuda import nvcc
from sglforge.host.cuda.model import CudaToolkit
from sglforge.provision.driver_stub import make_stub
from sglforge.provision.make import install_lines, install_requirements, pinned_line, require_fitting_files
from sglforge.provision.mend import mend
from sglforge.provision.progress import Progress
from sglforge.provision.python import Interpreter
from sglforge.provision.toolkit import not_the_toolkit, require_whole
from sglforge.provision.toolkit_receipt import write_receipt
from sglforge.provision.uv import Uv

_PHASES = 4


def make_toolkit(
    draft: Path,
    chosen: CudaToolkit,
    *,
    recipe: Toolkit,
    locked: LockedToolkit,
    needs: Sequence[CudaNeeds],
    interpreter: Interpreter,
    uv: Uv,
    log: Path | None,
    progress: Progress,
) -> None:
    """Make a toolkit in an empty folder: its wheels, what they lack for linking, the receipt.

    Raises InstallError ``toolkit-incomplete`` and ``compiler-missing``, and what uv's failures are named.
    """
    require_fitting_files(locked.requirements, interpreter.minor)
    progress(0, _PHASES, note=f"{len(locked.requirements)} wheels of CUDA {locked.release}")
    site = draft / "site"
    into: list[str | Path] = ["--python", interpreter.path, "--target", site]
    install_requirements(locked.requirements, into, folder=draft, uv=uv, log=log)
    progress(1, _PHASES, note="every file against its RECORD")
    again = partial(install_lines, into=[*into, "--reinstall"], what="again", folder=draft, uv=uv, log=log)
    lines = {pin.name: pinned_line(pin) for pin in locked.requirements}
    mend(lines, site=site, uv=uv, log=log, install=again)
    home = _arrange(draft, site)
    progress(2, _PHASES, note="links and the stub of the driver")
    link_libraries(home)
    functions = make_stub(home, needed=recipe.driver_symbols, run=uv.run)
    _hold(home, recipe, needs, uv)
    progress(3, _PHASES, note="receipt")
    write_receipt(
        draft,
        fingerprint=chosen.fingerprint,
        requirements=tuple(f"{pin.name}=={pin.version}" for pin in locked.requirements),
        stub_functions=len(functions),
    )
    progress(_PHASES, _PHASES)


def link_libraries(home: Path) -> None:
    """Add what the wheels lack for linking: ``lib64``, and for each ``libX.so.N`` the name ``libX.so``."""
    if not (home / "lib64").exists():
        (home / "lib64").symlink_to("lib")
    for library in sorted((home / "lib").glob("lib*.so.*")):
        plain = library.with_name(f"{library.name.partition('.so.')[0]}.so")
        if not plain.exists():
            plain.symlink_to(library.name)


def _arrange(draft: Path, site: Path) -> Path:
    """Move what the wheels brought to its place in the toolkit's folder, and return the toolkit's home."""
    found = sorted(site.glob("nvidia/*/bin/nvcc"))
    if len(found) != 1:
        raise InstallError(
            code="toolkit-incomplete",
            message=f"the wheels of the toolkit bring {len(found)} nvcc, one was expected at nvidia/<folder>/bin/nvcc",
            hint="compare the toolkit's recipe with how these wheels are laid out: CUDA 13's share one folder",
        )
    home, infos = draft / "cuda", draft / "dist-info"
    found[0].parents[1].rename(home)
    infos.mkdir()
    for info in site.glob("*.dist-info"):
        info.rename(infos / info.name)
    remove(site)
    remove(draft / "wanted")
    for folder in ("bin", "nvvm/bin"):
        for program in listed(home / folder):
            if program.is_file() and program.suffix != ".profile":
                program.chmod(program.stat().st_mode | 0o555)
    return home


def _hold(home: Path, recipe: Toolkit, needs: Sequence[CudaNeeds], uv: Uv) -> None:
    """Refuse a toolkit that is not of its release, or that lacks something.

    Raises InstallError ``toolkit-incomplete``.
    """
    said = nvcc.ask(home, uv.run)
    if said.version is None:
        raise InstallError(
            code="toolkit-incomplete",
            message=f"the nvcc of {recipe.name} was installed and cannot be used: {said.problem}",
            hint="programs must run where the workspace is (findmnt -T shows noexec): --workspace DIR names another",
        )
    if nvcc.release_of(said.version) != recipe.release:
        raise not_the_toolkit(recipe, f"its nvcc is of {said.version}")
    require_whole(home, recipe, needs)
    if (newest := nvcc.newest_gcc(home)) != recipe.newest_gcc:
        why = f"its headers take gcc {newest} at most, `newest-gcc` of the recipe says {recipe.newest_gcc}"
        raise not_the_toolkit(recipe, why)
