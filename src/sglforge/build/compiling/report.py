"""What compiling took, for the run record and the provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglforge.build.compiling import journal
from sglforge.build.compiling.cache import Statistics
from sglforge.build.compiling.journal import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit that a compiler ran for: wall and CPU seconds, peak memory in MiB, how long and for what it waited.

    ``outcome``: done, failed, killed (for want of memory, alone too), refused. ``attempts``: 2 where it was killed and
    ran again alone. ``tight``: it ran although less memory was free than it needs.
    """

    name: str
    outcome: str
    seconds: float
    cpu_seconds: float
    peak_mib: int
    waited_s: float
    waited_for: str
    attempts: int
    tight: bool

    @classmethod
    def of(cls, line: Line) -> Unit:
        """Return what a line of the journal says."""
        return cls(
            name=line.unit,
            outcome=line.outcome,
            seconds=line.seconds,
            cpu_seconds=line.cpu_s,
            peak_mib=line.peak_mib,
            waited_s=line.waited_s,
            waited_for=line.waited_for,
            attempts=line.attempts,
            tight=line.tight,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReport:
    """What became of the units of a build.

    ``units``: those that a compiler ran for, in the order in which they ended; what the cache had is in ``cache``
    only. ``engine``: the cache and its version, empty for none, then ``without`` says why. ``remote``: storage that
    others share, without its password; ``remote_fault``: how it failed the last time.
    """

    units: tuple[Unit, ...] = ()
    cache: Statistics | None = None
    engine: str = ""
    without: str = ""
    remote: str = ""
    remote_fault: str = ""

    @property
    def retried(self) -> tuple[Unit, ...]:
        """Units that were killed for want of memory and ran again alone."""
        return tuple(unit for unit in self.units if unit.attempts > 1)

    @property
    def refused(self) -> tuple[Unit, ...]:
        """Units that were not started because they cannot fit."""
        return tuple(unit for unit in self.units if unit.outcome == journal.REFUSED)

    def to_json(self) -> dict[str, object]:
        """Return the form that provenance and events have; single units are those that say something."""
        return {
            "units": len(self.units),
            "cpu_seconds": round(sum(unit.cpu_seconds for unit in self.units), 3),
            "waited_seconds": round(sum(unit.waited_s for unit in self.units), 3),
            "peak_mib": max((unit.peak_mib for unit in self.units), default=0),
            "largest": [_shown(unit) for unit in sorted(self.units, key=lambda unit: -unit.peak_mib)[:5]],
            "retried-alone": [_shown(unit) for unit in self.retried],
            "refused": [_shown(unit) for unit in self.refused],
            "cache": self._cache(),
        }

    def describe(self) -> Sequence[str]:
        """Return what a person should be told: nothing where all went as it should."""
        killed = "was killed for want of memory"
        return (
            *(f"{unit.name} {killed} and ran again alone ({unit.peak_mib} MiB)" for unit in self.retried),
            *(f"{unit.name} needs {unit.peak_mib} MiB and was not started" for unit in self.refused),
        )

    def _cache(self) -> dict[str, object]:
        if not self.engine:
            return {"engine": None, "why": self.without}
        if self.cache is None:
            return {"engine": self.engine, "why": "its log cannot be read"}
        return {
            "engine": self.engine,
            "hits": self.cache.hits,
            "misses": self.cache.misses,
            **({"remote": self.remote, "remote-hits": self.cache.remote_hits} if self.remote else {}),
            **({"remote-fault": self.remote_fault} if self.remote_fault else {}),
            **({"other": dict(self.cache.other)} if self.cache.other else {}),
        }


def _shown(unit: Unit) -> dict[str, object]:
    return {
        "name": unit.name,
        "outcome": unit.outcome,
        "seconds": unit.seconds,
        "peak_mib": unit.peak_mib,
        "waited_seconds": unit.waited_s,
    }
