"""Compilers under a memory limit, beside plain `ninja -j N`; and what a launcher costs where memory is plenty."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compiling import NINJA, launched, nvcc_home
from benchmarks.measure import BenchError, Sample, interleave, ratio, spread, summary
from benchmarks.setting import ROOT, Setting

sys.path.append(str(ROOT / "tests"))
from memory_group import Group, memory_group

from sglforge.config.model import CompileMemory

ROUNDS = 3
LIMITS_GIB = (8, 16)
JOBS = 8
STATIC = (1, 2, 4, 8)
RERUNS = 12
# GiB and seconds: the proportions of the largest units of sgl-kernel and FlashInfer for SM120, and many small ones
UNITS = (
    (6.8, 4.0), (6.4, 3.0), (6.1, 3.0), (5.3, 2.5), (4.6, 2.5), (3.4, 2.0), (3.3, 2.0),
    *((2.8, 1.5),) * 3, *((1.2, 1.0),) * 4, *((0.5, 0.5),) * 6,
)  # fmt: skip
EATER = """\
#!{python} -IS
import mmap, sys, time
words = sys.argv[1:]
source, output = next(word for word in words if word.endswith(".cu")), words[words.index("-o") + 1]
mib, seconds = open(source).read().split()
begin = time.monotonic()
kept = []
for _ in range(int(mib) // 32):
    kept.append(mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    kept[-1].madvise(mmap.MADV_HUGEPAGE)
    kept[-1][::4096] = bytes(8192)
time.sleep(float(seconds) / 2)
del kept[int(mib) // 128 :]
time.sleep(max(float(seconds) - (time.monotonic() - begin), 0))
open(output, "w").write("object")
"""
LIGHT = (
    '#include <map>\n#include <regex>\nint f{n}(const char *t) {{ return std::regex_match(t, std::regex("a*{n}")); }}\n'
)
CUDA = (
    "#include <cub/cub.cuh>\nvoid sort{n}(void *t, size_t &b, const float *i, float *o, int n) {{\n"
    "  cub::DeviceRadixSort::SortKeys(t, b, i, o, n + {n});\n}}\n"
)


def measure(setting: Setting) -> dict[str, object]:
    """Measure synthetic heavy units under limits, and real compilers without one."""
    rounds = setting.rounds or ROUNDS
    return {
        "units_gib_and_s": [list(unit) for unit in UNITS],
        "limits": {f"{limit} GiB": _under(limit, setting, rounds) for limit in LIMITS_GIB if _has(limit)},
        "left_out": [f"{limit} GiB: the machine has less free" for limit in LIMITS_GIB if not _has(limit)],
        "overhead": _overhead(setting, rounds),
    }


def _has(limit_gib: int) -> bool:
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) > (limit_gib + 2) * 2**20


def _under(limit_gib: int, setting: Setting, rounds: int) -> dict[str, object]:
    """Build all units that fit under a limit in every way; wall time counts repetitions until all are there."""
    units = [unit for unit in UNITS if unit[0] < limit_gib - 0.5]
    ways: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for jobs in STATIC:
            with _heavy(setting, units, limit_gib) as (folder, group):
                ways.setdefault(f"ninja -j{jobs}", []).append(_static(folder, group, jobs))
        with _heavy(setting, units, limit_gib) as (folder, group):
            ways.setdefault("sglforge, peaks of the recipe", []).append(_governed(folder, group, units))
        with _heavy(setting, units, limit_gib) as (folder, group):
            ways.setdefault("sglforge, nothing known", []).append(_governed(folder, group, ()))
            for left in folder.glob("u*.o"):
                left.unlink()
            ways.setdefault("sglforge, the build after it", []).append(_governed(folder, group, ()))
    return {name: {key: spread([run[key] for run in runs]) for key in runs[0]} for name, runs in ways.items()}


@contextmanager
def _heavy(setting: Setting, units: Sequence[tuple[float, float]], limit_gib: int) -> Iterator[tuple[Path, Group]]:
    with setting.folder() as folder, memory_group(limit_gib * 1024) as group:
        if group is None:
            raise BenchError("this machine lets nobody make a memory control group")
        (folder / "bin").mkdir()
        (folder / "bin/nvcc").write_text(EATER.format(python=sys.executable))
        (folder / "bin/nvcc").chmod(0o755)
        rows = ["rule compile\n  command = $$LAUNCHER bin/nvcc -c $in -o $out\n"]
        for number, (gib, seconds) in enumerate(units):
            (folder / f"u{number}.cu").write_text(f"{round(gib * 1024)} {seconds}")
            rows.append(f"build u{number}.o: compile u{number}.cu\n")
        (folder / "build.ninja").write_text("".join(rows))
        yield folder, group


def _static(folder: Path, group: Group, jobs: int) -> dict[str, float]:
    """Run ninja with so many jobs, again and again until everything is built."""
    start, runs = time.perf_counter(), 0
    while runs < RERUNS:
        runs += 1
        done = subprocess.run(
            [NINJA, f"-j{jobs}", "-k0"], cwd=folder, env={**os.environ, "LAUNCHER": ""}, preexec_fn=group.enter,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            break
    missing = len(list(folder.glob("u*.cu"))) - len(list(folder.glob("u*.o")))
    wall = time.perf_counter() - start
    return {"wall_s": wall, "kills": group.kills, "runs": runs, "never_built": missing, "peak_mib": group.peak_mib}


def _governed(folder: Path, group: Group, units: Sequence[tuple[float, float]]) -> dict[str, float]:
    kills = group.kills
    known = {f"u{number}.o": gib + 0.03 for number, (gib, _) in enumerate(units)}
    memory = CompileMemory(default=0.5, units=known)
    start = time.perf_counter()
    with launched(folder, memory=memory, jobs=JOBS, cached=False, enter=group) as (scope, variables):
        done = subprocess.run(
            [NINJA], cwd=folder, env={**variables, "LAUNCHER": scope.launcher}, preexec_fn=group.enter,
            capture_output=True, check=False,
        )  # fmt: skip
        wall = time.perf_counter() - start
        report = scope.report()
    missing = len(list(folder.glob("u*.cu"))) - len(list(folder.glob("u*.o")))
    if done.returncode and not missing:
        raise BenchError(done.stdout.decode(errors="replace")[-2000:])
    return {
        "wall_s": wall, "kills": group.kills - kills, "runs": 1, "never_built": missing, "peak_mib": group.peak_mib,
        "retried_alone": len(report.retried), "waited_s": sum(unit.waited_s for unit in report.units),
    }  # fmt: skip


def _overhead(setting: Setting, rounds: int) -> dict[str, object]:
    """Compile real units with bare ninja and through launchers without a cache, on all cores."""
    found: dict[str, object] = {}
    home = nvcc_home(setting)
    for name, compiler, text, count in (
        ("16 light g++ units", "g++", LIGHT, 16),
        ("4 nvcc units with cub", "nvcc", CUDA, 4),
    ):
        with setting.folder() as folder:
            _real(folder, compiler, text, count)
            cases = {
                "bare ninja": lambda folder=folder: _bare(folder, home),
                "launcher": lambda folder=folder: _through(folder, home, cached=False),
                "launcher and ccache, all misses": lambda folder=folder: _through(folder, home, cached=True),
            }
            samples = interleave(cases, rounds)
            found[name] = {
                "cases": {case: summary(taken) for case, taken in samples.items()},
                "launcher / bare": ratio(samples["launcher"], samples["bare ninja"]),
                "misses / bare": ratio(samples["launcher and ccache, all misses"], samples["bare ninja"]),
            }
    return found


def _real(folder: Path, compiler: str, text: str, count: int) -> None:
    suffix = "cu" if compiler == "nvcc" else "cc"
    flags = "-std=c++17 -gencode=arch=compute_120f,code=sm_120f --objdir-as-tempdir" if compiler == "nvcc" else "-O2"
    command = f"$$LAUNCHER {compiler} {flags} -MD -MF $out.d -c $in -o $out"
    rows = [f"rule compile\n  command = {command}\n  depfile = $out.d\n"]
    for number in range(count):
        (folder / f"u{number}.{suffix}").write_text(text.format(n=number))
        rows.append(f"build u{number}.o: compile u{number}.{suffix}\n")
    (folder / "build.ninja").write_text("".join(rows))


def _bare(folder: Path, home: Path) -> Sample:
    return _ninja(
        folder, {**os.environ, "LAUNCHER": "", "PATH": f"{home}/bin:{os.environ['PATH']}"}, f"-j{os.cpu_count()}"
    )


def _through(folder: Path, home: Path, *, cached: bool) -> Sample:
    shutil.rmtree(folder / "workspace", ignore_errors=True)
    with launched(folder, home=home, jobs=os.cpu_count() or 1, cached=cached) as (scope, variables):
        return _ninja(folder, {**variables, "LAUNCHER": scope.launcher})


def _ninja(folder: Path, variables: Mapping[str, str], *words: str) -> Sample:
    for left in folder.glob("u*.o"):
        left.unlink()
    (folder / ".ninja_log").unlink(missing_ok=True)
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([NINJA, *words], cwd=folder, env=variables, capture_output=True, check=False)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise BenchError(done.stdout.decode(errors="replace")[-2000:])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Sample(wall_s=wall, cpu_s=cpu)
