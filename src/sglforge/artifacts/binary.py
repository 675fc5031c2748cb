"""What is known of one binary file, and what is wanted of all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sglforge.artifacts.architectures import Architecture
from sglforge.artifacts.elf import Elf
from sglforge.artifacts.fatbin import Reading
from sglforge.artifacts.sass import Listing
from sglforge.artifacts.symbols import Scope, Unresolved

CUDA_NUMBERED = re.compile(r"lib(?:cudart|nvrtc|nvrtc-builtins|cublas|cublasLt|nvJitLink)\.so\.(\d+)")
"""Libraries whose number is that of CUDA itself, 11 to 13.

That of cuFFT, cuRAND, cuSOLVER, cuSPARSE and cuDNN is not: libcurand.so.10 belongs to 12 and 13. Source: the CUDA
toolkits' release notes, "component versions".
"""
_GLIBC_VERSION = re.compile(r"GLIBC_(2(?:\.\d+)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """One ELF file, or one that should be.

    ``path`` is where it lies in the wheel, or its name; ``size`` in bytes. ``trouble`` is why it could not be read.
    ``reading`` is its GPU code, None where there is none; ``listing`` what cuobjdump says, None where it was not
    asked. ``scope`` is None where its symbols were not looked up.
    """

    path: str
    size: int
    elf: Elf | None = None
    trouble: str | None = None
    reading: Reading | None = None
    listing: Listing | None = None
    scope: Scope | None = None
    unresolved: tuple[Unresolved, ...] = ()

    @property
    def is_cubin(self) -> bool:
        """Whether it is GPU code itself."""
        return self.elf is not None and self.elf.ident.machine == "cuda"

    @property
    def cuda_majors(self) -> tuple[tuple[str, int], ...]:
        """The libraries it needs whose number is that of CUDA, each with it."""
        needed = self.elf.needed if self.elf else ()
        return tuple((name, int(match[1])) for name in needed if (match := CUDA_NUMBERED.fullmatch(name)))

    @property
    def glibc(self) -> str | None:
        """The oldest GNU C library that it loads with, from the versions of the symbols that it needs."""
        texts = (text for versions in self.elf.versions.values() for text in versions) if self.elf else ()
        found = [match[1] for text in texts if (match := _GLIBC_VERSION.fullmatch(text))]
        return max(found, key=number, default=None)

    def to_json(self) -> dict[str, object]:
        """Return the facts for the document of ``check``."""
        elf, reading = self.elf, self.reading
        return {
            "path": self.path,
            "size": self.size,
            "machine": f"{elf.ident.machine} {elf.ident.bits}-bit" if elf else None,
            "trouble": self.trouble,
            "sass": sorted(one.name for one in reading.architectures("sass")) if reading else [],
            "ptx": sorted(one.virtual for one in reading.architectures("ptx")) if reading else [],
            "units": reading.units if reading else 0,
            "not_understood": list(reading.unsure) if reading else [],
            "instructions": sorted(f"{claim} {one.name}" for claim, one in self.listing.claims)
            if self.listing
            else None,
            "needed": list(elf.needed) if elf else [],
            "runpath": list(elf.runpath or elf.rpath) if elf else [],
            "glibc": self.glibc,
            "unresolved": None if self.scope is None else [one.name for one in self.unresolved],
            "libraries": None if self.scope is None else {one.name: one.place for one in self.scope.libraries},
            "missing_libraries": None if self.scope is None else list(self.scope.missing),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What binaries are held to.

    Args:
        gpus: The GPUs that every file must serve, each as an architecture without suffix; empty: none.
        arch_list: What the target is compiled for: `sm_120f`.
        cuda_major: That of the environment's torch; None: not judged.
        machine: As :class:`sglforge.artifacts.elf.Ident` has it.
        glibc: That of this machine; None: not known.
        min_glibc: The oldest that the target promises.
        tag_glibc: The oldest that the wheel's tags promise.
        python_minor: The Python that imports the files: ``3.12``.
        claims: Globs of files in the wheel, each with the claims that some file of it must keep.
        open_symbols: Globs of symbols that may stay undefined, each with the reason.
        built: Whether we built it: then it must be for the target and nothing else.
        torch: Versions of torch, at build and here; None: not known.
        package: What to build again.
    """

    gpus: tuple[Architecture, ...] = ()
    arch_list: tuple[Architecture, ...] = ()
    cuda_major: int | None = None
    machine: str = "x86_64"
    glibc: str | None = None
    min_glibc: str | None = None
    tag_glibc: str | None = None
    python_minor: str | None = None
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    open_symbols: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    built: bool = False
    torch_built: str | None = None
    torch: str | None = None
    package: str | None = None


def number(text: str) -> tuple[int, ...]:
    """Return a version's numbers, for comparison: (2, 34)."""
    return tuple(int(part) for part in text.split("."))
