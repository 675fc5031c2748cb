"""Run probes on one server: ask, judge, note each verdict in the run record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sglforge.base.runrecord import RunRecord
from sglforge.smoke import judging
from sglforge.smoke.interview import Interview, silent
from sglforge.smoke.probes.lifecycle import ALIVE_AFTER, STARTED
from sglforge.smoke.probes.model import Probe, missing
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed
from sglforge.smoke.verdict import ProbeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was seen of a server by the probes' names, and what it was worth, in running order."""

    record: RunRecord
    observed: dict[str, Observed] = field(default_factory=dict)
    results: list[ProbeResult] = field(default_factory=list)

    def judge(self, probe: Probe, observed: Observed, seconds: float) -> None:
        """Add what a probe observed, and its result."""
        self.observed[probe.name] = observed
        self._add(judging.result(probe, observed, seconds))

    def skip(self, probe: Probe, subject: Subject, why: str) -> None:
        """Add that a probe was not asked."""
        self._add(judging.skipped(probe, subject, why))

    @property
    def skipped(self) -> Mapping[str, str]:
        """Why probes were not asked, by name."""
        return {result.name: result.message for result in self.results if result.name not in self.observed}

    def _add(self, result: ProbeResult) -> None:
        self.results.append(result)
        self.record.event("probe", name=result.name, verdict=result.verdict, message=result.message)


def examine(
    interview: Interview,
    probes: Sequence[Probe],
    into: Examination,
    *,
    seconds_to_ready: float = 0.0,
    control: Callable[[Probe], tuple[Exchange, ...]] = lambda _probe: (),
) -> None:
    """Ask the probes in their order; once an answer is missing, only whether the server is alive.

    ``control`` returns what the control server answered to a probe.
    """
    subject = interview.subject
    asking = [probe for probe in probes if missing(subject, probe.needs) is None]
    interview.look_first(asking)
    silent_since: str | None = None
    for probe in probes:
        if why := missing(subject, probe.needs):
            into.skip(probe, subject, why.value)
        elif silent_since and probe is not ALIVE_AFTER:
            into.skip(probe, subject, f"the server does not answer since {silent_since}")
        else:
            start = time.monotonic()
            observed = interview.observe(probe, control(probe))
            into.judge(probe, observed, seconds_to_ready if probe is STARTED else time.monotonic() - start)
            silent_since = silent_since or (probe.name if silent(observed.exchanges) else None)
