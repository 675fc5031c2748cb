"""Every CUDA toolkit of this machine: where builds, shells and people look for one."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from sglforge.base.beside import Beside
from sglforge.base.proc import Runner
from sglforge.host.cuda import nvcc
from sglforge.host.facts import FoundToolkit

_VERSIONED = re.compile(r"cuda-([0-9]+)(?:\.([0-9]+))?")


def find(run: Runner, *, root: Path = Path("/")) -> tuple[FoundToolkit, ...]:
    """Return the toolkits, those first that builds take first; each folder once, under every name that leads to it.

    A variable that leads nowhere, and an nvcc whose toolkit cannot be told, are returned with what is wrong. ``root``
    holds usr/ and opt/, for a recorded machine.
    """
    origins: dict[Path, list[str]] = {}
    wrong: list[FoundToolkit] = []
    for origin, place in _places(os.environ, root):
        problem = _unusable(place)
        if problem:
            wrong.append(FoundToolkit(home=place, origin=origin, problem=problem))
        else:
            origins.setdefault(Path(place).resolve(), []).append(origin)
    asked = {home: Beside(partial(nvcc.ask, home, run)) for home in origins}
    found = []
    for home, names in origins.items():
        said = asked[home].result()
        origin = ", ".join(dict.fromkeys(names))
        found.append(FoundToolkit(home=str(home), origin=origin, nvcc=said.version, problem=said.problem))
    return (*found, *wrong)


def _places(environment: Mapping[str, str], root: Path) -> Iterator[tuple[str, str]]:
    """Yield where a toolkit may be, with why: what is named whether it is there or not, else only what is there."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := environment.get(name):
            yield name, value
    if program := shutil.which("nvcc", path=environment.get("PATH", os.defpath)):
        yield "nvcc on PATH", str(Path(program).resolve().parent.parent)
    for folder in _installed(root):
        yield str(folder), str(folder)
    if prefix := environment.get("CONDA_PREFIX"):
        yield from _there("the conda environment", Path(prefix))
    for site in _sites(environment):
        for folder in sorted(site.glob("nvidia/cu[0-9]*")):
            yield from _there("wheels of a Python", folder)


def _installed(root: Path) -> list[Path]:
    """Return the toolkits of the usual places: the one without a version first, then the newest."""
    local = root / "usr/local"
    versioned = [path for path in local.glob("cuda-*") if _VERSIONED.fullmatch(path.name)]
    versioned.sort(key=lambda path: [int(part or 0) for part in _numbers(path.name)], reverse=True)
    return [path for path in (local / "cuda", *versioned, root / "opt/cuda") if _has_nvcc(path)]


def _numbers(name: str) -> tuple[str | None, ...]:
    found = _VERSIONED.fullmatch(name)
    return found.groups() if found else ()


def _sites(environment: Mapping[str, str]) -> list[Path]:
    """Return the site-packages of the running Python and of the venv of the shell."""
    sites = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    if venv := environment.get("VIRTUAL_ENV"):
        sites += sorted(Path(venv).glob("lib/python3.*/site-packages"))
    return list(dict.fromkeys(sites))


def _there(origin: str, folder: Path) -> Iterator[tuple[str, str]]:
    if _has_nvcc(folder):
        yield origin, str(folder)


def _has_nvcc(folder: Path) -> bool:
    return os.path.lexists(folder / "bin" / "nvcc")


def _unusable(place: str) -> str | None:
    """Return why a place is no toolkit's folder, before anything in it is run."""
    path = Path(place)
    if os.pathsep in place:
        return f"it holds a `{os.pathsep}`: one folder is wanted, and what reads it takes it as it is"
    if not path.is_absolute():
        return "it is not the whole path of a folder"
    if path.is_symlink() and not path.exists():
        return f"it is a link to {path.readlink()}, which does not exist"
    if not path.exists():
        return "it does not exist"
    if not path.is_dir():
        return "it is not a folder"
    program = path / "bin" / "nvcc"
    if not os.path.lexists(program):
        return "it has no bin/nvcc"
    if not (program.is_file() and os.access(program, os.X_OK)):
        return "its bin/nvcc cannot be run"
    if not ((path / "nvvm").is_dir() or (path / "include" / "cuda.h").is_file()):
        return "its nvcc is a program that starts another one; where the toolkit is does not show"
    return None
