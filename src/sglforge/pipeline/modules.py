"""What the modules of a package are compiled with: driver, torch and launcher."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from sglforge.base.files import sha256_file
from sglforge.base.proc import Runner
from sglforge.base.workspace import Workspace
from sglforge.build.compiling.jobserver import Jobserver
from sglforge.build.compiling.scope import compiling
from sglforge.build.modules.make import Compiling, ModuleTools
from sglforge.errors import BuildError
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned
from sglforge.plan import Step
from sglforge.provision.make import install_torch
from sglforge.provision.progress import silent
from sglforge.provision.uv import open_uv

if TYPE_CHECKING:
    from sglforge.base.index_locations import IndexLocations


def module_tools(
    step: Step,
    planned: Planned,
    request: Request,
    locations: IndexLocations,
    *,
    server: Jobserver,
    run: Runner,
    pause: Callable[[float], None],
) -> ModuleTools | None:
    """Return what the modules of a package are compiled with, None where it has none.

    Raises BuildError ``source-changed`` for a driver that is not the one of the plan.
    """
    modules = step.modules
    if modules is None:
        return None
    driver = request.catalog_root / modules.driver
    if sha256_file(driver) != modules.driver_sha256:
        raise BuildError(
            code="source-changed",
            message=f"{modules.driver} was changed after the build key of {step.package} was worked out",
            hint="repeat the command when nobody writes to it",
        )
    minor = planned.python.locked.minor
    uv = open_uv(locations, offline=request.offline, run=run)

    def torch_into(environment: Path, log: Path) -> None:
        install_torch(
            modules.locked.torch,
            minor,
            ["--python", environment],
            folder=environment,
            uv=uv,
            workspace=request.workspace,
            log=log,
            progress=silent,
        )

    def launched(root: Path, workspace: Workspace) -> AbstractContextManager[Compiling]:
        return compiling(
            step.package,
            target=planned.selection.target.name,
            workspace=workspace,
            memory=step.recipe.memory,
            toolchain=planned.toolkit.chosen.toolkit.fingerprint if planned.toolkit else "",
            roots=[root],
            server=server,
            cached=workspace == request.workspace,  # elsewhere only a rebuild works, which proves what compilers make
            run=run,
            pause=pause,
        )

    return ModuleTools(driver=driver, torch_into=torch_into, compiling=launched)
