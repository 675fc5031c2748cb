"""What the figures of compilers have in common: a build's surroundings, and a toolkit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.measure import BenchError
from benchmarks.setting import Setting

from sglforge.base.workspace import Workspace
from sglforge.build.compiling.jobserver import serving, without_jobs
from sglforge.build.compiling.scope import Compiling, compiling
from sglforge.config.model import CompileMemory

NINJA = Path(sys.executable).parent / "ninja"


class _Group(Protocol):
    @property
    def folder(self) -> Path: ...

    @property
    def version(self) -> int: ...


@contextmanager
def launched(
    folder: Path,
    *,
    home: Path | None = None,
    memory: CompileMemory | None = None,
    jobs: int = 2,
    cached: bool = True,
    remote: str = "",
    workspace: str = "workspace",
    enter: _Group | None = None,
) -> Iterator[tuple[Compiling, dict[str, str]]]:
    """Yield what compiling gave and the variables of a build in a folder.

    Args:
        folder: Where the objects are made, and the workspace.
        home: A CUDA toolkit.
        memory: What units take.
        jobs: How many run at once at most.
        cached: Whether with ccache.
        remote: Storage that is shared.
        workspace: The name of the workspace's folder.
        enter: A memory group that the compilers will be in, although this process is not.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CCACHE", "NVCC"))}
    bare = without_jobs(kept) | ({"PATH": f"{home}/bin{os.pathsep}{kept['PATH']}"} if home else {})
    switches = {"SGLFORGE_CCACHE_REMOTE": remote} if remote else {}
    place = Workspace(root=folder / workspace)
    with serving(place, jobs) as server:
        scope = compiling(
            "bench", target="bench", workspace=place, memory=memory or CompileMemory(default=0.5), toolchain="bench",
            roots=[folder], server=server, environment={**bare, **switches}, cached=cached,
            root=_seen_from(enter, folder) if enter else Path("/"),
        )  # fmt: skip
        with scope as given:
            yield given, {**bare, **given.variables}


def _seen_from(group: _Group, folder: Path) -> Path:
    """Return a root whose proc/ says that this process is in a group, and whose files are the real ones."""
    root = folder / "root"
    if not root.exists():
        (root / "proc/self").mkdir(parents=True)
        mount = group.folder.parent
        kind = "cgroup cgroup rw,memory" if group.version == 1 else "cgroup2 cgroup2 rw"
        controllers = "memory" if group.version == 1 else ""
        (root / "proc/self/cgroup").write_text(f"1:{controllers}:/{group.folder.name}\n")
        (root / "proc/self/mountinfo").write_text(f"1 1 0:1 / {mount} rw - {kind}\n")
        for name in ("meminfo", "vmstat", "pressure"):
            (root / "proc" / name).symlink_to(f"/proc/{name}")
        (root / "sys").symlink_to("/sys")
    return root


def nvcc_home(setting: Setting) -> Path:
    """Return a CUDA toolkit: ``SGLFORGE_TEST_CUDA``, else one of the workspace's.

    Raises BenchError.
    """
    if configured := os.environ.get("SGLFORGE_TEST_CUDA"):
        return Path(configured)
    for home in sorted(setting.workspace.toolkits.glob("*/cuda")):
        return home
    raise BenchError("there is no CUDA toolkit in the workspace: run `nox -s fetch -- --target sm120`, then repeat")
