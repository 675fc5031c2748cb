"""The patch series of SGLang 0.5.23 with its contracts, on the unpacked upstream wheel."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, summary, timed
from benchmarks.setting import ROOT, Setting

from sglforge.base.index_locations import IndexLocations
from sglforge.patches.apply import apply_series
from sglforge.patches.series import load_series
from sglforge.pipeline.sources import bring
from sglforge.sources.model import SourceArchive
from sglforge.sources.unpack import unpack

ROUNDS = 7
PACKAGE = "sglang"


def measure(setting: Setting) -> dict[str, object]:
    """Measure series and contracts in this process, and the whole verb, which also verifies and unpacks.

    The verb removes the tree that it unpacked. Where the file system puts off the reuse of inodes (ext4 without
    a journal does for some minutes) each further round of it is slower; its first value is that of a user.
    """
    planned = setting.planned()
    step = next(step for step in planned.plan.steps if step.package == PACKAGE)
    archive = bring(step, planned, setting.request(), setting.console(), IndexLocations())
    locked = step.locked
    if not isinstance(archive, SourceArchive) or locked is None:
        raise BenchError(f"{PACKAGE} has no locked archive")
    with setting.folder() as folder:
        cases = {
            "series and contracts": lambda: _apply(archive.path, folder / secrets.token_hex(4), locked.version),
            "sglforge patch": lambda: timed(setting.sglforge("patch"), env=setting.environment),
        }
        samples = interleave(cases, setting.rounds or ROUNDS)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "aims": {"series and contracts": "wall at most 2 s"},
    }


def _apply(archive: Path, tree: Path, version: str) -> Sample:
    unpacked = unpack(archive, tree)
    start, cpu = time.perf_counter(), time.process_time()
    series = load_series(ROOT, PACKAGE)
    if series is None:
        raise BenchError(f"{PACKAGE} has no series")
    result = apply_series(series, unpacked, version=version)
    sample = Sample(wall_s=time.perf_counter() - start, cpu_s=time.process_time() - cpu)
    if result.tree_id is None or not result.diff:
        raise BenchError(f"the series of {PACKAGE} does not apply")
    return sample
