"""The parts of a machine that decide what a build produces."""

from __future__ import annotations

from collections.abc import Mapping

from sglforge.host.cuda.model import CudaToolkit
from sglforge.host.facts import HostFacts

UNKNOWN = "unknown"
ABSENT = "absent"


def fingerprint(facts: HostFacts, toolkit: CudaToolkit | None = None) -> Mapping[str, str]:
    """Return the host's parts of the toolchain, by the words of recipes; a build's Python and torch are the lock's.

    Of the host compiler only the major matters to what it produces. A part that is not there is ``absent``, one
    that could not be read ``unknown``: both are part of a key, so that a toolchain that appears later changes it.
    """
    parts = {
        "glibc": facts.glibc,
        "host-compiler": f"gcc {facts.gcc.split('.')[0]}" if facts.gcc else None,
        "nvcc": toolkit.fingerprint if toolkit else facts.cuda.nvcc,
    }
    absent = {"host-compiler": "gcc" in facts.absent, "nvcc": "nvcc" in facts.absent}
    return {name: value or (ABSENT if absent.get(name) else UNKNOWN) for name, value in parts.items()}
