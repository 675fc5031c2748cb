"""Judge a machine against a target, completely in one pass."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sglforge.config.model import Target, Toolkit
from sglforge.errors import DoctorError, Finding, Severity
from sglforge.host.facts import Gpu, HostFacts
from sglforge.host.install_hints import how_to_install

MACHINES = ("x86_64",)
MIN_DRIVER = (580,)
"""CUDA 13 needs driver branch r580 or newer (CUDA 13 release notes)."""
MIN_NVCC = (12, 9)
"""The first nvcc that compiles for the family sm_120f, which FlashInfer asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """A glibc from which on functions are declared that CUDA's headers declare otherwise.

    ``bad`` is the newest release that is known to clash, ``good`` the oldest that is known not to.
    """

    glibc: tuple[int, ...]
    functions: str
    bad: tuple[int, ...]
    good: tuple[int, ...]


CLASHES = (
    Clash(glibc=(2, 42), functions="rsqrt", bad=(13, 0), good=(13, 3)),
    Clash(glibc=(2, 41), functions="sinpi and cospi", bad=(12, 9), good=(13, 0)),
)
"""The functions that C23 adds (public reports; between 13.0 and 13.3 nobody has said where the first one ends)."""


def judge(
    facts: HostFacts, target: Target, *, pythons: Sequence[str] = (), toolkit: Toolkit | None = None
) -> tuple[Finding, ...]:
    """Return every finding about a machine that is to build for a target and serve on it.

    ``pythons`` are the Python minors that the stack's environment is locked for; none: not judged. ``toolkit`` is the
    CUDA toolkit that the target is compiled with, and that is brought where the machine has none that fits. A fact
    that is not known is never judged: the last finding names those that were needed.
    """
    case = _Case(facts=facts, target=target, pythons=tuple(pythons), toolkit=toolkit)
    checks = (_machine, _cores, _memory, _disk, _glibc, _python, _git, _uv)
    cuda = (_compiler, _headers, _gpus, _driver, _nvcc, _homes) if target.kind == "cuda" else ()
    found = [finding for check in (*checks, *cuda) for finding in check(case)]
    return (*found, *_not_checked(case))


def auto_target(facts: HostFacts, targets: Mapping[str, Target]) -> tuple[str, str]:
    """Return the target for a machine and why it is that one.

    Raises DoctorError ``gpu-unknown`` when the GPUs could not be read and ``no-target-for-gpu`` when no
    target serves on them.
    """
    if facts.gpus is None or any(gpu.cc is None for gpu in facts.gpus):
        seen = "a GPU is there, its compute capability" if facts.gpus else "which GPUs are there"
        raise DoctorError(
            code="gpu-unknown",
            message=f"{seen} could not be read: {facts.sources.get('gpus', 'no source')}",
            hint="install the NVIDIA driver, or name a target: --target cpu",
        )
    if not facts.gpus:
        for name, target in targets.items():
            if target.kind == "cpu":
                return name, "no GPU"
    for gpu in facts.gpus:
        for name, target in targets.items():
            if serves(target, gpu):
                return name, _described(gpu)
    names = sorted({_described(gpu) for gpu in facts.gpus}) or ["a machine without a GPU"]
    raise DoctorError(
        code="no-target-for-gpu",
        message=f"no target is for {', '.join(names)}",
        context={"targets": ", ".join(f"{name} ({_wanted(target)})" for name, target in targets.items())},
        hint="to run without the GPU: --target cpu",
    )


def serves(target: Target, gpu: Gpu) -> bool:
    """Return whether a target's binaries run on a GPU.

    They run on the same capability; those of a family (12.0f) also on later ones of the same major.
    """
    if target.compute_capability is None or gpu.cc is None:
        return False
    family = all(arch.endswith("f") for arch in target.arch_list)
    built, own = _numbers(target.compute_capability), _numbers(gpu.cc)
    return own == built or (family and own[0] == built[0] and own > built)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    facts: HostFacts
    target: Target
    pythons: tuple[str, ...]
    toolkit: Toolkit | None

    @property
    def brings_toolkit(self) -> bool:
        """Whether builds bring a toolkit of their own where this machine, which was looked through, has none."""
        return self.toolkit is not None and self.facts.toolkits is not None

    def install(self, what: str) -> str:
        """Return the command that installs something on this distribution."""
        return how_to_install(what, self.facts.package_manager)


def _machine(case: _Case) -> Iterator[Finding]:
    if case.facts.machine and case.facts.machine not in MACHINES:
        yield _error(
            "machine-unsupported",
            f"this machine is {case.facts.machine}, the locks hold files for {', '.join(MACHINES)}",
            hint="use an x86-64 machine",
        )


