"""Facts about a machine, and their JSON form."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sglforge.errors import ConfigError, Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; ``cc`` is its compute capability, ``pci`` its bus address, ``numa`` its node."""

    name: str | None = None
    cc: str | None = None
    memory_gib: float | None = None
    pci: str | None = None
    numa: int | None = None

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuda:
    """The CUDA toolkit: version of nvcc, its folder, a compat libcuda beside it."""

    nvcc: str | None = None
    home: str | None = None
    compat_libcuda: str | None = None

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundToolkit:
    """A CUDA toolkit, or what was taken for one: its folder, what led to it, its nvcc, what is wrong with it."""

    home: str
    origin: str
    nvcc: str | None = None
    problem: str | None = None

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What is known about a machine.

    None means not known; it is never a guess. ``absent`` names what was looked for and is not there: such a
    fact is None as well. ``gpus`` and ``toolkits`` are empty where there is none. ``python`` runs now, ``pythons``
    are the minors that are here. Memory and disk are in GiB; ``cores`` are the usable ones; ``cgroup_gib`` is the
    memory limit of this process's control group, None where there is no limit. ``sources`` says how each fact
    was read.
    """

    gpus: tuple[Gpu, ...] | None = None
    driver: str | None = None
    cuda: Cuda = Cuda()
    toolkits: tuple[FoundToolkit, ...] | None = None
    torch: str | None = None
    gcc: str | None = None
    gxx: str | None = None
    glibc: str | None = None
    python: str | None = None
    pythons: tuple[str, ...] | None = None
    machine: str | None = None
    distribution: str | None = None
    package_manager: str | None = None
    cores: int | None = None
    ram_gib: float | None = None
    cgroup_gib: float | None = None
    disk_gib: float | None = None
    packages: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None
    topology: str | None = None
    cmdline: str | None = None
    nccl: str | None = None
    rust: str | None = None
    protoc: str | None = None
    ninja: str | None = None
    cmake: str | None = None
    git: str | None = None
    uv: str | None = None
    absent: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    @property
    def memory_gib(self) -> float | None:
        """Memory that processes here may use: the smaller of RAM and cgroup limit."""
        known = [value for value in (self.ram_gib, self.cgroup_gib) if value is not None]
        return min(known, default=None)

    @property
    def python_minor(self) -> str | None:
        """The minor of the Python that runs, such as 3.12."""
        return ".".join(self.python.split(".")[:2]) if self.python else None

    def fingerprint(self) -> dict[str, str]:
        """Return the facts that a verdict about a server depends on, by name."""
        gpus = None if self.gpus is None else [(gpu.name, gpu.cc, gpu.memory_gib) for gpu in self.gpus]
        parts = {
            "machine": self.machine,
            "glibc": self.glibc,
            "cores": self.cores,
            "ram_gib": None if self.ram_gib is None else round(self.ram_gib),
            "gpus": gpus,
            "driver": self.driver,
        }
        return {name: str(value) for name, value in parts.items()}

    def to_json(self) -> dict[str, object]:
        """Return CONTRACT's document."""
        return dataclasses.asdict(self)


def load_facts(path: Path) -> HostFacts:
    """Read facts from a JSON file: the facts themselves, or a document that has them under ``facts``.

    Raises ConfigError ``facts-invalid`` with every fault.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            code="facts-invalid",
            message=f"cannot read host facts from {path.name}: {error}",
            where=str(path),
            hint="`sglforge doctor --json` writes such a file",
        ) from error
    return from_json(document.get("facts", document) if isinstance(document, dict) else document, where=str(path))


def from_json(document: object, *, where: str | None = None) -> HostFacts:
    """Return the facts of a document.

    Takes the names of :class:`HostFacts` and the short ones ``gpu_cc``, ``gpu``, ``n_gpus``, ``nvcc``,
    ``ram_gb``, ``cgroup_gb`` and ``disk_gb``.

    Raises ConfigError ``facts-invalid`` with every fault.
    """
    from pydantic import TypeAdapter, ValidationError

    named = _long_names(document) if isinstance(document, dict) else document
    try:
        # as JSON text: strict, and arrays become tuples
        return TypeAdapter(HostFacts).validate_json(json.dumps(named), strict=True)
    except ValidationError as error:
        faults = [_fault(item["loc"], item["type"], item["msg"]) for item in error.errors(include_url=False)]
    raise ConfigError(
        code="facts-invalid",
        message=faults[0] if len(faults) == 1 else f"{len(faults)} faults in host facts",
        where=where,
        hint="`sglforge doctor --json` shows the form",
        findings=tuple(
            Finding(code="facts-invalid", severity=Severity.ERROR, message=fault, where=where) for fault in faults
        ),
    )


def _fault(location: tuple[int | str, ...], kind: str, message: str) -> str:
    name = ".".join(map(str, location)) or "host facts"
    if kind != "unexpected_keyword_argument":
        return f"`{name}`: {message[0].lower()}{message[1:]}"
    from sglforge.config.suggest import hint

    parts: Mapping[str, type] = {"gpus": Gpu, "cuda": Cuda, "toolkits": FoundToolkit}
    fields = dataclasses.fields(parts.get(str(location[0]), HostFacts))
    return f"unknown fact `{name}`: {hint(str(location[-1]), [item.name for item in fields])}"


def _long_names(document: Mapping[str, object]) -> dict[str, object]:
    facts = dict(document)
    for short in ("ram", "cgroup", "disk"):
        if f"{short}_gb" in facts:
            facts.setdefault(f"{short}_gib", facts.pop(f"{short}_gb"))
    if "nvcc" in facts:
        facts.setdefault("cuda", {"nvcc": facts.pop("nvcc")})
    gpu = {"name": facts.pop("gpu", None), "cc": facts.pop("gpu_cc", None)}
    count = facts.pop("n_gpus", 1)
    if any(gpu.values()) and isinstance(count, int):
        facts.setdefault("gpus", [gpu] * count)
    return facts
