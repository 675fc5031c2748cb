"""What the host compilers are: to a cache, an object of another compiler is another object."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from sglforge.base.files import digest
from sglforge.base.proc import ProcessError, Runner

NAMES = ("cc", "c++", "gcc", "g++", "clang", "clang++")
INNER = ("cc1", "cc1plus", "as")
EARLIEST = Path("/usr/local/include")
"""Compilers look here before /usr/include: a header that appears in it changes what they read."""
ASK_TIMEOUT_S = 20.0


def identity(toolchain: str, run: Runner) -> str:
    """Return a digest of the compilers that a build can call.

    Of each program on PATH: its place, size and time of change, and those of the programs that gcc calls.
    ``toolchain`` stands for what is known otherwise, as the fingerprint of a CUDA toolkit does: nvcc calls programs
    of which a cache sees nothing.
    """
    found = {name: Path(path) for name in NAMES if (path := shutil.which(name))}
    inner = dict(_inner(found, run))
    seen = {name: _stamp(path) for name, path in {**found, **inner}.items()}
    return digest({"toolchain": toolchain, "programs": seen, "headers": sorted(_names(EARLIEST))})


def _inner(found: dict[str, Path], run: Runner) -> Iterator[tuple[str, Path]]:
    if not (driver := found.get("g++") or found.get("c++")):
        return
    for name in INNER:
        try:
            said = run([driver, f"-print-prog-name={name}"], timeout_s=ASK_TIMEOUT_S).stdout.strip()
        except ProcessError:
            continue
        if path := shutil.which(said):
            yield name, Path(path)


def _stamp(path: Path) -> list[object]:
    real = path.resolve()
    try:
        about = real.stat()
    except OSError:
        return [str(real)]
    return [str(real), about.st_size, about.st_mtime_ns]


def _names(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in names)
