"""Noting what a build with nothing to do rests on and said, for `pipeline.remembering`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.looks import Look, look
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import PathSource, Profile
from sglforge.errors import Finding, SglforgeError
from sglforge.launch.options import server_options
from sglforge.pipeline.machine import document as plan_document
from sglforge.pipeline.remembering import Remembered, Surroundings, machine, remember
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned, Selection
from sglforge.pipeline.tidying import works_with
from sglforge.provision.python import running_interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What decides a build, as it looked before it was read; ``more`` are the files that its stack names."""

    around: Surroundings
    more: tuple[Path, ...]
    more_look: Look | None


def watch(around: Surroundings | None, selection: Selection) -> Watched | None:
    """Look at source folders and models before they are read; None where a build is not to be remembered."""
    profile = selection.catalog.profiles.get(selection.environment.smoke_profile or "")
    if around is None or profile is None:
        return None
    with suppress(SglforgeError):  # the run comes to it later
        root = selection.catalog.root
        sources = [package.source for package in selection.stack.packages.values()]
        folders = [root / source.path for source in sources if isinstance(source, PathSource)]
        more = (*folders, *server_options(profile, catalog_root=root).model_folders)
        return Watched(around=around, more=more, more_look=look(more))
    return None


def note(
    request: Request,
    planned: Planned,
    watched: Watched,
    record: RunRecord,
    *,
    findings: Sequence[Finding],
    profile: Profile,
    proof_key: str,
) -> None:
    """Remember a build that found every wheel, its environment and its proof."""
    selection, plan = planned.selection, planned.plan
    facts = machine(selection.facts)
    if plan.misses or planned.python.interpreter != running_interpreter():
        return
    if facts is None or selection.facts.disk_gib is None or watched.more_look is None:
        return
    if planned.toolkit and planned.toolkit.rests_on_files:
        return
    memory = Remembered(
        asked=watched.around.asked,
        surroundings=watched.around.digest,
        more=tuple(map(str, watched.more)),
        more_look=watched.more_look.digest,
        facts=facts,
        min_disk_gib=selection.target.min_disk_gib,
        stack=selection.stack.name,
        target=selection.target.name,
        because=selection.because,
        findings=tuple(findings),
        plan=plan_document(planned),
        profile=profile.name,
        proof_key=proof_key,
        names=tuple(name for name in works_with(planned, record) if name != record.id),
    )
    remember(request, memory, watched.around, watched.more_look)
