"""Measure the figures of the project: `nox -s bench`, or `nox -s bench -- NAME ...`.

Needs a workspace that `nox -s build` has proven. Each figure goes to `benchmarks/results/<name>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from benchmarks import (
    checking,
    cold,
    compile_cache,
    drift,
    governor,
    installing,
    kill_table,
    machine,
    noop,
    patch_tools,
    patching,
    planning,
    serving,
    storing,
)
from benchmarks.measure import BenchError
from benchmarks.setting import Setting

from sglforge.base import workspace
from sglforge.errors import SglforgeError

FIGURES: Mapping[str, Callable[[Setting], dict[str, object]]] = {
    "noop": noop.measure,
    "planning": planning.measure,
    "patching": patching.measure,
    "drift": drift.measure,
    "patch-tools": patch_tools.measure,
    "install": installing.measure,
    "serving": serving.measure,
    "kill-table": kill_table.measure,
    "false-alarms": kill_table.measure_real,
    "store": storing.measure,
    "check": checking.measure,
    "compile-cache": compile_cache.measure,
    "governor": governor.measure,
    "cold": cold.measure,
}
RESULTS = Path(__file__).resolve().parent / "results"
QUIET_LOAD = 0.5


def main() -> int:
    """Measure what was asked for and write the results."""
    parser = _parser()
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(FIGURES):
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    setting = Setting(
        workspace=workspace.locate(arguments.workspace),
        rounds=arguments.rounds,
        empty_cache=arguments.empty_cache,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _require_proof(setting)
        for name in arguments.names or FIGURES:
            _wait_for_quiet(arguments.wait_s)
            _write(name, setting, arguments.results)
    except (BenchError, SglforgeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does, so that servers are ended too."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(FIGURES)} (default: all)")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each figure (default: its own number)")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="default: as for every verb")
    parser.add_argument("--results", type=Path, metavar="DIR", default=RESULTS, help="where the JSON goes")
    parser.add_argument("--wait-s", type=float, metavar="S", default=60.0, help="longest wait for a quiet machine")
    parser.add_argument("--empty-cache", action="store_true", help="cold: build once with an empty uv cache too")
    return parser


def _require_proof(setting: Setting) -> None:
    """Refuse a workspace in which a build still has something to do."""
    done = subprocess.run(
        setting.sglforge("build", "--json", "--quiet"), env=setting.environment, capture_output=True, check=False
    )
    smoke = json.loads(done.stdout or b"{}").get("smoke", {})
    if done.returncode or not smoke.get("cited"):
        raise BenchError("the workspace was not proven before: run `nox -s build`, then repeat")


def _wait_for_quiet(longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while os.getloadavg()[0] > QUIET_LOAD and time.monotonic() < deadline:
        time.sleep(2)


def _write(name: str, setting: Setting, results: Path) -> None:
    started, before = datetime.now(tz=UTC), machine.load()
    print(f"{name}: load {before[0]}", file=sys.stderr)
    figure = FIGURES[name](setting)
    document = {
        "schema": 1,
        "name": name,
        "time": started.strftime("%Y-%m-%dT%H:%MZ"),
        "machine": machine.describe(),
        "load": {"before": before, "after": machine.load()},
        **figure,
    }
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(_lines("", document)))


def _lines(path: str, value: object) -> Iterator[str]:
    """Yield each median with its spread, for people."""
    if not isinstance(value, dict):
        return
    if "median" in value:
        yield f"{path}: {value['median']:g} ({value['min']:g} to {value['max']:g})"
        return
    for key, entry in value.items():
        yield from _lines(f"{path} | {key}" if path else str(key), entry)


if __name__ == "__main__":
    sys.exit(main())
