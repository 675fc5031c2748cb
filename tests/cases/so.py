"""Cases of kind so: what readelf, nm and cuobjdump print about a library, judged as `check` judges the library.

A case gives lists instead of a file: needed libraries, undefined symbols, the symbols that torch's and CUDA's libraries
define, the architectures of its GPU code. What it leaves out is not known, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cases.model import Judgement
from sglforge.artifacts.architectures import Architecture, parse
from sglforge.artifacts.binary import Binary, Wanted
from sglforge.artifacts.elf import Elf, Ident, Symbol
from sglforge.artifacts.fatbin import DeviceCode, Kind, Reading
from sglforge.artifacts.judge import judge as judge_binaries
from sglforge.artifacts.judge import verdict
from sglforge.artifacts.symbols import Library, Scope, Unresolved, unresolved

_OURS = {"nm_undefined", "readelf_needed", "cuobjdump_list_elf", "cuobjdump_list_ptx", "cuobjdump_sass_arch"}
_DEFINED = "nm_defined_"
_PATH = re.compile(r"[\w<>./+-]+/[\w.+-]+\.so\b")
_ARCHITECTURE = re.compile(r"(?:sm|compute)_\d+[af]?")
_MAJOR = re.compile(r"(?:\+cu)?(\d{2})(?=\d|\.|$)")
_IDENT = Ident(bits=64, little_endian=True, machine="x86_64", kind="shared object", os_abi=0, abi_version=0)


def judge(given: Mapping[str, Any]) -> Judgement | None:
    """Judge the library that a case describes; None when it describes none."""
    if not _OURS & given.keys():
        return None
    path = _path(given)
    symbols = tuple(Symbol(name=name) for name in _words(given.get("nm_undefined")))
    needed = tuple(_words(given.get("readelf_needed")))
    elf = Elf(ident=_IDENT, flags=0, needed=needed, versions={}, undefined=symbols, defined={})
    scope = _scope(given, needed)
    binary = Binary(
        path=path,
        size=0,
        elf=elf,
        reading=_reading(given),
        scope=scope,
        unresolved=tuple(_open_ends(symbols, scope, given)),
    )
    findings = judge_binaries([binary], _wanted(given, path))
    return Judgement(verdict=verdict(findings), findings=findings)


def _path(given: Mapping[str, Any]) -> str:
    """Return where the library lies, from whatever the case says of it."""
    if isinstance(file := given.get("cache_file") or given.get("file"), str):
        return file
    if found := _PATH.search(str(given.get("log", ""))):
        return found[0]
    folder = given.get("loader_subdir")
    return f"sgl_kernel/{folder}/common_ops.abi3.so" if folder else "library.so"


def _wanted(given: Mapping[str, Any], path: str) -> Wanted:
    run = given.get("torch_run") or given.get("torch")
    cuda = given.get("torch_cuda") or next(iter(re.findall(r"\+cu(\d+)", str(run or ""))), None)
    major = _MAJOR.match(str(cuda)) if cuda else None
    return Wanted(
        gpus=tuple(one for text in _words(given.get("gpu_cc")) if (one := parse(text))),
        # a list of cubins does not tell sm_120f from sm_120
        arch_list=tuple(
            one for text in _words(given.get("arch_list")) if "cuobjdump_sass_arch" in given and (one := parse(text))
        ),
        cuda_major=int(major[1]) if major else None,
        torch_built=_text(given.get("torch_build")),
        torch=_text(run),
        package="sgl-kernel" if "sgl_kernel" in path or "common_ops" in path else None,
    )


def _scope(given: Mapping[str, Any], needed: Sequence[str]) -> Scope:
    libraries = [
        Library(
            name=f"{name.removeprefix(_DEFINED)}.so",
            place="the case",
            defined=dict.fromkeys(_words(symbols), ("",)),
        )
        for name, symbols in given.items()
        if name.startswith(_DEFINED)
    ]
    return Scope(libraries=tuple(libraries), driver=("libcuda.so.1",), named=tuple(needed))


def _open_ends(symbols: Sequence[Symbol], scope: Scope, given: Mapping[str, Any]) -> Iterator[Unresolved]:
    """Yield the undefined symbols; of a library of which nothing is listed, nothing is known."""
    known = {library.name.removesuffix(".so") for library in scope.libraries}
    same_torch = given.get("torch_build") and given.get("torch_build") == given.get("torch_run")
    for one in unresolved(symbols, scope):
        of_torch = one.cause == "torch"
        if of_torch and not scope.has_torch and (same_torch or "torch_run" not in given):
            continue
        if one.cause == "library" and one.owner not in known:
            continue
        yield one


def _reading(given: Mapping[str, Any]) -> Reading | None:
    keys = ("cuobjdump_sass_arch", "cuobjdump_list_elf", "cuobjdump_list_ptx")
    sass = _architectures(given.get(keys[0])) or _architectures(given.get(keys[1]))
    codes = [_code("sass", one) for one in sass] + [_code("ptx", one) for one in _architectures(given.get(keys[2]))]
    if not any(key in given for key in keys):
        return None
    return Reading(codes=tuple(codes), units=1)


def _code(kind: Kind, architecture: Architecture) -> DeviceCode:
    return DeviceCode(kind=kind, architecture=architecture, unit=0, size=0)


def _architectures(value: object) -> list[Architecture]:
    text = "\n".join(_words(value))
    return [one for word in _ARCHITECTURE.findall(text) if (one := parse(word))]


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(one) for one in value] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return str(value) if value else None
