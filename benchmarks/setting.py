"""Where and with what is measured."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import BenchError

from sglforge.base.console import Console, Verbosity, for_terminal
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned, plan, select

ROOT = Path(__file__).resolve().parent.parent
# Set in some containers; an installed program has its byte code, and so must what is measured.
UNWANTED = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONPROFILEIMPORTTIME"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The workspace that a build has filled, and how often is measured (None: each figure's own number)."""

    workspace: Workspace
    rounds: int | None
    empty_cache: bool

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables of every process that is measured."""
        kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
        return {**kept, "SGLFORGE_HOME": str(self.workspace.root)}

    def sglforge(self, verb: str, *arguments: str | Path, workspace: Path | None = None) -> Sequence[str | Path]:
        """Return the command line of a verb on the CPU target."""
        place: list[str | Path] = ["--workspace", workspace] if workspace else []
        return [program("sglforge"), verb, "--catalog", ROOT, "--target", "cpu", *place, *arguments]

    def planned(self) -> Planned:
        """Return the plan of the build that is measured."""
        request, console = self.request(), self.console()
        return plan(request, select(request, console))

    def request(self) -> Request:
        """Return the request of a build on the CPU target."""
        return Request(argv=(), catalog_root=ROOT, workspace=self.workspace, target="cpu")

    def console(self) -> Console:
        """Return a console that says only what is wrong."""
        return for_terminal(Verbosity.QUIET)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield a folder on the workspace's file system that is removed at the end."""
        with working_folder(self.workspace, "bench") as folder:
            yield folder


def program(name: str) -> Path:
    """Return a program of the environment that runs the benchmarks.

    Raises BenchError when it is not there.
    """
    found = Path(sys.executable).parent / name
    if not found.exists():
        raise BenchError(f"there is no {name} beside {Path(sys.executable).name}: run `nox -s bench`")
    return found


def link_tree(folder: Path, into: Path) -> None:
    """Copy a folder by hard links."""
    shutil.copytree(folder, into, copy_function=os.link)
