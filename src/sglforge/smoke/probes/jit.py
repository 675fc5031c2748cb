"""The probe of compilers: no request waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf

from sglforge.smoke.observe.jit import CACHING, Snapshot, changes, folders_of, judge_jit, snapshot
from sglforge.smoke.observe.processes import started
from sglforge.smoke.probes.looking import by_looks
from sglforge.smoke.probes.model import Judgement, Need, Probe, failed, inconclusive, passed, skipped
from sglforge.smoke.site import Site
from sglforge.smoke.transcript import Look, Observed

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the server may have compiled, how many processes it had, and when the first of them started (or None)."""

    processes: int
    started: float | None
    compiled: Snapshot


def _look(site: Site) -> Look:
    members = site.members()
    begun = min(map(started, members), default=inf)
    return asdict(
        _Seen(
            processes=len(members),
            started=begun if begun < inf else None,
            compiled=snapshot(folders_of(members)).products(),
        )
    )


def _judge(observed: Observed, looks: Sequence[_Seen]) -> Judgement:
    ready, last = looks[0], looks[-1]
    if observed.ended or not last.processes:
        return skipped("the server has ended: its folders are not known any more")
    before, after = ready.compiled, last.compiled
    found = changes(before, after)
    at_start = before.modules_since(ready.started) if ready.started else ()
    kept = [f"{owner}: {module}" for owner, module in found.modules if owner in CACHING]
    evidence: dict[str, object] = {
        "folders": [folder.path for folder in found.folders],
        "while_it_ran": [f"{owner}: {module}" for owner, module in found.modules],
        "at_start": [f"{owner}: {module}" for owner, module in at_start],
        "files": [file.path for file in found.files][:_SHOWN],
        "unreadable": list(found.unreadable),
    }
    if finding := judge_jit(found):
        return failed(finding.code, finding.message, finding.hint, **evidence)
    if found.unreadable:
        return inconclusive(
            f"{len(found.unreadable)} folders could not be compared, {found.unreadable[0]} among them", "", **evidence
        )
    notes = ""
    if kept:
        notes += f"; {len(kept)} modules came into caches that fill at run time: keep them between starts ({kept[0]})"
    if at_start:
        notes += f"; {len(at_start)} modules were compiled during the start"
    return passed(
        f"nothing that could have been built ahead was compiled since the server was ready{notes}", **evidence
    )


JIT_SILENCE = Probe(
    name="jit-silence",
    proves="no request waits for a compiler: what could be built ahead was",
    needs=(Need.OWN,),
    look=_look,
    judge=by_looks(_Seen, _judge, least=2),
)
