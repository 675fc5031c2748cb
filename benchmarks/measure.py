"""Time whole processes, side by side, and sum the samples up."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02


class BenchError(Exception):
    """What was to be measured did not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run: wall seconds, CPU seconds with children, and peak memory (MiB) of the process without children."""

    wall_s: float
    cpu_s: float | None = None
    own_peak_mib: float | None = None


def timed(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    watch_memory: bool = False,
) -> Sample:
    """Run a program to its end and return what it took.

    Args:
        argv: The program and its arguments; its output is kept only for an error.
        env: Its whole environment.
        cwd: Its working folder.
        watch_memory: Read the high-water mark of its memory while it runs; costs a wake-up every 20 ms.

    Raises BenchError when it ends with another status than 0.
    """
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            peak = _peak_until_end(process.pid) if watch_memory else None
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            tail = output.read().decode(errors="replace").splitlines()[-15:]
            raise BenchError("\n".join([f"{argv[0]} ended with status {process.returncode}", *tail]))
    return Sample(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime, own_peak_mib=peak)


def interleave(cases: Mapping[str, Callable[[], Sample]], rounds: int) -> dict[str, list[Sample]]:
    """Measure every case once in each round, so that all of them meet the same load; the order alternates."""
    samples: dict[str, list[Sample]] = {name: [] for name in cases}
    names = list(cases)
    for _ in range(rounds):
        for name in names:
            samples[name].append(cases[name]())
        names.reverse()
    return samples


def summary(samples: Sequence[Sample]) -> dict[str, object]:
    """Return median, smallest and largest of each quantity, and the raw values in the order of the rounds."""
    columns = {
        "wall_s": [sample.wall_s for sample in samples],
        "cpu_s": [sample.cpu_s for sample in samples if sample.cpu_s is not None],
        "own_peak_mib": [sample.own_peak_mib for sample in samples if sample.own_peak_mib is not None],
    }
    return {name: spread(values) for name, values in columns.items() if values}


def ratio(these: Sequence[Sample], those: Sequence[Sample]) -> dict[str, object]:
    """Return how many times as long these took as those, round by round."""
    pairs = list(zip(these, those, strict=True))
    ratios: dict[str, object] = {"wall": spread([a.wall_s / b.wall_s for a, b in pairs])}
    if cpu := [a.cpu_s / b.cpu_s for a, b in pairs if a.cpu_s and b.cpu_s]:
        ratios["cpu"] = spread(cpu)
    return ratios


def spread(values: Sequence[float]) -> dict[str, object]:
    """Return median, minimum, maximum and the values."""
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "values": [round(value, 4) for value in values],
    }


def _peak_until_end(pid: int) -> float | None:
    """Return the last high-water mark of a process's own memory, in MiB; it is left a zombie."""
    peak = None
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        status = Path(f"/proc/{pid}/status").read_text()
        if found := re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE):
            peak = int(found[1]) / 1024
        time.sleep(POLL_S)
    return peak
