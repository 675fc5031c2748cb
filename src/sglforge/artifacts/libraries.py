"""Find the libraries that a file names, as the loader would when Python imports it in an environment.

Order: the file's own search path (RUNPATH, or RPATH without one; `$ORIGIN` is the folder it is installed in), then the
environment's folders of libraries (torch, the `nvidia` wheels, tvm-ffi ...: importing torch has loaded these before),
further folders (a toolkit's), the system's, and at last anywhere in the environment: whoever brings a library may load
it before. LD_LIBRARY_PATH is not looked at.

Importing torch and tvm_ffi loads some libraries for all that come after (RTLD_GLOBAL): FlashInfer's modules do not name
libtvm_ffi, and find its symbols there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from sglforge.artifacts.elf import Elf, ElfError, is_elf, opened, read_elf
from sglforge.artifacts.symbols import DRIVER, Library, Scope

MOST_LIBRARIES = 512
_SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64")
_ENVIRONMENT = ("torch/lib", "nvidia/*/lib", "*/lib", "*.libs")
_GLOBAL = ("tvm_ffi/lib/libtvm_ffi.so", "torch/lib/libtorch_global_deps.so")
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)


class Libraries:
    """The libraries of an environment and of the system; each file is read once."""

    def __init__(
        self, *, site: Path | None = None, folders: Sequence[Path] = (), system: Sequence[Path] | None = None
    ) -> None:
        """Look in ``site`` (the folder site-packages), in further folders, and in those of the system."""
        self._site = site
        inside = [folder for glob in _ENVIRONMENT for folder in sorted(site.glob(glob))] if site else []
        self._folders = tuple(dict.fromkeys([*inside, *folders]))
        self._system = tuple(system_folders() if system is None else system)
        self._read: dict[Path, Elf | None] = {}
        self._anywhere: dict[str, Path] | None = None

    @property
    def torch(self) -> str | None:
        """The version of the environment's torch, with its variant."""
        return torch_version(self._site) if self._site else None

    def of_torch(self) -> list[Library]:
        """Return the libraries of the environment's torch."""
        places = sorted((self._site / "torch" / "lib").glob("*.so")) if self._site else []
        return [_library(place.name, place, elf) for place in places if (elf := self._elf(place))]

    def scope(self, elf: Elf, *, folder: Path, root: Path) -> Scope:
        """Return where the symbols of a file may come from.

        Args:
            elf: The file.
            folder: The folder that it lies in.
            root: The folder that stands for site-packages: what is not below it is looked for in the environment.
        """
        found: dict[str, Library] = {}
        missing: list[str] = []
        driver: list[str] = []
        queue = [(name, elf, folder) for name in elf.needed]
        python = self._interpreter()
        loaded = self._loaded_for_all()
        queue += [
            (name, by, place.parent) for place, by in [*loaded, *([python] if python else [])] for name in by.needed
        ]
        found |= {place.name: _library(place.name, place, by) for place, by in loaded}
        seen: set[str] = set()
        while queue and len(seen) < MOST_LIBRARIES:
            name, by, origin = queue.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if DRIVER.fullmatch(name):
                driver.append(name)
                continue
            place = self._find(name, by, origin, root)
            read = self._elf(place) if place else None
            if place is None or read is None:
                if by is elf:
                    missing.append(name)
                continue
            found[name] = _library(name, place, read)
            queue += [(following, read, place.parent) for following in read.needed]
        libraries = list(found.values())
        if python:
            libraries.append(_library("python", *python))
        return Scope(
            libraries=tuple(libraries),
            missing=tuple(missing),
            driver=tuple(driver),
            named=elf.needed,
            python=python is not None,
        )

    def _find(self, name: str, by: Elf, origin: Path, root: Path) -> Path | None:
        if "/" in name:
            return Path(name) if Path(name).is_file() else None
        own = [*self._expanded(by.runpath or by.rpath, origin, root)]
        for folder in (*own, *self._folders, *self._system):
            candidate = folder / name
            if self._elf(candidate) is not None:
                return candidate
        return self._files().get(name)

    def _files(self) -> dict[str, Path]:
        """Return all libraries of the environment by their names."""
        if self._anywhere is None:
            found = sorted(self._site.rglob("*.so*"), reverse=True) if self._site else []
            self._anywhere = {path.name: path for path in found if path.is_file()}
        return self._anywhere

    def _loaded_for_all(self) -> list[tuple[Path, Elf]]:
        """Return what importing the environment's packages loads for everybody."""
        places = [self._site / name for name in _GLOBAL] if self._site else []
        return [(place, elf) for place in places if (elf := self._elf(place))]

    def _expanded(self, paths: Sequence[str], origin: Path, root: Path) -> Iterator[Path]:
        for text in paths:
            if not text.startswith(("/", "$ORIGIN", "${ORIGIN}")):
                continue
            place = Path(re.sub(r"^\$(?:ORIGIN|\{ORIGIN\})", lambda _: str(origin), text))
            yield place
            flat = Path(_flat(str(place)))
            if self._site and flat.is_relative_to(root):
                yield self._site / flat.relative_to(root)

    def _elf(self, path: Path) -> Elf | None:
        """Return what a library says; None where there is none that can be loaded."""
        if path not in self._read:
            try:
                with opened(path) as data:
                    self._read[path] = read_elf(data) if is_elf(data) else None
            except (OSError, ElfError):
                self._read[path] = None
        return self._read[path]

    def _interpreter(self) -> tuple[Path, Elf] | None:
        """Return the environment's Python, whose symbols extensions use."""
        if self._site is None or len(self._site.parents) < 3:
            return None
        try:
            program = (self._site.parents[2] / "bin" / "python").resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        elf = self._elf(program)
        return (program, elf) if elf else None


def _library(name: str, place: Path, elf: Elf) -> Library:
    return Library(name=name, place=str(place), defined=elf.defined)


def torch_version(site: Path) -> str | None:
    """Return the version of the torch in a site-packages folder, None without one."""
    try:
        found = _VERSION.search((site / "torch" / "version.py").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


@lru_cache(maxsize=1)
def system_folders() -> tuple[Path, ...]:
    """Return the folders that the system's loader looks in: those of /etc/ld.so.conf.d, then the usual ones."""
    listed: list[str] = []
    for file in sorted(Path("/etc/ld.so.conf.d").glob("*.conf")):
        try:
            listed += [line.strip() for line in file.read_text(errors="replace").splitlines()]
        except OSError:
            continue
    folders = (Path(line) for line in (*listed, *_SYSTEM) if line.startswith("/"))
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _flat(path: str) -> str:
    """Return a path without `..`, links not followed: the file is not where it will be installed."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)
