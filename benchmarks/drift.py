"""The drift matrix: the whole series on every final release, from trees that are unpacked already."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import Sample, interleave, summary, timed
from benchmarks.setting import ROOT, Setting, program

from sglforge.config.releases import read_releases, releases_path

ROUNDS = 7
PACKAGE = "sglang"
WHOLE, ONE = "sglforge drift", "sglforge drift (newest release only)"


def measure(setting: Setting) -> dict[str, object]:
    """Measure the verb on all final releases and on one, after a run of each that is not counted.

    The first run fetches and unpacks what is not there yet. The difference of the two is what a further version
    takes; the share of one version in the whole run is given too.
    """
    versions = [release.version for release in read_releases(releases_path(ROOT, PACKAGE)).chosen([])]
    command: list[str | Path] = [program("sglforge"), "drift", "--catalog", ROOT]
    cases = {
        WHOLE: lambda: timed(command, env=setting.environment),
        ONE: lambda: timed([*command, versions[-1]], env=setting.environment),
    }
    interleave(cases, 1)
    samples = interleave(cases, setting.rounds or ROUNDS)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "per_version": summary([_share(sample, len(versions)) for sample in samples[WHOLE]]),
        "versions": versions,
        "aims": {"per_version": "wall at most 1 s"},
    }


def _share(sample: Sample, parts: int) -> Sample:
    return Sample(wall_s=sample.wall_s / parts, cpu_s=sample.cpu_s / parts if sample.cpu_s is not None else None)
