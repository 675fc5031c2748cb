"""Which CUDA toolkit builds take: one of the machine that fits, else the one of the lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.workspace import Workspace
from sglforge.config.model import CudaNeeds, Toolkit
from sglforge.host.cuda import nvcc
from sglforge.host.cuda.complete import lacking, summary
from sglforge.host.cuda.fingerprint import fingerprint
from sglforge.host.cuda.model import CudaToolkit
from sglforge.host.facts import FoundToolkit


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A toolkit of the machine, and why builds do not take it; empty: it fits.

    ``incomplete``: it is of the right release, and lacks files.
    """

    found: FoundToolkit
    why_not: str = ""
    incomplete: bool = False

    def to_json(self) -> dict[str, object]:
        """Return it for a document."""
        found = self.found
        return {
            "home": found.home,
            "origin": found.origin,
            "nvcc": found.nvcc,
            "fits": not self.why_not,
            "why_not": self.why_not,
        }

    def __str__(self) -> str:
        """Return it in a line."""
        version = f" nvcc {self.found.nvcc}" if self.found.nvcc else ""
        return f"{self.found.home} ({self.found.origin}){version}: {self.why_not or 'fits'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The toolkit that builds take, and why that one."""

    toolkit: CudaToolkit
    why: str


def judge(found: FoundToolkit, recipe: Toolkit, needs: Sequence[CudaNeeds]) -> Judged:
    """Hold a toolkit to what builds need, and look at its files for that."""
    if found.problem or found.nvcc is None:
        return Judged(found=found, why_not=found.problem or "its nvcc does not say its version")
    if nvcc.release_of(found.nvcc) != recipe.release:
        return Judged(found=found, why_not=f"its nvcc is not of release {recipe.release}")
    lacks = summary(lacking(Path(found.home), (recipe.cuda, *needs), recipe.driver_symbols))
    return Judged(found=found, why_not=f"it lacks {lacks}" if lacks else "", incomplete=bool(lacks))


def choose(judged: Sequence[Judged], locked: CudaToolkit, workspace: Workspace) -> Chosen:
    """Return the first toolkit that fits, else the one that the lock pins."""
    for one in judged:
        if one.why_not or one.found.nvcc is None:
            continue
        home = Path(one.found.home)
        if home == locked.home.resolve():  # as people name it who compile by hand: the same builds, the same keys
            return Chosen(toolkit=locked, why=f"the lock's: {one.found.origin} names it")
        try:
            decides = fingerprint(home, workspace)
        except OSError:
            continue
        toolkit = CudaToolkit(
            home=home,
            origin=one.found.origin,
            release=nvcc.release_of(one.found.nvcc),
            version=one.found.nvcc,
            fingerprint=decides,
        )
        return Chosen(toolkit=toolkit, why=f"{one.found.origin} fits")
    why = "none of this machine fits" if judged else "this machine has none"
    return Chosen(toolkit=locked, why=f"the lock's: {why}")
