"""Compilers behind our launcher, for real: ccache with nvcc and g++, Redis, ninja in a memory control group."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import compile_torture
import pytest
from compile_torture import Edit, Project, torture
from memory_group import Group, memory_group

from sglforge.base.sandbox.step import Sandbox
from sglforge.base.workspace import Workspace
from sglforge.build.compiling import launching
from sglforge.build.compiling.jobserver import serving, without_jobs
from sglforge.build.compiling.scope import Compiling, compiling
from sglforge.config.model import CompileMemory
from sglforge.host import package_index
from sglforge.provision.uv import open_uv

pytestmark = pytest.mark.integration

SRC = Path(launching.__file__).parents[3]
NINJA = Path(sys.executable).parent / "ninja"
TOOLKIT = [f"nvidia-cuda-{name}==13.0.*" for name in ("nvcc", "runtime", "crt", "cccl")] + ["nvidia-nvvm==13.0.*"]


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nvcc and what it needs: ``SGLFORGE_TEST_CUDA``, else from the registry's wheels."""
    if configured := os.environ.get("SGLFORGE_TEST_CUDA"):
        return Path(configured)
    folder = tmp_path_factory.mktemp("cuda")
    uv = open_uv(package_index.read())
    uv("pip", "install", "--quiet", "--python", sys.executable, "--target", folder, "--no-deps", *TOOLKIT)
    return folder / "nvidia/cu13"


@pytest.fixture(autouse=True)
def ccache() -> None:
    assert shutil.which("ccache"), "these tests need ccache: .ci/run installs it (apt-get install ccache redis-server)"


