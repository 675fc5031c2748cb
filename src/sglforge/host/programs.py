"""Versions of programs, as the programs themselves say them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.proc import ProcessError, Runner

TIMEOUT_S = 10.0
VERSION_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "git": ("--version",),
    "uv": ("--version",),
    "gcc": ("-dumpfullversion", "-dumpversion"),
    "g++": ("-dumpfullversion", "-dumpversion"),
    "nvcc": ("--version",),
    "cmake": ("--version",),
    "ninja": ("--version",),
    "protoc": ("--version",),
    "rustc": ("--version",),
}

_NUMBER = re.compile(r"(?<![\w.])V?(\d+(?:\.\d+)+)")
_NVCC_BUILD = re.compile(r"\bV(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A program's version and how it was read; ``absent``: looked for and not there."""

    value: str | None
    source: str
    absent: bool = False


def locate(name: str, *, root: Path = Path("/")) -> Path | None:
    """Return where a program lies.

    uv is taken from its Python package first, nvcc from CUDA_HOME; everything else from PATH.
    """
    if name == "uv" and (bundled := _bundled_uv()):
        return bundled
    path = os.environ.get("PATH", os.defpath)
    if name == "nvcc":
        homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
        path = os.pathsep.join([*(f"{home}/bin" for home in homes if home), path, str(root / "usr/local/cuda/bin")])
    found = shutil.which(name, path=path)
    return Path(found).absolute() if found else None


def read(name: str, run: Runner, *, root: Path = Path("/")) -> Version:
    """Ask a program for its version."""
    program = locate(name, root=root)
    if program is None:
        return Version(value=None, source="not on PATH", absent=True)
    argv: list[str | Path] = [program, *VERSION_ARGUMENTS[name]]
    # a rustup shim must not install a toolchain, nor obey a toolchain file of the current folder
    env = {**os.environ, "RUSTUP_AUTO_INSTALL": "0", "LC_ALL": "C"}
    try:
        done = run(argv, env=env, cwd=Path("/"), timeout_s=TIMEOUT_S)
    except ProcessError as error:
        return Version(value=None, source=f"{program}: {error.message}")
    pattern = _NVCC_BUILD if name == "nvcc" else _NUMBER
    found = pattern.search(done.stdout)
    return Version(value=found[1] if found else None, source=str(program))


def _bundled_uv() -> Path | None:
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return None
