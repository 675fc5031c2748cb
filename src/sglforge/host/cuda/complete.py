"""What a CUDA toolkit lacks of what builds take, file by file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.config.model import CudaNeeds

PLURALS = {"program": "programs", "file": "files", "header": "headers", "library": "libraries", "stub": "stubs"}
"""The kinds of files, in the order in which they are told."""
ALWAYS = ("bin/nvcc.profile", "nvvm/libdevice/libdevice.10.bc")
"""What nvcc reads whatever it compiles."""
_TARGET = "targets/x86_64-linux"
"""Where some layouts (conda's among them) have headers and libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A file that is not where builds look; ``note`` says what is there instead."""

    kind: str
    name: str
    note: str = ""


def lacking(home: Path, needs: Sequence[CudaNeeds], driver_symbols: Sequence[str] = ()) -> tuple[Lack, ...]:
    """Return every file that a toolkit lacks, each once, programs first.

    Builds look into ``bin`` and ``nvvm/bin``, ``include`` and ``include/cccl``, ``lib64`` and ``lib64/stubs``, and
    nowhere else. A stub of the driver must have the functions ``driver_symbols``.
    """
    return (
        *_each(needs, lambda need: need.programs, lambda name: _program(home, name)),
        *(Lack(kind="file", name=path) for path in ALWAYS if not (home / path).is_file()),
        *_each(needs, lambda need: need.headers, lambda name: _header(home, name)),
        *_each(needs, lambda need: need.libraries, lambda name: _library(home, name)),
        *_each(needs, lambda need: need.stubs, lambda name: _stub(home, name, driver_symbols)),
    )


def summary(lacks: Sequence[Lack]) -> str:
    """Return what is lacking in one line: ``programs cuobjdump, nvdisasm; headers cuda.h, nvrtc.h (in lib)``."""
    groups: dict[tuple[str, str], list[str]] = {}
    for lack in lacks:
        groups.setdefault((lack.kind, lack.note), []).append(lack.name)
    return "; ".join(
        f"{kind if len(names) == 1 else PLURALS[kind]} {', '.join(names)}{f' ({note})' if note else ''}"
        for (kind, note), names in groups.items()
    )


def _each(
    needs: Sequence[CudaNeeds],
    names: Callable[[CudaNeeds], Sequence[str]],
    look: Callable[[str], Lack | None],
) -> Iterator[Lack]:
    for name in dict.fromkeys(name for need in needs for name in names(need)):
        if lack := look(name):
            yield lack


def _program(home: Path, name: str) -> Lack | None:
    places = [home / folder / name for folder in ("bin", "nvvm/bin")]
    if any(place.is_file() and os.access(place, os.X_OK) for place in places):
        return None
    there = any(place.is_file() for place in places)
    return Lack(kind="program", name=name, note="not executable" if there else "")


def _header(home: Path, name: str) -> Lack | None:
    if any((home / folder / name).is_file() for folder in ("include", "include/cccl")):
        return None
    elsewhere = (home / _TARGET / folder / name for folder in ("include", "include/cccl"))
    found = next((path for path in elsewhere if path.is_file()), None)
    return Lack(kind="header", name=name, note=_not_looked(home, found))


def _library(home: Path, name: str) -> Lack | None:
    files = (f"lib{name}.so", f"lib{name}.a")
    if any((home / "lib64" / file).is_file() for file in files):
        return None
    for folder in ("lib64", "lib", f"{_TARGET}/lib"):
        if folder != "lib64" and any((home / folder / file).is_file() for file in files):
            return Lack(kind="library", name=name, note=f"in {folder}, builds look into lib64")
        if any((home / folder).glob(f"lib{name}.so.*")):
            return Lack(kind="library", name=name, note=f"in {folder}, without the lib*.so to link with")
    return Lack(kind="library", name=name)


def _stub(home: Path, name: str, symbols: Sequence[str]) -> Lack | None:
    path = home / "lib64" / "stubs" / f"lib{name}.so"
    try:
        content = path.read_bytes()
    except OSError:
        elsewhere = (home / folder / "stubs" / path.name for folder in ("lib", f"{_TARGET}/lib"))
        return Lack(
            kind="stub", name=name, note=_not_looked(home, next((path for path in elsewhere if path.is_file()), None))
        )
    # names of symbols end with a zero byte in a string table
    without = [symbol for symbol in symbols if b"\0" + symbol.encode() + b"\0" not in content]
    note = f"without {', '.join(without[:3])}{f' and {len(without) - 3} more' if len(without) > 3 else ''}"
    return Lack(kind="stub", name=name, note=note) if without else None


def _not_looked(home: Path, found: Path | None) -> str:
    if found is None:
        return ""
    top = _TARGET if found.is_relative_to(home / _TARGET) else "lib"
    return f"in {top}, where builds do not look"