def _cores(case: _Case) -> Iterator[Finding]:
    cores, wanted = case.facts.cores, case.target.min_cores
    if cores is not None and cores < wanted:
        yield _error(
            "cores-too-few",
            f"{cores} usable cores, target {case.target.name} needs {wanted}",
            hint="raise the CPU limit of the container, or use a larger machine",
            detail=_source(case, "cores"),
        )


def _memory(case: _Case) -> Iterator[Finding]:
    facts, wanted = case.facts, case.target.min_memory_gib
    if facts.memory_gib is None or facts.memory_gib >= wanted:
        return
    limited = facts.memory_gib == facts.cgroup_gib
    yield _error(
        "memory-too-small",
        f"{facts.memory_gib:g} GiB of memory ({'limit of the control group' if limited else 'RAM'}), "
        f"target {case.target.name} needs {wanted:g} GiB",
        hint="raise the memory limit of the container or service" if limited else "use a machine with more memory",
        detail=_source(case, "cgroup_gib" if limited else "ram_gib"),
    )


def _disk(case: _Case) -> Iterator[Finding]:
    disk, wanted = case.facts.disk_gib, case.target.min_disk_gib
    if disk is not None and disk < wanted:
        yield _error(
            "disk-too-small",
            f"{disk:g} GiB of disk are free, target {case.target.name} needs {wanted:g} GiB",
            hint="put the workspace on a larger file system: --workspace DIR, or set SGLFORGE_HOME",
            detail=_source(case, "disk_gib"),
        )


def _glibc(case: _Case) -> Iterator[Finding]:
    glibc, wanted = case.facts.glibc, case.target.min_glibc
    if glibc and wanted and _numbers(glibc) < _numbers(wanted):
        yield _error(
            "glibc-too-old",
            f"glibc {glibc}, the released wheels for target {case.target.name} need {wanted}",
            hint="use a newer distribution: Debian 12, Ubuntu 22.04, RHEL 9 or later",
        )


def _python(case: _Case) -> Iterator[Finding]:
    running = case.facts.python_minor
    if not running or not case.pythons:
        return
    if not {running, *(case.facts.pythons or ())} & set(case.pythons):
        yield _error(
            "python-not-locked",
            f"this is Python {running}, the environment is locked for {', '.join(case.pythons)}: none here",
            hint=f"uv python install {case.pythons[0]}",
        )


def _git(case: _Case) -> Iterator[Finding]:
    if "git" in case.facts.absent:
        yield _error("git-missing", "git is not on PATH; patches are applied with it", hint=case.install("git"))


def _uv(case: _Case) -> Iterator[Finding]:
    if "uv" in case.facts.absent:
        yield _error(
            "uv-missing",
            "uv is neither beside this Python nor on PATH; environments are made with it",
            hint="python3 -m pip install uv",
        )


def _compiler(case: _Case) -> Iterator[Finding]:
    missing = [name for fact, name in (("gcc", "gcc"), ("gxx", "g++")) if fact in case.facts.absent]
    if missing:
        yield _error(
            "compiler-missing",
            f"{' and '.join(missing)} not on PATH; CUDA sources need a host compiler",
            hint=case.install("compiler"),
        )
    named = set(case.facts.env or ()) & {"CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN"}
    newest, gcc = case.toolkit.newest_gcc if case.toolkit else None, case.facts.gcc
    if newest and gcc and _numbers(gcc)[0] > newest and not named:
        yield _error(
            "host-compiler-too-new",
            f"gcc {gcc}, the nvcc of CUDA {case.toolkit.release if case.toolkit else ''} takes gcc {newest} at most",
            hint=f"install gcc-{newest} and g++-{newest}, and name them: CC=gcc-{newest} CXX=g++-{newest}",
            detail=_source(case, "gcc"),
        )


def _headers(case: _Case) -> Iterator[Finding]:
    """Yield a finding where the C library declares functions that CUDA's headers declare otherwise."""
    nvcc, glibc = case.facts.cuda.nvcc, case.facts.glibc
    cuda = case.toolkit.release if case.toolkit else nvcc
    if not cuda or not glibc:
        return
    clash = next((each for each in CLASHES if _numbers(glibc) >= each.glibc), None)
    release = _numbers(cuda)[:2]
    if clash is None or release >= clash.good:
        return
    certain = release <= clash.bad
    yield _finding(
        "glibc-vs-cuda-headers",
        Severity.ERROR if certain else Severity.WARNING,
        f"glibc {glibc} declares {clash.functions}, which the headers of CUDA {'.'.join(map(str, release))} declare "
        + ("otherwise: nothing compiles" if certain else "otherwise, as far as is known"),
        hint="build in a container of a distribution with an older glibc (Debian 12, Ubuntu 24.04), "
        f"or with CUDA {'.'.join(map(str, clash.good))} or newer",
    )


