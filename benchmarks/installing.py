"""An environment from a warm uv cache, beside bare `uv pip install` of the same files."""

from __future__ import annotations

import resource
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, ratio, summary, timed
from benchmarks.setting import Setting, link_tree

from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.build import store
from sglforge.build.store import StoredWheel
from sglforge.host import package_index
from sglforge.pipeline.select import Planned
from sglforge.provision.install import install
from sglforge.provision.progress import silent
from sglforge.provision.torch import find_torch
from sglforge.provision.uv import open_uv

ROUNDS = 5
OURS, VERB, PEER = "provision.install", "sglforge install", "uv pip install"


def measure(setting: Setting) -> dict[str, object]:
    """Measure making the environment: our function, the whole verb, and uv alone.

    uv alone makes a venv and installs torch, every locked requirement by its version, and our wheels in one
    call, without hashes, checks or a receipt; byte-compiled like ours, from the same cache, without resolving.
    Nothing is removed between rounds: ext4 can be slow to make files after many were removed.
    """
    planned = setting.planned()
    wheels = [wheel for step in planned.plan.steps if (wheel := store.lookup(setting.workspace, step.key))]
    if len(wheels) != len(planned.plan.steps):
        raise BenchError("the workspace has not every wheel: run `nox -s build`")
    locations = package_index.read()
    with setting.folder() as folder:
        workspace = Workspace(root=folder / "workspace")
        for name in ("store", "sources"):
            link_tree(setting.workspace.root / name, workspace.root / name)
        wanted = folder / "wanted.txt"
        wanted.write_text("".join(_wanted(planned, wheels, locations, setting.workspace)))
        cases = {
            OURS: lambda: _install(planned, wheels, locations, workspace),
            PEER: lambda: _install_bare(planned, wanted, locations, folder),
            VERB: lambda: _install_by_verb(setting, workspace),
        }
        interleave(cases, 1)
        samples = interleave(cases, setting.rounds or ROUNDS)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "ratios": {f"{name} / {PEER}": ratio(samples[name], samples[PEER]) for name in (OURS, VERB)},
        "aims": {f"{OURS} / {PEER}": "at most 1.05"},
        "distributions": len(planned.plan.python.requirements) + len(wheels) + 1,
    }


def _wanted(
    planned: Planned, wheels: Sequence[StoredWheel], locations: IndexLocations, workspace: Workspace
) -> list[str]:
    locked = planned.plan.python
    torch = find_torch(
        locked.torch, locked.minor, locations=locations, workspace=workspace, offline=True, progress=silent
    )
    if torch is None:
        raise BenchError("no torch wheel is on this machine")
    return [
        f"torch @ {torch.path.as_uri()}\n",
        *(f"{requirement.name}=={requirement.version}\n" for requirement in locked.requirements),
        *(f"{wheel.path.name.partition('-')[0]} @ {wheel.path.as_uri()}\n" for wheel in wheels),
    ]


def _install(
    planned: Planned, wheels: Sequence[StoredWheel], locations: IndexLocations, workspace: Workspace
) -> Sample:
    _put_aside(workspace)
    start, cpu = time.perf_counter(), _cpu_s()
    install(
        planned.plan,
        wheels,
        name="bench",
        interpreter=planned.python.interpreter,
        workspace=workspace,
        locations=locations,
    )
    return Sample(wall_s=time.perf_counter() - start, cpu_s=_cpu_s() - cpu)


def _install_bare(planned: Planned, wanted: Path, locations: IndexLocations, folder: Path) -> Sample:
    venv = folder / f"bare-{secrets.token_hex(4)}"
    uv = open_uv(locations)
    start, cpu = time.perf_counter(), _cpu_s()
    uv("venv", "--no-project", "--python", planned.python.interpreter.path, venv)
    uv("pip", "install", "--no-deps", "--compile-bytecode", "--python", venv / "bin" / "python", "-r", wanted)
    return Sample(wall_s=time.perf_counter() - start, cpu_s=_cpu_s() - cpu)


def _install_by_verb(setting: Setting, workspace: Workspace) -> Sample:
    _put_aside(workspace)
    return timed(setting.sglforge("install", workspace=workspace.root), env=setting.environment)


def _put_aside(workspace: Workspace) -> None:
    if workspace.environments.exists():
        workspace.environments.rename(workspace.root / f"aside-{secrets.token_hex(4)}")


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
