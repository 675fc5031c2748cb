"""The parts of a machine that decide what a build produces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglforge.host.facts import HostFacts

UNKNOWN = "unknown"
ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What compiles here; None: absent or not known."""

    python_minor: str | None
    python_abi: str | None
    glibc: str | None
    host_compiler: str | None
    nvcc: str | None
    torch: str | None


def toolchain(facts: HostFacts) -> Toolchain:
    """Return the toolchain of a machine; of the host compiler only its major matters to what it produces."""
    minor = facts.python_minor
    return Toolchain(
        python_minor=minor,
        python_abi=f"cp{minor.replace('.', '')}" if minor else None,
        glibc=facts.glibc,
        host_compiler=f"gcc {facts.gcc.split('.')[0]}" if facts.gcc else None,
        nvcc=facts.cuda.nvcc,
        torch=facts.torch,
    )


def fingerprint(facts: HostFacts) -> Mapping[str, str]:
    """Return every part that a recipe may name, by the recipe's word for it.

    A part that is not there is ``absent``, one that could not be read ``unknown``: both are part of a key, so
    that a toolchain that appears later changes it. ``torch`` is that of the machine; an environment's own
    comes from its lock.
    """
    chain = toolchain(facts)
    parts = {
        "python-abi": chain.python_abi,
        "glibc": chain.glibc,
        "host-compiler": chain.host_compiler,
        "nvcc": chain.nvcc,
        "torch": chain.torch,
    }
    absent = {"host-compiler": "gcc" in facts.absent, "nvcc": "nvcc" in facts.absent}
    return {name: value or (ABSENT if absent.get(name) else UNKNOWN) for name, value in parts.items()}
