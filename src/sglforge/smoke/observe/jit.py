"""What a server compiles while it runs: the folders it may write to, before and after, and the modules between.

A built server should compile nothing at run time: whatever is new in these folders was missing from the build.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Literal

from sglforge.errors import Finding, Severity
from sglforge.smoke.observe.processes import environment_of

FileKind = Literal["product", "lock", "log", "other"]
_SHOWN = 20
# Compilers that have nothing to build ahead: they compile for each new shape or type and keep it in a folder.
CACHING = frozenset({"cute", "deep-gemm", "inductor", "tilelang", "triton"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JitFolder:
    """A folder that a compiler of the server may write to; ``source`` is the variable that names it, or `default`."""

    owner: str
    path: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The files of some folders: path to size in bytes and time of writing in ns; `unreadable` folders have none."""

    folders: tuple[JitFolder, ...]
    files: Mapping[str, tuple[int, int]]
    unreadable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a file that is in none of the folders.

        Raises ValueError.
        """
        for path in self.files:
            _folder(self.folders, path)

    def products(self) -> Snapshot:
        """Return the snapshot of what was compiled only, which is what counts."""
        return replace(self, files={path: stamp for path, stamp in self.files.items() if self._kind(path) == "product"})

    def modules_since(self, seconds: float) -> tuple[tuple[str, str], ...]:
        """Return owner and name of what was compiled after a time, in seconds since 1970."""
        made = [path for path, (_, ns) in self.files.items() if ns >= seconds * 1e9 and self._kind(path) == "product"]
        return tuple(sorted({(f.owner, module_name(f.owner, below)) for f, below in map(self._place, made)}))

    def _kind(self, path: str) -> FileKind:
        folder, below = self._place(path)
        return file_kind(folder.owner, below)

    def _place(self, path: str) -> tuple[JitFolder, PurePath]:
        folder = _folder(self.folders, path)
        return folder, PurePath(path).relative_to(folder.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file that is new or was written again.

    ``module`` is the name of what was compiled, as its owner calls it. Only a ``product`` proves that something was
    compiled: a library, an object, a kernel image, a graph.
    """

    path: str
    owner: str
    module: str
    kind: FileKind
    new: bool
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JitChanges:
    """What happened in the folders between two snapshots; ``unreadable`` ones are open questions."""

    folders: tuple[JitFolder, ...]
    files: tuple[ChangedFile, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[tuple[str, str], ...]:
        """Owner and name of everything that was compiled, sorted, each once."""
        return tuple(sorted({(file.owner, file.module) for file in self.files if file.kind == "product"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """A variable that names a folder, what its owner appends to it, and the folder without the variable."""

    owner: str
    variable: str
    below: str = ""
    default: str | None = None


# Sources: SGLang 0.5.9 to 0.5.23 (srt/environ.py, srt/compilation, kernels/jit), FlashInfer's jit/env.py, Triton's
# knobs.py, torch's _inductor and cpp_extension, CUDA's list of environment variables.
_CACHES = (
    _Cache(owner="sglang", variable="SGLANG_CACHE_DIR", default="{home}/.cache/sglang"),
    _Cache(
        owner="flashinfer",
        variable="FLASHINFER_WORKSPACE_BASE",
        below=".cache/flashinfer",
        default="{home}/.cache/flashinfer",
    ),
    _Cache(owner="flashinfer", variable="FLASHINFER_CUBIN_DIR"),
    _Cache(owner="triton", variable="TRITON_CACHE_DIR", default="{triton}/.triton/cache"),
    _Cache(owner="inductor", variable="TORCHINDUCTOR_CACHE_DIR", default="{tmp}/torchinductor_{user}"),
    _Cache(owner="torch-extensions", variable="TORCH_EXTENSIONS_DIR", default="{cache}/torch_extensions"),
    _Cache(owner="sgl-jit", variable="SGLANG_JIT_CACHE_DIR", default="{home}/.cache/sglang/jit"),
    _Cache(owner="tvm-ffi", variable="TVM_FFI_CACHE_DIR", default="{home}/.cache/tvm-ffi"),
    _Cache(owner="deep-gemm", variable="SGLANG_DG_CACHE_DIR", default="{home}/.cache/deep_gemm"),
    _Cache(owner="deep-gemm", variable="DG_JIT_CACHE_DIR"),
    _Cache(owner="cute", variable="SGLANG_CUTE_AOT_CACHE_DIR"),
    _Cache(
        owner="cute",
        variable="FLASH_ATTENTION_CUTE_DSL_CACHE_DIR",
        default="{tmp}/{user}/flash_attention_cute_dsl_cache",
    ),
    _Cache(owner="tilelang", variable="TILELANG_CACHE_DIR", default="{home}/.tilelang/cache"),
    _Cache(owner="driver", variable="CUDA_CACHE_PATH", default="{home}/.nv/ComputeCache"),
)
# From 0.5.18 on SGLang moves the others' caches below its own, unless their variables are set.
_BELOW_SGLANG = {
    "cute": "cute_aot",
    "deep-gemm": "deep_gemm",
    "driver": "nv",
    "flashinfer": ".cache/flashinfer",
    "inductor": "inductor",
    "tilelang": "tilelang",
    "triton": "triton",
}


def jit_folders(environments: Sequence[Mapping[str, str]], *, home: str, user: str) -> tuple[JitFolder, ...]:
    """Return the folders that a server may compile into, whether they exist or not.

    Args:
        environments: Of the server's processes. SGLang sets variables for its children, which its own does not show:
            a variable that one process has counts for all, and its default only if none has it.
        home: The home folder where ``HOME`` is not set.
        user: The name of the user that the server runs as.
    """
    names = {
        "home": _values(environments, "HOME") or [home],
        "tmp": _values(environments, "TMPDIR") or ["/tmp"],  # noqa: S108 - looked at, not written
        "user": [user],
    }
    names["cache"] = _values(environments, "XDG_CACHE_HOME") or [f"{one}/.cache" for one in names["home"]]
    names["triton"] = _values(environments, "TRITON_HOME") or names["home"]
    found: dict[str, JitFolder] = {}

    def add(owner: str, path: str, source: str) -> None:
        if path.startswith("~"):
            path = names["home"][0] + path[1:]
        path = os.path.normpath(path)
        if Path(path).is_absolute():
            found.setdefault(path, JitFolder(owner=owner, path=path, source=source))

    for cache in _CACHES:
        for value in (values := _values(environments, cache.variable)):
            add(cache.owner, f"{value}/{cache.below}", cache.variable)
        if cache.default and not values:
            first = cache.default[1 : cache.default.index("}")]
            for one in names[first]:
                add(cache.owner, cache.default.format(**{**_firsts(names), first: one}), "default")
    for base in [folder.path for folder in found.values() if folder.owner == "sglang"]:
        for owner, below in _BELOW_SGLANG.items():
            add(owner, f"{base}/{below}", "SGLANG_CACHE_DIR")
    return tuple(sorted(found.values(), key=lambda folder: folder.path))


def folders_of(pids: Sequence[int]) -> tuple[JitFolder, ...]:
    """Return the folders that running processes may compile into."""
    import getpass

    environments = [environment_of(pid) for pid in pids]
    return jit_folders(environments, home=str(Path.home()), user=getpass.getuser())


def snapshot(folders: Sequence[JitFolder]) -> Snapshot:
    """Return what is in the folders now; a folder that does not exist is empty, links are not followed."""
    files: dict[str, tuple[int, int]] = {}
    unreadable: list[str] = []
    paths = [folder.path for folder in folders]
    for path in paths:
        if not any(path.startswith(f"{other}/") for other in paths):
            files.update(_files(path, unreadable))
    return Snapshot(folders=tuple(folders), files=files, unreadable=tuple(sorted(unreadable)))


def changes(before: Snapshot, after: Snapshot) -> JitChanges:
    """Return what is new or was written again between two snapshots.

    A folder that only the second one knows is an open question: it counts as unreadable.
    """
    found = []
    known = {folder.path for folder in before.folders}
    unseen = {folder.path for folder in after.folders if not _is_covered(folder.path, known)}
    for path, (size, mtime_ns) in sorted(after.files.items()):
        folder = _folder(after.folders, path)
        if before.files.get(path) == (size, mtime_ns) or folder.path in unseen:
            continue
        below = PurePath(path).relative_to(folder.path)
        kind = file_kind(folder.owner, below)
        found.append(
            ChangedFile(
                path=path,
                owner=folder.owner,
                module=module_name(folder.owner, below),
                kind=kind,
                new=path not in before.files,
                size=size,
            )
        )
    unreadable = tuple(sorted({*before.unreadable, *after.unreadable, *unseen}))
    return JitChanges(folders=after.folders, files=tuple(found), unreadable=unreadable)


def judge_jit(compiled: JitChanges) -> Finding | None:
    """Return the finding for what was compiled at run time and could have been built ahead, None when nothing was."""
    names = [f"{owner}: {module}" for owner, module in compiled.modules if owner not in CACHING]
    if not names:
        return None
    products = [file.path for file in compiled.files if file.kind == "product" and file.owner not in CACHING]
    return Finding(
        code="jit-at-run-time",
        severity=Severity.ERROR,
        message=f"the server compiled {len(names)} module{'s' if len(names) > 1 else ''} while it ran: "
        f"{', '.join(names[:3])}{' ...' if len(names) > 3 else ''}",
        hint="build these modules into the environment, or keep the folder between starts",
        detail=(*names[:_SHOWN], *products[:_SHOWN]),
    )


def file_kind(owner: str, below: PurePath) -> FileKind:
    """Say what a file is, by its path below the folder of its owner."""
    name = below.name
    if name == "lock" or name.endswith((".lock", ".FileLock")):
        return "lock"
    if name.endswith((".log", ".ninja_log", ".ninja_deps")):
        return "log"
    if name.endswith((".so", ".o", ".cubin", ".hsaco", ".fatbin")):
        return "product"
    if owner == "driver" and name != "index":
        return "product"  # what the driver made of PTX; the names have no suffix
    if {"fxgraph", "aotautograd"} & set(below.parts):
        return "product"
    return "other"


def module_name(owner: str, below: PurePath) -> str:
    """Return the name of what was compiled, by the path of one of its files below the folder of its owner."""
    parts = below.parts
    folder = parts[-2] if len(parts) > 1 else below.stem
    match owner:
        case "flashinfer":
            # <version>/<architectures>/cached_ops/<module>/..., likewise generated/<module>/...
            at = next((i for i, part in enumerate(parts) if part in {"cached_ops", "generated"}), None)
            return parts[at + 1] if at is not None and len(parts) > at + 2 else below.stem
        case "triton":
            return _kernel(below)
        case "inductor" | "sglang" if {"triton", "triton_cache"} & set(parts):
            return _kernel(below)
        case "sgl-jit":
            return parts[1] if len(parts) > 2 else folder  # <target>/<module>/build-.../deps-.../
        case "deep-gemm":
            # cache/kernel.<name>.<hash>/kernel.cubin
            return folder.removeprefix("kernel.").partition(".")[0]
        case "driver":
            return "kernels from PTX"
        case "sglang" if parts[0] == "rust_extensions" and len(parts) > 3:
            return parts[2]  # rust_extensions/artifacts/<package>/<fingerprint>/
        case "tvm-ffi":
            return parts[0]  # <module>_<hash>/
        case "inductor":
            return below.stem
        case _:
            return folder


def _kernel(below: PurePath) -> str:
    """Return the name of a Triton kernel: <hash>/<kernel>.cubin, and __grp__<kernel>.json for its group."""
    return below.name.removeprefix("__grp__").partition(".")[0]


def _is_covered(path: str, folders: Collection[str]) -> bool:
    """Say whether a folder is one of some folders, or lies in one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _folder(folders: Sequence[JitFolder], path: str) -> JitFolder:
    """Return the innermost folder that a file is in.

    Raises ValueError where there is none.
    """
    return max(
        (folder for folder in folders if path.startswith(f"{folder.path}/")), key=lambda folder: len(folder.path)
    )


def _files(root: str, unreadable: list[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    waiting = [root]
    while waiting:
        path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # a compiler cleans up after itself
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif entry.is_file(follow_symlinks=False):
                            status = entry.stat(follow_symlinks=False)
                            # a name that is no text must not break the transcript
                            yield os.fsencode(entry.path).decode(errors="replace"), (status.st_size, status.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            unreadable.append(path)


def _values(environments: Sequence[Mapping[str, str]], variable: str) -> list[str]:
    """Return the values that a variable has, each once; empty counts as not set."""
    return list(dict.fromkeys(value for one in environments if (value := one.get(variable))))


def _firsts(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in names.items()}
