"""Undefined symbols, held against the libraries that really define them, and sorted by who is at fault.

A shared object that links is not one that loads: a source file that was left out, another torch than the one it was
built with, or a library that is not there show when it is imported. Here every undefined symbol is looked up in the
libraries that the file names and in what these name (:mod:`sglforge.artifacts.libraries` finds them), as the loader
would, versions included. What is found nowhere is of torch (its C++ interface is another one), of another library
(which is missing, or older than the one that was linked), or of the project itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sglforge.artifacts.elf import Symbol

Cause = Literal["torch", "own", "library"]

DRIVER = re.compile(r"lib(?:cuda|nvidia-[a-z-]+|nvcuvid|nvoptix)\.so(?:\.\d+)*")
"""Libraries that come with the driver: a machine that builds has none, and a stub has only what was linked."""
TORCH = re.compile(r"lib(?:torch|c10|shm|caffe2)\w*\.so(?:\.\d+)*")
GLIBC = re.compile(r"(?:lib(?:c|m|dl|rt|pthread|util|resolv|mvec)\.so\.\d+|ld-linux[a-z0-9-]*\.so\.\d+)")

_TORCH_NAMESPACES = frozenset({"c10", "at", "torch", "caffe2", "c10d"})
_TORCH_NAMES = re.compile(r"(?:aoti_torch_|THP[A-Z]|THC[A-Z])\w*")
_PYTHON_NAMES = re.compile(r"_?Py[A-Z_]\w*")
_CUDA_LIBRARIES = (
    "cublas",
    "cusparse",
    "cusolver",
    "curand",
    "cufft",
    "cudnn",
    "nccl",
    "nvrtc",
    "nvJitLink",
    "nvshmem",
)
_OWNERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), owner)
    for pattern, owner in (
        (r"(?:__)?cuda[A-Z]\w*", "libcudart"),
        (r"(?:cu|nvml)[A-Z]\w*", "libcuda"),
        (r"cublasLt\w*", "libcublasLt"),
        *((rf"{name}[A-Z_]\w*", f"lib{name}") for name in _CUDA_LIBRARIES),
        (r"TVMFFI\w*|_ZNK?3tvm\w*", "libtvm_ffi"),
        (
            r"__cxa_\w*|__gxx_\w*|_ZNK?S[tabsiod]\w*|_ZS[tabsiod]\w*|_ZT[VISN]+[St]\w*|_Zn[aw]\w*|_Zd[al]\w*",
            "libstdc++",
        ),
        (r"(?:GOMP|omp|__kmpc)_\w*", "libgomp"),
    )
)
_SPECIAL = re.compile(r"_Z(?:T[VISTWH]|Th[n\d]+_|Tv[n\d]+_n?\d+_|GV|GR)*Z*(N?)[rVKRO]*")
_NUMBER = re.compile(r"\d+")
NEAR = 3
MOST_NEAR_LOOKUPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library that defines symbols: its name, the place it was found at, and each symbol with its versions."""

    name: str
    place: str
    defined: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where the symbols of a file may come from.

    ``libraries`` are those that were found, ``missing`` names those that were not (driver libraries aside, which are
    in ``driver``). ``named`` are the libraries that the file itself names. ``python`` says whether an interpreter's
    symbols are among the libraries; where not, names of Python's C interface are taken for there.
    """

    libraries: tuple[Library, ...] = ()
    missing: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    python: bool = False

    @property
    def has_torch(self) -> bool:
        """Whether a library of torch is among them."""
        return any(TORCH.fullmatch(library.name) for library in self.libraries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """A symbol that nothing defines; ``owner`` is the library it is of where ``cause`` is library, ``near`` are
    names of torch for the same function with another signature, ``version`` is one that the library lacks."""

    name: str
    cause: Cause
    owner: str = ""
    near: tuple[str, ...] = ()
    version: str | None = None


def unresolved(
    undefined: Iterable[Symbol], scope: Scope, *, torch: Callable[[], Sequence[Library]] = tuple
) -> tuple[Unresolved, ...]:
    """Return the symbols that no library of the scope defines, each with the cause; weak ones may be absent.

    ``torch`` returns the libraries of the environment's torch, for symbols that are in one that the file does not name.
    """
    open_ends = [symbol for symbol in undefined if not symbol.weak and not _is_defined(symbol, scope)]
    found = [sorted_out(symbol.name, version=symbol.version) for symbol in open_ends]
    of_torch = [one.name for one in found if one.cause == "torch"]
    libraries = [*scope.libraries, *(torch() if of_torch else ())]
    owners = {name: library.name for library in libraries for name in of_torch if name in library.defined}
    near = near_names(
        [name for name in of_torch if name not in owners][:MOST_NEAR_LOOKUPS],
        (name for one in libraries if TORCH.fullmatch(one.name) for name in one.defined),
    )
    return tuple(
        Unresolved(name=one.name, cause="library", owner=owners[one.name].removesuffix(".so"))
        if one.name in owners
        else replace(one, near=near.get(one.name, ()))
        for one in found
    )


def sorted_out(name: str, *, version: str | None = None) -> Unresolved:
    """Return who a symbol is of: torch, another library, or the project itself."""
    if _TORCH_NAMESPACES.issuperset(scopes(name)[:1] or ("",)) or _TORCH_NAMES.fullmatch(name):
        return Unresolved(name=name, cause="torch")
    if _PYTHON_NAMES.fullmatch(name):
        return Unresolved(name=name, cause="library", owner="Python", version=version)
    owner = next((owner for pattern, owner in _OWNERS if pattern.fullmatch(name)), None)
    if owner:
        return Unresolved(name=name, cause="library", owner=owner, version=version)
    return Unresolved(name=name, cause="own")


def scopes(name: str) -> tuple[str, ...]:
    """Return the namespaces and the name of a mangled C++ function or object, up to the first template; () for C.

    Source: Itanium C++ ABI, "Mangling": `_ZN3c104cuda4initEv` is c10, cuda, init.
    """
    start = _SPECIAL.match(name)
    if not start:
        return ()
    at, parts = start.end(), []
    while (number := _NUMBER.match(name, at)) and len(number[0]) < 6:
        begin = number.end()
        at = begin + int(number[0])
        parts.append(name[begin:at])
        if not start[1]:
            break
    return tuple(parts)


def near_names(wanted: Sequence[str], defined: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each symbol the defined ones that differ only in signature: the same function of another version."""
    parts = {name: "".join(f"{len(part)}{part}" for part in scopes(name)) for name in wanted if len(scopes(name)) > 1}
    found: dict[str, list[str]] = {}
    if parts:
        for candidate in defined:
            for name, part in parts.items():
                if part in candidate and candidate != name and _is_overload(candidate, name, part):
                    found.setdefault(name, []).append(candidate)
    return {
        name: tuple(sorted(set(names), key=lambda one: (abs(len(one) - len(name)), one))[:NEAR])
        for name, names in found.items()
    }


def _is_overload(one: str, other: str, part: str) -> bool:
    """Return whether two symbols are of one function; constructors and destructors have only the class in common."""
    if scopes(one) != scopes(other):
        return False
    first, second = (name.partition(part)[2][:2] for name in (one, other))
    return first == second if {first[:1], second[:1]} & {"C", "D"} else True


def other_string_abi(name: str, near: Iterable[str]) -> bool:
    """Return whether a symbol differs from those there in the ABI of std::string (_GLIBCXX_USE_CXX11_ABI)."""
    return any(("cxx11" in name) != ("cxx11" in other) for other in near)


def _is_defined(symbol: Symbol, scope: Scope) -> bool:
    for library in scope.libraries:
        versions = library.defined.get(symbol.name)
        if versions is not None and (not symbol.version or symbol.version in versions or "" in versions):
            return True
    if _PYTHON_NAMES.fullmatch(symbol.name) and not scope.python:
        return True
    if symbol.library and GLIBC.fullmatch(symbol.library):
        return True  # its version is judged against the machine's glibc
    return bool(scope.driver) and sorted_out(symbol.name).owner == "libcuda"
