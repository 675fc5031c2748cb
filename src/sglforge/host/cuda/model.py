"""The CUDA toolkit that a build is made with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LOCKED = "lock"
"""The origin of a toolkit that the lock pins; every other one is of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaToolkit:
    """A toolkit by its real folder, which holds ``bin``, ``include``, ``lib64`` and ``nvvm``.

    ``origin`` is ``lock``, or where on this machine it was found (``CUDA_HOME``, ``/usr/local``, ...). ``release`` is
    nvcc's (``13.0``), ``version`` all of it (``13.0.88``). ``fingerprint`` decides build keys: of a locked one it is
    the digest of its pins, known before it is installed; of a found one that of its programs and headers.
    """

    home: Path
    origin: str
    release: str
    version: str
    fingerprint: str

    @property
    def locked(self) -> bool:
        """Whether it is the lock's, so that it is installed where it is not there yet."""
        return self.origin == LOCKED

    def to_json(self) -> dict[str, str]:
        """Return what provenance says of it; where it is decides nothing."""
        return {"origin": self.origin, "version": self.version, "fingerprint": self.fingerprint}

    def variables(self, path: str) -> dict[str, str]:
        """Return the variables by which builds find it; ``path`` is what PATH is without it."""
        home = str(self.home)
        return {"CUDA_HOME": home, "CUDA_PATH": home, "PATH": os.pathsep.join((f"{home}/bin", path))}
