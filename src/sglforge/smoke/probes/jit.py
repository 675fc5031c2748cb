"""The probe of compilers: no request waits for one."""

from __future__ import annotations

from sglforge.smoke.observe.jit import CACHING, Snapshot, changes, folders_of, judge_jit, snapshot
from sglforge.smoke.observe.processes import started
from sglforge.smoke.probes.looking import Seen, by_looks
from sglforge.smoke.probes.model import Judgement, Need, Probe, failed, inconclusive, passed, skipped
from sglforge.smoke.site import Site
from sglforge.smoke.transcript import Look, Observed

_SHOWN = 20


def _look(site: Site) -> Look:
    """Read what lies in the folders that the server may compile into, and when its first process started."""
    members = site.members()
    begun = min(map(started, members), default=None)
    return {
        "processes": len(members),
        "started": begun if begun != float("inf") else None,
        "compiled": snapshot(folders_of(members)).products().to_json(),
    }


def _judge(observed: Observed, looks: Seen) -> Judgement:
    ready, last = looks[0], looks[-1]
    if observed.ended or not last["processes"]:
        return skipped("the server has ended: its folders are not known any more")
    before, after = Snapshot.from_json(ready["compiled"]), Snapshot.from_json(last["compiled"])
    found = changes(before, after)
    at_start = before.modules_since(ready["started"]) if ready["started"] else ()
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
    judge=by_looks(_judge),
)