@contextlib.contextmanager
def launched(
    folder: Path, *, cuda: Path | None = None, remote: str = "", name: str = "workspace"
) -> Iterator[tuple[Compiling, dict[str, str], dict[str, str]]]:
    """Yield what compiling gave, the variables of a compiler behind the launcher, and those of a bare one."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CCACHE", "NVCC"))}
    bare = without_jobs(kept) | ({"PATH": f"{cuda}/bin{os.pathsep}{kept['PATH']}"} if cuda else {})
    workspace = Workspace(root=folder / name)
    with serving(workspace, 2) as server:
        scope = compiling(
            "torture",
            target="sm120",
            workspace=workspace,
            memory=CompileMemory(default=0.5),
            toolchain="13.0",
            roots=[folder / "project"],
            server=server,
            environment={**bare, **({"SGLFORGE_CCACHE_REMOTE": remote} if remote else {})},
        )
        with scope as given:
            yield given, {**bare, **given.variables}, bare


def project_of(folder: Path, compiler: str) -> Project:
    (folder / "project").mkdir()
    if compiler == "nvcc":
        return Project(folder=folder / "project")
    asking = ("-MMD", "-MF", "out/unit.d")
    return Project(folder=folder / "project", compiler="g++", first_flags=compile_torture.HOST_FLAGS, asking=asking)


def chosen(edits: Mapping[str, Edit], every: int) -> dict[str, Edit]:
    return dict(list(edits.items())[::every])


@pytest.mark.parametrize(
    ("compiler", "edits"),
    [
        pytest.param("g++", compile_torture.HOST_COMPILER, id="g++"),
        pytest.param("nvcc", chosen(compile_torture.NVCC, 4), id="nvcc-some"),
        pytest.param(
            "nvcc", compile_torture.NVCC, id="nvcc-all", marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]
        ),
    ],
)
def test_no_edit_gives_a_stale_object(compiler: str, edits: Mapping[str, Edit], tmp_path: Path, cuda: Path) -> None:
    project = project_of(tmp_path, compiler)
    with launched(tmp_path, cuda=cuda) as (scope, ours, bare):
        assert torture(project, edits, (scope.launcher,), ours, bare) == []
        found = scope.report().cache
        assert found
        # every way back hits, and so may edits that change nothing of what the compiler sees
        assert found.hits >= len(edits) // 3
        assert found.hits + found.misses == 1 + len(edits) + len(edits) // 3
        assert found.other == {}


def test_a_workspace_may_have_blanks_in_its_path(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "x.cc").write_text("int x() { return 1; }\n")
    with launched(tmp_path, name="work  space") as (scope, ours, _):
        for _again in range(2):
            subprocess.run([scope.launcher, "g++", "-c", "x.cc", "-o", "x.o"], cwd=project, env=ours, check=True)
        found = scope.report().cache
    assert found
    assert (found.misses, found.hits) == (1, 1)


def test_the_torture_finds_what_ccache_by_itself_gives_stale(tmp_path: Path, cuda: Path) -> None:
    """Without it, the tests above would prove nothing."""
    project = project_of(tmp_path, "g++")
    with launched(tmp_path) as (_, _, bare):
        alone = {**bare, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_CONFIGPATH": "/dev/null"}
        project.asking = compile_torture.AS_LAUNCHED["g++"]
        stale = torture(project, compile_torture.HOST_COMPILER, ("ccache",), alone, bare)
    assert {"header: appears beside the source", "header: asked for with __has_include"} <= set(stale)
    (tmp_path / "nvcc").mkdir()
    project = project_of(tmp_path / "nvcc", "nvcc")
    project.asking = compile_torture.AS_LAUNCHED["nvcc"]
    with launched(tmp_path, cuda=cuda) as (_, _, bare):
        alone = {**bare, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_CONFIGPATH": "/dev/null"}
        edits = {"host": compile_torture.HOST["host: value in host-only code"]}
        assert torture(project, edits, ("ccache",), alone, bare) == ["host"]


def test_another_toolchain_is_another_object(tmp_path: Path) -> None:
    project = project_of(tmp_path, "g++")
    project.reset()
    workspace = Workspace(root=tmp_path / "workspace")
    for toolchain, hits in (("a", 0), ("b", 0), ("a", 1)):
        with serving(workspace, 1) as server:
            scope = compiling(
                "x",
                target="t",
                workspace=workspace,
                memory=CompileMemory(),
                toolchain=toolchain,
                roots=[tmp_path],
                server=server,
            )
            with scope as given:
                project.compile((given.launcher,), {**os.environ, **given.variables})
                found = given.report().cache
        assert found
        assert found.hits == hits


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A real Redis with a password, on loopback: its URL and its log."""
    program = shutil.which("redis-server")
    assert program, "these tests need redis-server: .ci/run installs it"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--requirepass",
        "se:cret",
        "--dir",
        str(tmp_path),
    ]
    with (tmp_path / "redis.log").open("w") as log:
        process = subprocess.Popen([program, *words], stdout=log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"redis://:se%3Acret@127.0.0.1:{port}/3", tmp_path / "redis.log"
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("compiler", ["g++", "nvcc"])
def test_two_workspaces_share_objects_through_redis_from_inside_the_sandbox(
    compiler: str, redis: tuple[str, Path], tmp_path: Path, cuda: Path
) -> None:
    project = project_of(tmp_path, compiler)
    project.reset()
    url, _ = redis
    objects = []
    for name, remote_hits in (("first", 0), ("second", 1)):
        with launched(tmp_path, cuda=cuda, remote=url, name=name) as (scope, ours, _):
            sandbox = Sandbox(folders=(project.folder, *scope.folders))
            words = [scope.launcher, project.compiler, *project.flags, *project.asking, "-c", project.source]
            (project.folder / "out/unit.o").unlink(missing_ok=True)
            own = {**ours, "TMPDIR": str(project.folder / "out")}
            sandbox([*words, "-o", "out/unit.o"], cwd=project.folder, env=own, timeout_s=120)
            report = scope.report()
            assert report.cache
            assert (report.cache.remote_hits, report.cache.hits) == (remote_hits, remote_hits)
            assert report.cache.other == {}
            assert "cret" not in json.dumps(report.to_json())
            assert report.remote.startswith("redis://127.0.0.1:")
            assert sandbox.reports[0].isolation.network == "none"
        objects.append((project.folder / "out/unit.o").read_bytes())
    assert objects[0] == objects[1]


def test_a_remote_that_is_gone_costs_no_unit(tmp_path: Path) -> None:
    project = project_of(tmp_path, "g++")
    project.reset()
    with launched(tmp_path, remote="redis://127.0.0.1:9") as (scope, ours, bare):
        assert project.compile((scope.launcher,), ours) == project.compile((), bare)
        report = scope.report()
        assert report.remote_fault.startswith("redis: ")
        assert report.cache
        assert report.cache.misses == 1


def test_a_cache_on_a_full_disk_costs_no_unit(tmp_path: Path) -> None:
    project = project_of(tmp_path, "g++")
    project.reset()
    with launched(tmp_path) as (scope, ours, bare):
        objects = next(folder for folder in scope.folders if folder.parent.name == "cache")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", objects], check=False).returncode:
            pytest.skip("this machine lets nobody mount")
        try:
            with contextlib.suppress(OSError):
                (objects / "filler").write_bytes(b"x" * 2**20)
            assert project.compile((scope.launcher,), ours) == project.compile((), bare)
        finally:
            subprocess.run(["umount", "-l", objects], check=True)


EATER = """\
#!{python} -IS
import sys, time
words = sys.argv[1:]
source, output = next(word for word in words if word.endswith(".cu")), words[words.index("-o") + 1]
peak, after = open(source).read().split()
kept = [b"x" * (16 << 20) for _ in range(int(peak) // 16)]
time.sleep(0.5)
del kept[int(after) // 16 :]
time.sleep(0.5)
open(output, "w").write("object")
"""
BUILD = """
import json, os, subprocess, sys
from pathlib import Path
from sglforge.base.workspace import Workspace
from sglforge.build.compiling.jobserver import serving, without_jobs
from sglforge.build.compiling.scope import compiling
from sglforge.config.model import CompileMemory
folder, ninja, default, units = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), json.loads(sys.argv[4])
workspace = Workspace(root=folder / "workspace")
environment = {**without_jobs(os.environ), "SGLFORGE_CCACHE": "off"}
with serving(workspace, 4) as server, compiling(
    "heavy", target="t", workspace=workspace, memory=CompileMemory(default=default, units=units), toolchain="t",
    roots=[folder], server=server, environment=environment,
) as scope:
    done = subprocess.run(
        [ninja], cwd=folder, env={**environment, **scope.variables, "LAUNCHER": scope.launcher}, capture_output=True
    )
    report = scope.report()
    print(json.dumps({"code": done.returncode, "retried": [unit.name for unit in report.retried],
                      "waited": sum(unit.waited_s for unit in report.units)}))
"""


def heavy_units(folder: Path, peaks_mib: Sequence[int]) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/nvcc").write_text(EATER.format(python=sys.executable))
    (folder / "bin/nvcc").chmod(0o755)
    rows = []
    for number, peak in enumerate(peaks_mib):
        (folder / f"u{number}.cu").write_text(f"{peak} {peak // 4}")
        rows.append(f"build u{number}.o: compile u{number}.cu\n")
    command = f"$$LAUNCHER {folder}/bin/nvcc -c $in -o $out"
    (folder / "build.ninja").write_text(f"rule compile\n  command = {command}\n{''.join(rows)}")


@pytest.fixture
def group() -> Iterator[Group]:
    with memory_group(1200) as made:
        if made is None:
            pytest.skip("this machine lets nobody make a memory control group")
        yield made


PEAKS_MIB = (480, 640, 800, 480, 640, 96, 96, 96)


def build(folder: Path, group: Group, *, default_gib: float, units: Mapping[str, float]) -> dict[str, object]:
    """Run ninja behind our launchers in the group and return what became of it."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, folder, NINJA, str(default_gib), json.dumps(units)],
        env={**os.environ, "PYTHONPATH": str(SRC)}, preexec_fn=group.enter, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_units_that_a_plain_ninja_is_killed_for_finish(tmp_path: Path, group: Group) -> None:
    heavy_units(tmp_path, PEAKS_MIB)
    plain = subprocess.run(
        [NINJA, "-j4"], cwd=tmp_path, env={**without_jobs(os.environ), "LAUNCHER": ""}, preexec_fn=group.enter,
        capture_output=True, check=False,
    )  # fmt: skip
    assert plain.returncode != 0
    before = group.kills
    assert before > 0
    units = {f"u{number}.o": (peak + 40) / 1024 for number, peak in enumerate(PEAKS_MIB)}
    found = build(tmp_path, group, default_gib=4.0, units=units)
    assert (found["code"], found["retried"], group.kills) == (0, [], before)


def test_what_the_recipe_says_too_low_is_killed_once_and_known_the_next_time(tmp_path: Path, group: Group) -> None:
    heavy_units(tmp_path, PEAKS_MIB[:5])
    found = build(tmp_path, group, default_gib=0.1, units={})
    assert found["code"] == 0
    assert found["retried"]
    killed = group.kills
    for number in range(5):
        (tmp_path / f"u{number}.o").unlink()
    again = build(tmp_path, group, default_gib=0.1, units={})
    assert (again["code"], again["retried"], group.kills) == (0, [], killed)
