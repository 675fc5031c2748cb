"""Builds with a fake nvcc that takes memory as it is told."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sglforge.base.workspace import Workspace
from sglforge.build.compiling.jobserver import serving, without_jobs
from sglforge.build.compiling.scope import Compiling, compiling
from sglforge.config.model import CompileMemory

FAKE = Path(__file__).with_name("fake_nvcc.py")
NINJA = Path(sys.executable).parent / "ninja"


@dataclass
class Project:
    """A folder of sources, each a unit, and the fake compiler before PATH."""

    folder: Path
    workspace: Workspace
    programs: Path
    units: dict[str, str] = field(default_factory=dict)
    cached: bool = False
    memory: CompileMemory = field(default_factory=lambda: CompileMemory(default=0.1))

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return {**without_jobs(os.environ), "PATH": path, "SGLFORGE_CCACHE": "on" if self.cached else "off"}

    def add(self, name: str, *, mib: int = 16, seconds: float = 0.0, ending: str = "") -> None:
        (self.folder / f"{name}.cu").write_text(f"{mib} {seconds} {ending}")
        self.units[name] = f"{name}.o"

    def runs(self, name: str) -> int:
        file = self.folder / f"{name}.cu.runs"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @contextlib.contextmanager
    def compiling(self, jobs: int = 2, *, root: Path = Path("/")) -> Iterator[Compiling]:
        with serving(self.workspace, jobs) as server, compiling(
            "toy", target="gpu", workspace=self.workspace, memory=self.memory, toolchain="fake",
            roots=[self.folder], server=server, environment=self.environment, root=root,
        ) as scope:  # fmt: skip
            yield scope

    def call(self, scope: Compiling, name: str) -> list[str]:
        return [scope.launcher, "nvcc", "-c", f"{name}.cu", "-o", f"{name}.o"]

    def start(self, scope: Compiling, name: str, *, group: int | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.call(scope, name), cwd=self.folder, env={**self.environment, **scope.variables}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=group,
        )  # fmt: skip

    def run(self, scope: Compiling, name: str) -> subprocess.CompletedProcess[str]:
        process = self.start(scope, name)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def write_ninja(self, launcher: str) -> None:
        rows = "".join(f"build {name}.o: compile {name}.cu\n" for name in self.units)
        command = f"{launcher} nvcc -c $in -o $out".strip()
        (self.folder / "build.ninja").write_text(f"rule compile\n  command = {command}\n{rows}")

    def ninja(self, launcher: str, variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        self.write_ninja(launcher)
        return subprocess.run(
            [NINJA, *words], cwd=self.folder, env={**self.environment, **variables}, text=True, capture_output=True,
            check=False, timeout=120,
        )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Callable[[], Project]:
    def make() -> Project:
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "nvcc").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n')
        (programs / "nvcc").chmod(0o755)
        (tmp_path / "project").mkdir()
        return Project(folder=tmp_path / "project", workspace=Workspace(root=tmp_path / "workspace"), programs=programs)

    return make
