"""What the compile cache costs and saves for a unit of nvcc, and whether its objects are right; beside ccache alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.compiling import launched, nvcc_home
from benchmarks.measure import BenchError, Sample, summary, timed
from benchmarks.setting import ROOT, Setting

sys.path.append(str(ROOT / "tests"))
import compile_torture
from compile_torture import AS_LAUNCHED, LONG_WORDS, NVCC, Project, torture

ROUNDS = 5
SORT = """\
#include <cub/cub.cuh>
void sort(void *t, size_t &bytes, const float *in, float *out, int n) {
  cub::DeviceRadixSort::SortKeys(t, bytes, in, out, n);
}
"""
FLAGS = ("-std=c++17", "-gencode=arch=compute_120f,code=sm_120f")


def measure(setting: Setting) -> dict[str, object]:
    """Measure a unit of about ten seconds in every state of the caches, then make every edit of the torture."""
    home = nvcc_home(setting)
    return {
        "unit": "cub::DeviceRadixSort for sm_120f",
        "cases": {name: summary(samples) for name, samples in _costs(setting, home).items()},
        "torture": _torture(setting, home),
    }


def _costs(setting: Setting, home: Path) -> dict[str, list[Sample]]:
    with setting.folder() as folder, _redis(folder) as redis:
        # a folder of its own: names beside the source count, and the workspaces' change
        source = folder / "source"
        (source / "out").mkdir(parents=True)
        (source / "sort.cu").write_text(SORT)
        path = f"{home}/bin{os.pathsep}{os.environ['PATH']}"
        alone = {**os.environ, "PATH": path, "CCACHE_DIR": str(folder / "alone"), "CCACHE_CONFIGPATH": "/dev/null"}
        compiler = ["nvcc", *FLAGS, *LONG_WORDS, "-c", "sort.cu", "-o", "out/unit.o"]

        def forget(*names: str) -> None:
            for name in names:
                shutil.rmtree(folder / name, ignore_errors=True)

        def ours(workspace: str, *, remote: str = "") -> Sample:
            with launched(folder, home=home, workspace=workspace, remote=remote) as (scope, variables):
                return timed([scope.launcher, *compiler], env=variables, cwd=source)

        def missed(remote: str = "") -> Sample:
            forget("one")
            return ours("one", remote=remote)

        def shared() -> Sample:
            forget("other")
            return ours("other", remote=redis)

        cases: dict[str, Callable[[], Sample]] = {
            "bare nvcc": lambda: timed(compiler, env=alone, cwd=source),
            "ours, a miss": missed,
            "ours, a hit": lambda: ours("one"),
            "ccache alone, again and again": lambda: timed(["ccache", *compiler], env=alone, cwd=source),
        }
        if redis:
            missed(redis)
            cases["ours, a hit in Redis"] = shared
        found: dict[str, list[Sample]] = {name: [] for name in cases}
        for _ in range(setting.rounds or ROUNDS):  # in this order: a hit after its miss
            for name, case in cases.items():
                found[name].append(case())
        return found


def _torture(setting: Setting, home: Path) -> dict[str, object]:
    """Make every edit with ours, and with ccache alone and words that it caches."""
    found: dict[str, object] = {"edits": len(NVCC), "compilations": 1 + sum(1 for _ in compile_torture.rounds(NVCC))}
    with setting.folder() as folder:
        project = _project(folder / "ours")
        with launched(folder, home=home) as (scope, variables):
            bare = {name: value for name, value in variables.items() if "LAUNCHER" not in name}
            found["ours, stale"] = torture(project, NVCC, (scope.launcher,), variables, bare)
            cache = scope.report().cache
            found["ours"] = {"hits": cache.hits, "misses": cache.misses} if cache else None
        project = _project(folder / "alone")
        project.asking = AS_LAUNCHED["nvcc"]
        alone = {**bare, "CCACHE_DIR": str(folder / "cache"), "CCACHE_CONFIGPATH": "/dev/null"}
        found["ccache alone, stale"] = torture(project, NVCC, ("ccache",), alone, bare)
    return found


def _project(folder: Path) -> Project:
    folder.mkdir()
    return Project(folder=folder)


@contextlib.contextmanager
def _redis(folder: Path) -> Iterator[str]:
    """Yield the URL of a Redis on loopback, empty where there is none."""
    program = shutil.which("redis-server")
    if not program:
        yield ""
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        else:
            raise BenchError("redis-server does not answer")
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
