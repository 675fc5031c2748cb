"""Several runs at once: the same key is built once, other keys side by side, and a killed run leaves no lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglforge.base.files import digest
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build.store import lookup, verify

BUILDS = """
import sys, time
from pathlib import Path
from sglforge.base import runrecord
from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.build import execute as executing
from sglforge.config.model import PackageRecipe, WheelSource
from sglforge.config.lockfile import LockedArchive, LockedFile
from sglforge.plan import Step
from sglforge.provision.uv import open_uv
from sglforge.sources.model import SourceArchive

root, archive, part, go = sys.argv[1:]
workspace, archive = Workspace(root=Path(root)), Path(archive)
pack = executing.pack

def slowly(*arguments, **more):
    print("builds", flush=True)
    while not Path(go).exists():
        time.sleep(0.01)
    return pack(*arguments, **more)

executing.pack = slowly
parts = {"source": part, "target": {"name": "cpu"}}
file = LockedFile(name=archive.name, sha256=sha256_file(archive))
step = Step(
    package="toy",
    recipe=PackageRecipe(name="toy", description="A toy.", import_name="toy"),
    source=WheelSource(kind="wheel", project="toy", version="1.0"),
    locked=LockedArchive(kind="wheel", project="toy", version="1.0", files=[file]),
    build_requires=(),
    key=BuildKey(digest(parts)),
    key_parts=parts,
    local_version="cpu.t1",
    state="miss",
    why="never built here",
)
stored = executing.execute(
    step,
    catalog_root=Path(root),
    archive=SourceArchive(package="toy", path=archive, sha256=sha256_file(archive)),
    series=None,
    python=executing.BuildPython(path=Path(sys.executable), minor="%d.%d" % sys.version_info[:2]),
    workspace=workspace,
    record=runrecord.start(workspace.runs),
    uv=open_uv(IndexLocations(), offline=True),
    waiting=lambda note: print(note, flush=True),
)
print(stored.sha256, flush=True)
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file that lets builds go on."""
    return tmp_path / "go"


@pytest.fixture
def start(tmp_path: Path, workspace: Workspace, go: Path) -> Iterator[Start]:
    """Start processes that build a toy of this source."""
    wheel, info = tmp_path / "toy-1.0-py3-none-any.whl", "toy-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/__init__.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/RECORD,,\n")
    started: list[subprocess.Popen[str]] = []

    def run(source: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", BUILDS, str(workspace.root), str(wheel), source, str(go)]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def key(source: str) -> BuildKey:
    return BuildKey(digest({"source": source, "target": {"name": "cpu"}}))


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().rstrip("\n")


def packed(workspace: Workspace) -> int:
    """Return how often a wheel was packed, by all runs."""
    events = [
        json.loads(row) for file in workspace.runs.glob("*/events.jsonl") for row in file.read_text().splitlines()
    ]
    return sum(event.get("phase") == "pack" for event in events)


def test_a_second_run_waits_for_the_first_by_name_and_takes_its_wheel(
    start: Start, workspace: Workspace, go: Path
) -> None:
    first = start("a")
    assert line(first) == "builds"
    others = [start("a") for _ in range(3)]
    for other in others:
        assert line(other).startswith(f"waiting for process {first.pid}, which makes this wheel since ")
    go.touch()
    hashes = {line(process) for process in (first, *others)}
    assert [process.wait(timeout=60) for process in (first, *others)] == [0] * 4
    stored = lookup(workspace, key("a"))
    assert stored
    assert hashes == {stored.sha256}
    assert packed(workspace) == 1


def test_different_keys_are_built_side_by_side(start: Start, workspace: Workspace, go: Path) -> None:
    processes = [start("a"), start("b")]
    assert [line(process) for process in processes] == ["builds", "builds"]
    go.touch()
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    for source in ("a", "b"):
        stored = lookup(workspace, key(source))
        assert stored
        assert verify(stored) == ()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_frees_the_key_for_the_one_that_waits(
    number: signal.Signals, start: Start, workspace: Workspace, go: Path
) -> None:
    first, second = start("a"), None
    assert line(first) == "builds"
    second = start("a")
    assert "waiting for" in line(second)
    first.send_signal(number)
    assert line(second) == "builds"
    go.touch()
    assert second.wait(timeout=60) == 0
    assert lookup(workspace, key("a"))


def test_a_stopped_run_is_said_and_waited_for(start: Start, go: Path) -> None:
    first = start("a")
    assert line(first) == "builds"
    first.send_signal(signal.SIGSTOP)
    os.waitpid(first.pid, os.WUNTRACED)
    second = start("a")
    assert f"it is stopped (kill -CONT {first.pid} lets it go on)" in line(second)
    go.touch()
    time.sleep(0.2)
    assert second.poll() is None
    first.send_signal(signal.SIGCONT)
    assert [first.wait(timeout=60), second.wait(timeout=60)] == [0, 0]