def _gpus(case: _Case) -> Iterator[Finding]:
    gpus, target = case.facts.gpus, case.target
    if gpus == ():
        yield _finding(
            "gpu-missing",
            Severity.WARNING,
            f"no NVIDIA GPU: this machine can build for target {target.name}, not serve on it",
            hint="serve on a machine with the GPU, or use --target cpu",
            detail=_source(case, "gpus"),
        )
    strangers = sorted({_described(gpu) for gpu in gpus or () if gpu.cc and not serves(target, gpu)})
    if strangers:
        yield _finding(
            "gpu-not-for-target",
            Severity.WARNING,
            f"{', '.join(strangers)}: target {target.name} is for {_wanted(target)} and does not serve on it",
            hint="--target auto chooses by the GPU",
        )


def _driver(case: _Case) -> Iterator[Finding]:
    facts = case.facts
    if facts.gpus and "driver" in facts.absent:
        yield _error(
            "driver-missing",
            "an NVIDIA GPU is there, its driver is not loaded",
            hint=case.install("driver"),
            detail=_source(case, "driver"),
        )
    if facts.driver and _numbers(facts.driver) < MIN_DRIVER:
        yield _error(
            "driver-too-old-for-cuda13",
            f"driver {facts.driver}, CUDA 13 needs {MIN_DRIVER[0]} or newer",
            hint=case.install("driver"),
        )


def _nvcc(case: _Case) -> Iterator[Finding]:
    nvcc, target = case.facts.cuda.nvcc, case.target
    if "nvcc" in case.facts.absent and not case.brings_toolkit:
        yield _error(
            "nvcc-missing",
            f"nvcc is not on PATH and CUDA_HOME names no toolkit; target {target.name} is compiled with it",
            hint=case.install("nvcc"),
        )
    if nvcc and _numbers(nvcc) < MIN_NVCC and (target.compute_capability or "").startswith("12."):
        own = f"; builds take CUDA {case.toolkit.release} of the lock" if case.brings_toolkit and case.toolkit else ""
        yield _finding(
            "nvcc-too-old-for-sm12x",
            Severity.WARNING if own else Severity.ERROR,
            f"nvcc {nvcc}, compute capability 12.x needs >= {'.'.join(map(str, MIN_NVCC))}{own}",
            hint=f"{case.install('nvcc')}, and point CUDA_HOME there",
            detail=_source(case, "nvcc"),
        )


def _homes(case: _Case) -> Iterator[Finding]:
    """Yield a warning for each variable that names no toolkit: what else reads it takes it as it is."""
    for found in case.facts.toolkits or ():
        if found.problem and found.origin in {"CUDA_HOME", "CUDA_PATH"}:
            listed = os.pathsep in found.home
            yield _finding(
                "cuda-home-malformed" if listed else "cuda-home-unusable",
                Severity.WARNING,
                f"{found.origin} is {found.home!r}: {found.problem}",
                hint=f"export {found.origin}=/path/to/one/toolkit, or unset {found.origin}; builds set their own",
            )


def _not_checked(case: _Case) -> Iterator[Finding]:
    """Yield one remark that names the facts that the judgement needs and that are not known."""
    facts = case.facts
    needed: dict[str, object] = {
        "machine": facts.machine,
        "cores": facts.cores,
        "memory": facts.memory_gib,
        "disk": facts.disk_gib,
        "glibc": facts.glibc,
        "python": facts.python,
        "git": facts.git,
        "uv": facts.uv,
    }
    if case.target.kind == "cuda":
        needed |= {"gcc": facts.gcc, "gxx": facts.gxx, "gpus": facts.gpus}
        if not case.brings_toolkit:
            needed["nvcc"] = facts.cuda.nvcc
        if facts.gpus:
            needed["driver"] = facts.driver
    unknown = [name for name, value in needed.items() if value is None and name not in facts.absent]
    if unknown:
        yield _finding(
            "not-checked",
            Severity.INFO,
            f"could not be read and was not judged: {', '.join(unknown)}",
            detail=tuple(f"{name}: {facts.sources[name]}" for name in unknown if name in facts.sources),
        )


def _described(gpu: Gpu) -> str:
    return f"{gpu.name or 'a GPU'} (compute capability {gpu.cc})"


def _wanted(target: Target) -> str:
    return f"compute capability {target.compute_capability}" if target.compute_capability else "no GPU"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _source(case: _Case, fact: str) -> tuple[str, ...]:
    source = case.facts.sources.get(fact)
    return (f"read from {source}",) if source else ()


def _error(code: str, message: str, *, hint: str, detail: tuple[str, ...] = ()) -> Finding:
    return _finding(code, Severity.ERROR, message, hint=hint, detail=detail)


def _finding(code: str, severity: Severity, message: str, *, hint: str = "", detail: tuple[str, ...] = ()) -> Finding:
    return Finding(code=code, severity=severity, subject="host", message=message, hint=hint, detail=detail)
