"""From an empty workspace to the first proven decode, and the memory that the engine needs on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.measure import BenchError, interleave, spread, summary, timed
from benchmarks.measure import Sample as Taken
from benchmarks.setting import Setting

ROUNDS = 2
WARM, EMPTY = "uv cache as it is", "empty uv cache"
DECODED = "decode-single"


def measure(setting: Setting) -> dict[str, object]:
    """Build in new workspaces until proven; `--empty-cache` adds one build whose uv cache is empty too.

    The first proven decode is the event of the probe that checks it: the control server, which runs before,
    is in the time.
    """
    decoded: dict[str, list[float]] = {WARM: [], EMPTY: []}
    samples = interleave({WARM: lambda: _build(setting, decoded[WARM])}, setting.rounds or ROUNDS)
    if setting.empty_cache:
        samples |= interleave({EMPTY: lambda: _build(setting, decoded[EMPTY], empty_cache=True)}, 1)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "first_proven_decode_s": {name: spread(values) for name, values in decoded.items() if values},
        "aims": {"own_peak_mib": "at most 150 MiB for the sglforge process; its children are not in it"},
    }


def _build(setting: Setting, decoded: list[float], *, empty_cache: bool = False) -> Taken:
    with setting.folder() as folder:
        env = dict(setting.environment)
        if empty_cache:
            env["UV_CACHE_DIR"] = str(folder / "uv-cache")
        workspace = folder / "workspace"
        start = time.time()
        sample = timed(setting.sglforge("build", workspace=workspace), env=env, watch_memory=True)
        decoded.append(_decoded(workspace) - start)
    return sample


def _decoded(workspace: Path) -> float:
    """Return the time at which a decode was proven, in seconds since the epoch."""
    for line in (workspace / "runs" / "latest" / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event.get("name") == DECODED and event["verdict"] == "pass":
            return float(event["time"])
    raise BenchError(f"no {DECODED} passed")
