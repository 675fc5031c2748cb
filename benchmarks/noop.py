"""A build with nothing to do: `sglforge build` and `nox -s build` beside fromager's and uv's."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import interleave, ratio, summary, timed
from benchmarks.setting import ROOT, Setting, program

from sglforge.host import package_index

ROUNDS = 15
# Its build backend is itself and it needs nothing: a graph of exactly one wheel.
WHEEL = "flit-core==3.12.0"
ENGINE, NOX = "sglforge build", "nox -s build"
SYNC, AUDIT = "uv sync, one wheel", "uv pip install --dry-run, the same requirements"
PEERS = ("fromager bootstrap", "fromager build-sequence", SYNC, AUDIT)
PROJECT = '[project]\nname = "one"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["{wheel}"]\n'


def measure(setting: Setting) -> dict[str, object]:
    """Measure runs that find everything done, after one of each that is not counted.

    fromager's are the same command a second time (`bootstrap`, which asks the index again), and the one for a
    known build order (`build-sequence`, which does not). Network isolation is off, which spares it processes.
    uv syncs a project of one wheel, for a lock of ours would have it download other builds of torch; over the built
    environment it is asked what it would install of the same requirements: it reads metadata, none of the files.
    """
    env = {**setting.environment, **package_index.uv_environment(package_index.read())}
    with setting.folder() as folder:
        bootstrap = [*_fromager(folder), "bootstrap", WHEEL]
        cold = timed(bootstrap, env=env, cwd=folder)
        sequence = [*_fromager(folder), "build-sequence", folder / "work-dir" / "build-order.json"]
        sync, audit = _sync(folder / "one"), _audit(setting, folder)
        # nox names its own environment as the one that uv may change: a sync would empty the one we run in
        apart = {**env, "UV_PROJECT_ENVIRONMENT": str(folder / "one" / ".venv")}
        timed(sync, env=apart, cwd=folder / "one")
        cases = {
            ENGINE: lambda: timed(setting.sglforge("build"), env=env),
            PEERS[0]: lambda: timed(bootstrap, env=env, cwd=folder),
            PEERS[1]: lambda: timed(sequence, env=env, cwd=folder),
            SYNC: lambda: timed(sync, env=apart, cwd=folder / "one"),
            AUDIT: lambda: timed(audit, env=env, cwd=folder),
            NOX: lambda: timed([program("nox"), "-s", "build"], env=env, cwd=ROOT),
        }
        interleave(cases, 1)
        samples = interleave(cases, setting.rounds or ROUNDS)
    return {
        "cases": {name: summary(taken) for name, taken in samples.items()},
        "ratios": {f"{ENGINE} / {peer}": ratio(samples[ENGINE], samples[peer]) for peer in PEERS},
        "aims": {
            "sglforge build": "wall at most 0.3 s, and at most 0.6 of fromager's",
            "nox -s build": "wall at most 1.5 s",
        },
        "fromager_cold_wall_s": round(cold.wall_s, 2),
    }


def _sync(project: Path) -> list[str | Path]:
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT.format(wheel=WHEEL))
    return [program("uv"), "sync"]


def _audit(setting: Setting, folder: Path) -> list[str | Path]:
    """Return the command that compares the built environment with its locked requirements, offline."""
    planned = setting.planned()
    wanted = folder / "wanted.txt"
    wanted.write_text("".join(f"{one.name}=={one.version}\n" for one in planned.plan.python.requirements))
    python = setting.workspace.environments / planned.plan.environment_key / "venv" / "bin" / "python"
    return [
        program("uv"), "pip", "install", "--dry-run", "--offline", "--no-deps", "--python", python, "-r", wanted,
    ]  # fmt: skip


def _fromager(folder: Path) -> list[str | Path]:
    return [
        program("fromager"),
        "--no-network-isolation",
        "--sdists-repo", folder / "sdists-repo",
        "--wheels-repo", folder / "wheels-repo",
        "--work-dir", folder / "work-dir",
    ]  # fmt: skip
