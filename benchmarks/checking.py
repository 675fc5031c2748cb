"""Judging a large wheel of kernels by its binaries: sglang-kernel 0.4.10 as released, 370 MB, 1.2 GB unpacked."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import BenchError, interleave, ratio, summary, timed
from benchmarks.setting import Setting

from sglforge.base.download import download
from sglforge.host import package_index
from sglforge.sources.index import find_files

ROUNDS = 3
PROJECT, VERSION = "sglang-kernel", "0.4.10"
WHEEL = "SGLFORGE_BENCH_WHEEL"
_HASHED = """
import hashlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    for member in archive.infolist():
        with archive.open(member) as stream:
            state = hashlib.sha256()
            while piece := stream.read(1 << 20):
                state.update(piece)
"""


def measure(setting: Setting) -> dict[str, object]:
    """Measure the verb beside what it cannot do without (every file unpacked and hashed once) and beside unzip's test.

    The verb also writes every binary aside, reads it, and judges it; symbols are not looked up, there is no environment
    for them. The wheel is downloaded once, or named with SGLFORGE_BENCH_WHEEL.
    """
    with setting.folder() as folder:
        wheel = _wheel(folder)
        verb = setting.sglforge("check", "--target", "sm120", "--python", "3.12", wheel)
        cases = {
            "sglforge check": lambda: timed(verb, env=setting.environment, watch_memory=True),
            "unpack and hash": lambda: timed([sys.executable, "-c", _HASHED, wheel], env=setting.environment),
        }
        if unzip := shutil.which("unzip"):
            cases["unzip -t"] = lambda: timed([unzip, "-tqq", wheel], env=setting.environment)
        samples = interleave(cases, setting.rounds or ROUNDS)
        size = wheel.stat().st_size
    ratios: Mapping[str, object] = {
        f"check over {name}": ratio(samples["sglforge check"], taken)
        for name, taken in samples.items()
        if name != "sglforge check"
    }
    return {
        "wheel": {"name": wheel.name, "bytes": size},
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "ratios": ratios,
    }


def _wheel(folder: Path) -> Path:
    """Return the wheel, downloaded from wherever pip's configuration leads if none is named."""
    if named := os.environ.get(WHEEL):
        return Path(named)
    files = [file for file in find_files(package_index.read(), PROJECT, VERSION) if file.name.endswith("x86_64.whl")]
    if not files:
        raise BenchError(f"{PROJECT} {VERSION} is on no index for this machine")
    wheel = folder / files[0].name
    download(files[0].url, wheel, sha256=files[0].sha256)
    return wheel
