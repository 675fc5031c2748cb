"""A build with nothing to do: `sglforge build` and `nox -s build` beside fromager's."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import interleave, ratio, summary, timed
from benchmarks.setting import ROOT, Setting, program

ROUNDS = 15
# Its build backend is itself and it needs nothing: a graph of exactly one wheel.
WHEEL = "flit-core==3.12.0"
ENGINE, NOX = "sglforge build", "nox -s build"
PEERS = ("fromager bootstrap", "fromager build-sequence")


def measure(setting: Setting) -> dict[str, object]:
    """Measure runs that find everything done, after one of each that is not counted.

    fromager's are the same command a second time (`bootstrap`, which asks the index again), and the one for a
    known build order (`build-sequence`, which does not). Network isolation is off, which spares it processes.
    """
    env = setting.environment
    with setting.folder() as folder:
        bootstrap = [*_fromager(folder), "bootstrap", WHEEL]
        cold = timed(bootstrap, env=env, cwd=folder)
        sequence = [*_fromager(folder), "build-sequence", folder / "work-dir" / "build-order.json"]
        cases = {
            ENGINE: lambda: timed(setting.sglforge("build"), env=env),
            PEERS[0]: lambda: timed(bootstrap, env=env, cwd=folder),
            PEERS[1]: lambda: timed(sequence, env=env, cwd=folder),
            NOX: lambda: timed([program("nox"), "-s", "build"], env=env, cwd=ROOT),
        }
        interleave(cases, 1)
        samples = interleave(cases, setting.rounds or ROUNDS)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "ratios": {f"{ENGINE} / {peer}": ratio(samples[ENGINE], samples[peer]) for peer in PEERS},
        "aims": {
            "sglforge build": "wall at most 0.5 s, and at most 0.6 of fromager's",
            "nox -s build": "wall at most 1.5 s",
        },
        "fromager_cold_wall_s": round(cold.wall_s, 2),
    }


def _fromager(folder: Path) -> list[str | Path]:
    return [
        program("fromager"),
        "--no-network-isolation",
        "--sdists-repo", folder / "sdists-repo",
        "--wheels-repo", folder / "wheels-repo",
        "--work-dir", folder / "work-dir",
    ]  # fmt: skip
