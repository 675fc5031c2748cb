"""GPU architectures as NVIDIA's tools write them, and which GPU runs code of which.

Source: CUDA C++ Programming Guide, "Compute Capabilities": code of `sm_120` runs on 12.0 and on later minors of 12;
of `sm_120f` (family) likewise; of `sm_120a` (architecture) on 12.0 alone. PTX of `compute_90` runs on everything from
9.0 on, that of `compute_120f` and `compute_120a` only where code of the same suffix does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPELLED = re.compile(r"(?:sm_|compute_|lto_)?(\d{2,3})([af]?)")
_DOTTED = re.compile(r"(\d{1,2})\.(\d)([af]?)(?:\+PTX)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Architecture:
    """A GPU architecture: 12, 0 and "f" for `sm_120f`."""

    major: int
    minor: int
    suffix: str = ""

    @property
    def name(self) -> str:
        """Its name as machine code: `sm_120f`."""
        return f"sm_{self.major}{self.minor}{self.suffix}"

    @property
    def virtual(self) -> str:
        """Its name as PTX: `compute_120f`."""
        return f"compute_{self.major}{self.minor}{self.suffix}"

    @property
    def capability(self) -> str:
        """The compute capability that it is named after: `12.0`."""
        return f"{self.major}.{self.minor}"

    def runs_on(self, gpu: Architecture) -> bool:
        """Return whether a GPU runs machine code of this architecture."""
        if self.suffix == "a":
            return (self.major, self.minor) == (gpu.major, gpu.minor)
        return self.major == gpu.major and self.minor <= gpu.minor

    def compiles_for(self, gpu: Architecture) -> bool:
        """Return whether the driver can compile PTX of this architecture for a GPU."""
        return self.runs_on(gpu) if self.suffix else (self.major, self.minor) <= (gpu.major, gpu.minor)


def parse(text: str) -> Architecture | None:
    """Return the architecture of `sm_120f`, `compute_120a`, `120`, `12.0f` or `12.0`; None for anything else."""
    if dotted := _DOTTED.fullmatch(text.strip()):
        return Architecture(major=int(dotted[1]), minor=int(dotted[2]), suffix=dotted[3].lower())
    if spelled := _SPELLED.fullmatch(text.strip()):
        return of_number(int(spelled[1]), spelled[2])
    return None


def of_number(number: int, suffix: str = "") -> Architecture:
    """Return the architecture of a number as NVIDIA's formats have it: 120."""
    return Architecture(major=number // 10, minor=number % 10, suffix=suffix)


def names(architectures: Iterable[Architecture]) -> str:
    """Return the names for a message: `sm_90a, sm_120f`."""
    return ", ".join(one.name for one in sorted(set(architectures)))
