"""The shared objects that processes have really loaded, and whether they are the right ones.

What is linked in statically cannot be seen: a library that carries ``libcudart_static`` has no SONAME and no
DT_NEEDED of it, so its CUDA is unknown here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.artifacts.binary import CUDA_NUMBERED
from sglforge.base.files import sha256_file
from sglforge.errors import Finding, Severity
from sglforge.provision.receipt import Environment
from sglforge.smoke.observe.elf import Linkage, read_linkage
from sglforge.smoke.observe.processes import environment_of, started

_DELETED = " (deleted)"
_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")
# What an environment brings itself; taken from elsewhere it is another build of it. A libnccl-net.so is a plugin for
# the machine's network, and belongs to the machine.
_OWN = re.compile(
    r"(?:lib(?:torch|c10|nccl(?!-)|cudart|nvrtc|cublas|cudnn|cusparse|cusolver|nvJitLink|nvshmem|tvm_ffi|triton)"
    r"|common_ops|flash_ops|flashmla_ops|spatial_ops|infllm_ops)[^/]*\.so"
)
_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_SHOWN = 8
# /proc/stat gives the time of boot, to which starts of processes are relative, in whole seconds.
_CLOCK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A file with an executable mapping.

    ``path`` is what the process mapped, ``real`` the file behind it; they are equal for a file that is ``deleted``
    from under the process, of which nothing else is known then. ``inside`` says whether the file lies in the
    environment. ``after_start`` says that its content was written after a process with it had started. ``sha256``
    is there only for files that the receipt has a hash of, ``expected``.
    """

    path: str
    real: str
    pids: tuple[int, ...]
    inside: bool
    soname: str | None = None
    needed: tuple[str, ...] = ()
    deleted: bool = False
    present: bool = True
    after_start: bool = False
    sha256: str | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The libraries of some processes, in the order of their paths.

    ``environment`` is the folder that they should come from, ``unreadable`` the processes whose maps could not be
    read, ``search`` the variables that lead the loader elsewhere, where they are set.
    """

    environment: str
    libraries: tuple[Library, ...]
    unreadable: tuple[int, ...] = ()
    search: tuple[tuple[str, str], ...] = ()


def expected_hashes(environment: Environment) -> dict[str, str]:
    """Return the sha256 of every library that we built, by its real path."""
    return {
        os.path.realpath(environment.site_packages / path): built.sha256
        for receipt in environment.receipt.built
        for path, built in receipt.files.items()
        if ".so" in Path(path).suffixes
    }


def read_libraries(pids: Sequence[int], *, environment: Path, expected: Mapping[str, str]) -> Loaded:
    """Return what the processes have loaded.

    Args:
        pids: Processes to look at.
        environment: The folder of the environment that they run in.
        expected: sha256 by real path, of the files whose content is known (see `expected_hashes`).
    """
    holders: dict[str, list[int]] = {}
    unreadable: list[int] = []
    for pid in pids:
        try:
            for path in _mapped(pid):
                holders.setdefault(path, []).append(pid)
        except OSError:
            unreadable.append(pid)
    starts = {pid: started(pid) for pid in pids}
    root = os.path.realpath(environment)
    libraries = (
        _library(path, holding, root, expected, min(starts[pid] for pid in holding))
        for path, holding in sorted(holders.items())
    )
    return Loaded(
        environment=root,
        libraries=tuple(libraries),
        unreadable=tuple(unreadable),
        search=tuple(sorted({pair for pid in pids for pair in _search(pid)})),
    )


def cuda_majors(loaded: Loaded) -> dict[int, tuple[str, ...]]:
    """Return the CUDA major versions that loaded files are, by SONAME, or need, each with the words for it."""
    found: dict[int, list[str]] = {}
    for library in loaded.libraries:
        own = library.soname or Path(library.path).name
        for name, word in ((own, "is"), *((name, "needs") for name in library.needed)):
            if match := CUDA_NUMBERED.fullmatch(name):
                found.setdefault(int(match[1]), []).append(f"{library.real} {word} {name}")
    return {major: tuple(words) for major, words in sorted(found.items())}


def duplicates(loaded: Loaded) -> dict[str, tuple[str, ...]]:
    """Return the SONAMEs that one process has loaded from more than one file, with these files."""
    files: dict[tuple[int, str], set[str]] = {}
    for library in loaded.libraries:
        for pid in library.pids if library.soname else ():
            files.setdefault((pid, str(library.soname)), set()).add(library.real)
    return {name: tuple(sorted(paths)) for (_, name), paths in sorted(files.items()) if len(paths) > 1}


def judge_libraries(loaded: Loaded) -> tuple[Finding, ...]:
    """Return what is wrong with the loaded libraries; nothing when all is well."""
    return tuple(finding for judge in (_mixed_majors, _not_ours, _replaced) if (finding := judge(loaded)) is not None)


def _mixed_majors(loaded: Loaded) -> Finding | None:
    majors = cuda_majors(loaded)
    if len(majors) < 2:
        return None
    return Finding(
        code="so-cuda-major-mixed",
        severity=Severity.ERROR,
        message=f"the server has loaded libraries of CUDA {' and '.join(map(str, majors))}",
        hint="rebuild what needs the wrong one; the detail names the files",
        detail=tuple(f"CUDA {major}: {word}" for major, words in majors.items() for word in words[:_SHOWN]),
    )


def _not_ours(loaded: Loaded) -> Finding | None:
    foreign = [library for library in loaded.libraries if _is_foreign(library)]
    if not foreign:
        return None
    return Finding(
        code="library-not-ours",
        severity=Severity.ERROR,
        message=f"{_count(foreign)} not from the environment: {foreign[0].real}",
        hint="unset what leads the loader there, and start the server from its script",
        detail=(
            *(library.real for library in foreign[:_SHOWN]),
            *(f"{name}={value}" for name, value in loaded.search),
            f"the environment is {loaded.environment}",
        ),
    )


def _is_foreign(library: Library) -> bool:
    """Say whether a file stands in for one of the environment; files of a JIT cache are made from it, and are not."""
    if library.inside:
        return False
    return bool(_PACKAGES.search(library.real) or _OWN.match(Path(library.path).name))


def _replaced(loaded: Loaded) -> Finding | None:
    reasons = [(library, why) for library in loaded.libraries if (why := _why_replaced(library))]
    if not reasons:
        return None
    library, why = reasons[0]
    return Finding(
        code="library-replaced",
        severity=Severity.ERROR,
        message=f"{_count([library for library, _ in reasons])} not what was installed: {library.path} {why}",
        hint="nox -s verify, then start the server again",
        detail=tuple(f"{library.path} {why}" for library, why in reasons[:_SHOWN]),
    )


def _why_replaced(library: Library) -> str | None:
    """Say how a file has changed, if it has.

    A file outside that was unlinked is nobody's business (some load a temporary copy of a library), but for one
    that is there anew: then the server runs another version than the machine has.
    """
    if library.deleted and (library.inside or library.present):
        return "was replaced after the server had loaded it" if library.present else "is deleted"
    if library.expected and library.sha256 and library.sha256 != library.expected:
        return "has another content than the receipt says"
    if library.inside and library.after_start:
        return "was written after the server had started"
    return None


def _library(path: str, pids: list[int], root: str, expected: Mapping[str, str], started: float) -> Library:
    shown = path.removesuffix(_DELETED)
    deleted = path.endswith(_DELETED)
    real = shown if deleted else os.path.realpath(shown)
    linkage, written = _facts(real)
    hashed = real in expected and not deleted and written is not None
    return Library(
        path=shown,
        real=real,
        pids=tuple(pids),
        inside=real.startswith(f"{root}/") or shown.startswith(f"{root}/"),
        soname=linkage.soname if linkage and not deleted else None,
        needed=linkage.needed if linkage and not deleted else (),
        deleted=deleted,
        present=written is not None,
        after_start=written is not None and not deleted and written > started + _CLOCK_S,
        sha256=sha256_file(Path(real)) if hashed else None,
        expected=expected.get(real),
    )


def _facts(real: str) -> tuple[Linkage | None, float | None]:
    """Return how a file is linked, and when it was last written in seconds since 1970; None when it is not there."""
    try:
        return read_linkage(Path(real)), Path(real).stat().st_mtime
    except OSError:
        return None, None


def _mapped(pid: int) -> Iterator[str]:
    """Yield the files that a process has mapped to execute, once each (proc_pid_maps(5))."""
    paths = set()
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/") and not _is_memory(fields[5]):
            paths.add(fields[5].replace("\\012", "\n"))
    yield from paths


def _is_memory(path: str) -> bool:
    """Say whether a mapping is memory with a name, not a file on disk."""
    return path.startswith(("/memfd:", "/SYSV", "/dev/", "/anon_hugepage"))


def _search(pid: int) -> list[tuple[str, str]]:
    environment = environment_of(pid)
    return [(name, environment[name]) for name in _SEARCHED if environment.get(name)]


def _count(libraries: Sequence[Library]) -> str:
    return "1 library is" if len(libraries) == 1 else f"{len(libraries)} libraries are"
