"""What an undisturbed workspace holds: what rounds begin from, and what they must end in."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture import minicatalog
from torture.minicatalog import MiniCatalog
from torture.processes import MARK, Ended, Launcher
from torture.scenario import Counts, Words, verbs_counted

SOURCE = Path(__file__).parents[2] / "src"
INSIDE = Path(__file__).parent / "inside"
DEADLINE_S = 120.0
# What an installer writes about where and when a wheel came, byte code, and the list of both.
BY_PLACE = re.compile(r"__pycache__|\.dist-info/(RECORD|direct_url\.json|uv_cache\.json)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What has to be the same: wheels by package, the environment's key and built files, the lock."""

    wheels: Mapping[str, str]
    environment_key: str
    built: Mapping[str, str]
    lock: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The undisturbed workspaces of one catalog, by how far they are, and their results."""

    folder: Path
    catalog: MiniCatalog
    result: Result
    counts: Counts
    seconds: Mapping[str, float]
    lock_names: Sequence[str]
    source: Path = SOURCE

    @property
    def deadline_s(self) -> float:
        """How long runs may take before they are held to hang, on a machine that may do much else."""
        return max(90.0, 30 * max(self.seconds.values()))

    @property
    def facts(self) -> Path:
        return self.folder / "facts.json"

    def state(self, name: str) -> Path:
        """Return the workspace to begin from: `empty`, `fetched` or `built`."""
        return self.folder / "states" / name

    @property
    def cache(self) -> Path:
        """uv's cache, with everything in it."""
        return self.folder / "uv-cache"


def environment(catalog: MiniCatalog, workspace: Path, cache: Path, mark: str, source: Path = SOURCE) -> dict[str, str]:
    """Return the variables of every run: only the folder of wheels, one workspace, one cache, one mark.

    ``source`` is the folder that sglforge is imported from.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "SGLFORGE_"))}
    return {
        **kept,
        **catalog.environment(),
        MARK: mark,
        "SGLFORGE_HOME": str(workspace),
        "UV_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join((str(source), str(INSIDE))),
        "PYTHONFAULTHANDLER": "1",
        "GIT_ALLOW_PROTOCOL": "file",
    }


def make(folder: Path) -> Reference:
    """Make the catalog and its undisturbed workspaces, and count and time what verbs do."""
    catalog = minicatalog.make(folder)
    states, cache = folder / "states", folder / "uv-cache"
    (states / "empty").mkdir(parents=True)
    workspace = folder / "workspace"
    launcher = Launcher(
        cwd=catalog.root, environment=environment(catalog, workspace, cache, "reference"), talk=folder / "talk"
    )
    doctor = _must(launcher, ("doctor",))
    (folder / "facts.json").write_text(json.dumps((doctor.document or {})["facts"]))
    _must(launcher, ("lock",))
    lock = catalog.lock.read_text()
    _must(launcher, ("fetch",))
    shutil.copytree(workspace, states / "fetched", symlinks=True)
    built = _must(launcher, ("build", *catalog.packages))
    shutil.copytree(workspace, states / "built", symlinks=True)
    _must(launcher, ("install",))
    _must(launcher, ("verify",))
    result = Result(wheels=wheels(built), **installed(workspace), lock=lock)
    lock_names = sorted(path.stem for path in (workspace / "locks").glob("*.lock"))
    counts, seconds = _measure(folder, catalog, workspace, states, cache)
    catalog.lock.write_text(lock)
    return Reference(
        folder=folder, catalog=catalog, result=result, counts=counts, seconds=seconds, lock_names=lock_names
    )


def wheels(ended: Ended) -> dict[str, str]:
    """Return the hash of each wheel that a build names, by package."""
    steps = (ended.document or {}).get("steps", [])
    return {step["package"]: step["sha256"] for step in steps}


def installed(workspace: Path) -> dict[str, Any]:
    """Return key and built files of the installed environment, without what says where it is."""
    receipt = json.loads((workspace / "environments" / "mini.cpu" / "receipt.json").read_text())
    rows = {path: row[0] for built in receipt["built"] for path, row in built["files"].items()}
    files = {path: sha256 for path, sha256 in sorted(rows.items()) if not BY_PLACE.search(path)}
    return {"environment_key": receipt["environment_key"], "built": files}


def _measure(
    folder: Path, catalog: MiniCatalog, installed_workspace: Path, states: Path, cache: Path
) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    counts, seconds = {}, {}
    for start, verb in verbs_counted():
        workspace = folder / "counted"
        if start == "environment":
            workspace = installed_workspace
        else:
            shutil.copytree(states / start, workspace, symlinks=True)
        if verb == ("lock",):
            catalog.lock.unlink()
        launcher = Launcher(
            cwd=catalog.root,
            environment=environment(catalog, workspace, cache, "reference"),
            talk=folder / "talk",
            facts=folder / "facts.json",
        )
        counted = folder / "counts.json"
        plan = {"workspace": str(workspace), "catalog": str(catalog.root), "counted": str(counted)}
        ended = _must(launcher, verb, plan)
        counts[" ".join(verb)] = json.loads(counted.read_text())
        seconds[" ".join(verb)] = ended.seconds
        if start != "environment":
            shutil.rmtree(workspace)
    return counts, seconds


def _must(launcher: Launcher, words: Words, plan: Mapping[str, object] | None = None) -> Ended:
    ended = launcher.call(words, deadline_s=DEADLINE_S, plan=plan)
    if ended.code:
        raise RuntimeError(f"an undisturbed `{' '.join(words)}` ends with {ended.code}:\n{ended.stderr}")
    return ended
