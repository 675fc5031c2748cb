"""One jobserver for several builds, with a real ninja."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sglforge.base.workspace import Workspace
from sglforge.build.compiling.jobserver import serving, without_jobs

NINJA = Path(sys.executable).parent / "ninja"
COUNTED = """
import os, sys, time
folder = sys.argv[1]
mine = os.path.join(folder, f"run-{os.getpid()}")
open(mine, "w").close()
seen = 0
for _ in range(6):
    seen = max(seen, sum(name.startswith("run-") for name in os.listdir(folder)))
    time.sleep(0.02)
os.rename(mine, os.path.join(folder, f"most-{seen}-{os.getpid()}"))
"""


def ninja_file(folder: Path, seen: Path, *, edges: int) -> Path:
    folder.mkdir()
    rows = "".join(f"build {folder.name}{number}: count\n" for number in range(edges))
    command = f"{sys.executable} -I -S {folder}/count.py {seen}"
    (folder / "count.py").write_text(COUNTED)
    (folder / "build.ninja").write_text(f"rule count\n  command = {command}\n{rows}")
    return folder


def most(seen: Path) -> int:
    return max(int(path.name.split("-")[1]) for path in seen.glob("most-*"))


@pytest.mark.parametrize(("jobs", "builds"), [(1, 1), (3, 1), (3, 2), (2, 3)])
def test_ninjas_of_all_builds_together_keep_to_the_jobs(tmp_path: Path, jobs: int, builds: int) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    folders = [ninja_file(tmp_path / f"b{number}", seen, edges=6) for number in range(builds)]
    codes = []
    with serving(Workspace(root=tmp_path / "workspace"), jobs) as server:

        def build(folder: Path) -> None:
            with server.slot():
                done = subprocess.run(
                    [NINJA, "-C", folder], env={**without_jobs(os.environ), **server.variables}, check=False,
                    capture_output=True,
                )  # fmt: skip
                codes.append(done.returncode)

        threads = [threading.Thread(target=build, args=(folder,)) for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert codes == [0] * builds
    assert len(list(seen.glob("most-*"))) == 6 * builds
    assert most(seen) <= jobs
    assert jobs == 1 or most(seen) > 1


def test_a_killed_ninja_takes_its_tokens_along_and_the_next_build_still_runs(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    folder = ninja_file(tmp_path / "b", seen, edges=4)
    (folder / "count.py").write_text("import time; time.sleep(30)")
    with serving(Workspace(root=tmp_path / "workspace"), 3) as server:
        environment = {**without_jobs(os.environ), **server.variables}
        with server.slot():
            process = subprocess.Popen(
                [NINJA, "-C", folder], env=environment, stdout=subprocess.DEVNULL, process_group=0
            )
            time.sleep(0.5)
            os.killpg(process.pid, 9)
            process.wait()
        (folder / "count.py").write_text(COUNTED)
        begin = time.monotonic()
        with server.slot():
            subprocess.run([NINJA, "-C", folder], env=environment, check=True, capture_output=True)
        assert time.monotonic() - begin < 20
        assert most(seen) == 3


def test_waiting_for_a_slot_ends_as_its_pause_does(tmp_path: Path) -> None:
    def pause(_seconds: float) -> None:
        raise InterruptedError

    with (
        serving(Workspace(root=tmp_path), 1) as server,
        server.slot(),
        pytest.raises(InterruptedError),
        server.slot(pause),
    ):
        pass
    assert list((tmp_path / "scratch").iterdir()) == []


def test_numbers_of_jobs_of_a_persons_own_are_taken_out() -> None:
    kept = without_jobs({"MAX_JOBS": "64", "CMAKE_BUILD_PARALLEL_LEVEL": "8", "MAKEFLAGS": "-j9", "PATH": "/bin"})
    assert kept == {"PATH": "/bin"}
