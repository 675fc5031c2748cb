"""Read every fact about this machine, in parallel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sglforge.base import proc
from sglforge.base.beside import Beside
from sglforge.base.proc import Runner
from sglforge.host import cgroup, gpu, programs
from sglforge.host.cgroup import GIB, Limits
from sglforge.host.cuda.find import find as find_toolkits
from sglforge.host.facts import Cuda, HostFacts
from sglforge.host.programs import Version

FACT_NAMES = {"g++": "gxx", "rustc": "rust"}
PYTHON_MINORS = range(11, 20)
_RUNNING_MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"

ENV_NAMES = frozenset(
    {
        "CC",
        "CMAKE_BUILD_PARALLEL_LEVEL",
        "CUDAHOSTCXX",
        "CXX",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "MAX_JOBS",
        "OMP_NUM_THREADS",
    }
)
ENV_PREFIXES = ("CUDA_", "FLASHINFER_", "NCCL_", "NVCC_", "SGLANG_", "SGL_KERNEL_", "TORCH_", "TRITON_")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")

PACKAGE_MANAGERS = {"debian": "apt", "ubuntu": "apt", "fedora": "dnf", "rhel": "dnf"}


def probe(workspace_root: Path, run: Runner = proc.run, *, root: Path = Path("/")) -> HostFacts:
    """Return what can be known about this machine without importing torch.

    ``workspace_root`` is the folder whose file system must hold what is built; ``root`` holds the proc/, sys/
    and etc/ that are read, for a recorded machine.
    """
    gpus = Beside(partial(gpu.read, run, root))
    asked = {name: Beside(partial(programs.read, name, run, root=root)) for name in programs.VERSION_ARGUMENTS}
    toolkits = Beside(partial(find_toolkits, run, root=root))
    limits = cgroup.read(root)
    cores, cores_source = _cores(limits)
    disk_gib, disk_source = _disk(workspace_root)
    distribution, package_manager = _distribution(root)
    found = {name: version.result() for name, version in asked.items()}
    graphics = gpus.result()
    versions = {FACT_NAMES.get(name, name): version for name, version in found.items()}
    absent = [name for name, version in versions.items() if version.absent]
    if graphics.driver_absent:
        absent.append("driver")
    return HostFacts(
        gpus=graphics.gpus,
        driver=graphics.driver,
        cuda=Cuda(nvcc=versions["nvcc"].value, home=_cuda_home(versions["nvcc"])),
        toolkits=toolkits.result(),
        gcc=versions["gcc"].value,
        gxx=versions["gxx"].value,
        glibc=_glibc(),
        python=".".join(map(str, sys.version_info[:3])),
        pythons=_pythons(),
        machine=os.uname().machine,
        distribution=distribution,
        package_manager=package_manager,
        cores=cores,
        ram_gib=_ram_gib(root),
        cgroup_gib=limits.memory_gib,
        disk_gib=disk_gib,
        env=dict(_environment()),
        cmdline=_text(root / "proc/cmdline"),
        rust=versions["rust"].value,
        protoc=versions["protoc"].value,
        ninja=versions["ninja"].value,
        cmake=versions["cmake"].value,
        git=versions["git"].value,
        uv=versions["uv"].value,
        absent=tuple(sorted(absent)),
        sources={
            "gpus": graphics.gpus_source,
            "driver": graphics.driver_source,
            "toolkits": "CUDA_HOME, CUDA_PATH, PATH, /usr/local, /opt/cuda, conda, wheels of Pythons",
            "cores": cores_source,
            "ram_gib": "/proc/meminfo",
            "cgroup_gib": limits.memory_source,
            "disk_gib": disk_source,
            "glibc": "confstr",
            "python": "the running interpreter",
            "pythons": "PATH and uv's own Pythons",
            "distribution": "/etc/os-release",
            "cmdline": "/proc/cmdline",
            **{name: version.source for name, version in versions.items()},
        },
    )


def _cores(limits: Limits) -> tuple[int, str]:
    allowed = len(os.sched_getaffinity(0))
    if limits.cpus is not None and limits.cpus < allowed:
        return max(1, int(limits.cpus)), limits.cpus_source
    return allowed, "sched_getaffinity"


def _ram_gib(root: Path) -> float | None:
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) * 1024 / GIB, 2)
    return None


def _disk(folder: Path) -> tuple[float | None, str]:
    for existing in (folder, *folder.parents):
        try:
            return round(shutil.disk_usage(existing).free / GIB, 2), f"free below {existing}"
        except OSError:
            continue
    return None, f"{folder} cannot be reached"


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None


def _pythons() -> tuple[str, ...]:
    """Return the minors of the Pythons on PATH and of those that uv has installed, without running them."""
    names = [f"3.{number}" for number in PYTHON_MINORS if shutil.which(f"python3.{number}")]
    data = os.environ.get("XDG_DATA_HOME") or f"{os.environ.get('HOME', '')}/.local/share"
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or f"{data}/uv/python")
    names += [".".join(folder.name.split("-")[1].split(".")[:2]) for folder in managed.glob("cpython-3.*-*")]
    return tuple(sorted({*names, _RUNNING_MINOR}, key=lambda minor: int(minor.split(".")[1])))


def _distribution(root: Path) -> tuple[str | None, str | None]:
    """Return the distribution's id with its version, and its package manager."""
    text = _text(root / "etc/os-release") or ""
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in text.splitlines())}
    names = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    manager = next((PACKAGE_MANAGERS[name] for name in names if name in PACKAGE_MANAGERS), None)
    return " ".join(filter(None, (fields.get("ID"), fields.get("VERSION_ID")))) or None, manager


def _cuda_home(nvcc: Version) -> str | None:
    """Return the toolkit that nvcc belongs to, if its folder is one; a wrapper elsewhere says nothing."""
    if nvcc.value is None:
        return None
    home = Path(nvcc.source).resolve().parent.parent
    return str(home) if (home / "nvvm").is_dir() or (home / "include/cuda.h").is_file() else None


def _environment() -> Iterator[tuple[str, str]]:
    """Yield the environment variables that builds and servers obey, without secrets."""
    for name, value in sorted(os.environ.items()):
        named = name in ENV_NAMES or name.startswith(ENV_PREFIXES)
        if named and not any(word in name for word in SECRET_WORDS):
            yield name, value


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
