"""A locked toolkit comes whole or not at all, once for each workspace, with all that linking takes."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from toy_toolkit import NEEDS, RECIPE, SYMBOLS, lock_toolkit, wheel_files, write_wheel

from sglforge.base import proc
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Completed, ProcessError, Runner
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedToolkit
from sglforge.config.model import Toolkit
from sglforge.errors import SglforgeError
from sglforge.host.cuda.model import CudaToolkit
from sglforge.provision.progress import Progress, silent
from sglforge.provision.python import running_interpreter
from sglforge.provision.toolkit import is_installed, locked_toolkit, provide
from sglforge.provision.toolkit_receipt import read_receipt
from sglforge.provision.toolkit_retire import retire_toolkits

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A folder of wheels, the lock of the toolkit that they make, a workspace."""

    links: Path
    locked: LockedToolkit
    workspace: Workspace
    recipe: Toolkit = RECIPE

    @property
    def toolkit(self) -> CudaToolkit:
        return locked_toolkit(self.locked, self.recipe, self.workspace)

    def provide(self, *, offline: bool = False, progress: Progress = silent, run: Runner = proc.run) -> CudaToolkit:
        return provide(
            self.toolkit,
            recipe=self.recipe,
            locked=self.locked,
            needs=[NEEDS],
            interpreter=running_interpreter(),
            workspace=self.workspace,
            locations=IndexLocations(no_index=True, find_links=(str(self.links),)),
            offline=offline,
            progress=progress,
            run=run,
        )

    def code(self, **more: object) -> str:
        with pytest.raises(SglforgeError) as caught:
            self.provide(**more)  # type: ignore[arg-type]
        return caught.value.code

    @property
    def left(self) -> list[str]:
        """What is in the folder of toolkits."""
        return (
            sorted(path.name for path in self.workspace.toolkits.iterdir()) if self.workspace.toolkits.exists() else []
        )


def make_bench(tmp_path: Path, *, version: str = "13.0.88", without: Sequence[str] = ()) -> Bench:
    wheels = [
        write_wheel(tmp_path / "links", "toy_nvcc", version, wheel_files(version=version, without=without)),
        write_wheel(tmp_path / "links", "toy_blas", "13.1", {"nvidia/cu13/lib/libtoyblas.so.13": "so"}),
    ]
    return Bench(
        links=tmp_path / "links", locked=lock_toolkit(*wheels), workspace=Workspace(root=tmp_path / "workspace")
    )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


def test_what_wheels_lack_is_added(bench: Bench) -> None:
    home = bench.provide().home
    assert (home / "lib64").resolve() == home / "lib"
    assert (home / "lib64/libcudart.so").readlink() == Path("libcudart.so.13")
    assert (home / "lib64/libtoyblas.so").readlink() == Path("libtoyblas.so.13")
    assert os.access(home / "bin/nvcc", os.X_OK)
    assert os.access(home / "nvvm/bin/cicc", os.X_OK)
    assert sorted(path.name for path in (home.parent / "dist-info").iterdir()) == [
        "toy_blas-13.1.dist-info",
        "toy_nvcc-13.0.88.dist-info",
    ]
    assert sorted(path.name for path in home.parent.iterdir()) == ["cuda", "dist-info", "toolkit.json"]
    receipt = read_receipt(home.parent)
    assert receipt
    assert receipt.fingerprint == bench.toolkit.fingerprint
    assert receipt.requirements == ("toy-nvcc==13.0.88", "toy-blas==13.1")
    assert "cuda/bin/nvcc" in receipt.files
    assert receipt.links["cuda/lib64"] == "lib"


def test_the_stub_has_every_function_by_the_names_that_programs_use(bench: Bench) -> None:
    home = bench.provide().home
    stub = ctypes.CDLL(str(home / "lib64/stubs/libcuda.so"))
    assert [getattr(stub, name)() for name in (*SYMBOLS, "cuMemAlloc")] == [34, 34, 34]
    said = subprocess.run(
        ["readelf", "-d", home / "lib64/stubs/libcuda.so"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"SONAME.*\[libcuda\.so\.1\]", said)


def test_it_is_made_once(bench: Bench) -> None:
    inode = bench.provide().home.stat().st_ino

    def refuse(*_: object, **__: object) -> Completed:
        raise AssertionError("nothing is to be run")

    assert bench.provide(run=refuse, offline=True).home.stat().st_ino == inode


def test_what_was_changed_or_removed_is_made_again(bench: Bench) -> None:
    home = bench.provide().home
    for name in ("include/cuda.h", "bin/nvcc", "lib/stubs/libcuda.so", "lib/libcudart.so"):
        path, before = home / name, (home / name).parent.stat()
        aside = path.rename(path.with_name("aside"))
        assert not is_installed(bench.toolkit)
        path.write_text("other")
        assert not is_installed(bench.toolkit)
        aside.replace(path)
        os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert is_installed(bench.toolkit)
    (home / "include/cccl/more.h").write_text("")
    assert not is_installed(bench.toolkit)
    bench.provide()
    assert is_installed(bench.toolkit)
    assert bench.left == [bench.toolkit.fingerprint]


def test_an_edit_in_place_is_in_uvs_cache_too_and_is_not_taken_from_there(bench: Bench) -> None:
    path = bench.provide().home / "include/cuda.h"
    before = path.read_text()
    with path.open("a") as stream:
        stream.write("int edited;\n")
    assert not is_installed(bench.toolkit)
    assert (bench.provide().home / "include/cuda.h").read_text() == before


def test_a_damaged_receipt_is_none(bench: Bench) -> None:
    receipt = bench.provide().home.parent / "toolkit.json"
    for text in ("", "{}", "[]", "null", '{"schema": 1}', "\0"):
        receipt.write_text(text)
        assert not is_installed(bench.toolkit)
    bench.provide()
    assert is_installed(bench.toolkit)


def test_after_it_was_fetched_no_network_is_needed(bench: Bench) -> None:
    away = bench.links.rename(bench.links.with_name("away"))
    bench.links.mkdir()
    assert bench.code(offline=True) == "offline-missing"
    assert bench.left == []
    bench.links.rmdir()
    away.rename(bench.links)
    home = bench.provide().home
    bench.links.rename(away)
    assert bench.provide(offline=True).home == home


def test_what_builds_take_may_come_later_and_is_missed(bench: Bench) -> None:
    bench.provide()
    more = NEEDS.model_copy(update={"headers": ["curand_kernel.h"]})
    assert replace(bench, recipe=RECIPE.model_copy(update={"cuda": more})).code() == "toolkit-incomplete"
    assert is_installed(bench.toolkit)


@pytest.mark.parametrize(
    ("version", "without"),
    [("12.9.86", ()), ("13.0.88", ("bin/cuobjdump",)), ("13.0.88", ("include/crt/host_config.h",))],
)
def test_wheels_that_are_no_such_toolkit(tmp_path: Path, version: str, without: Sequence[str]) -> None:
    bench = make_bench(tmp_path, version=version, without=without)
    assert bench.code() == "toolkit-incomplete"
    assert bench.left == []


def test_wheels_without_an_nvcc(tmp_path: Path) -> None:
    assert make_bench(tmp_path, without=("bin/nvcc",)).code() == "toolkit-incomplete"


def test_a_stub_that_lacks_what_recipes_need(bench: Bench) -> None:
    recipe = RECIPE.model_copy(update={"driver_symbols": [*SYMBOLS, "cuNotThere"]})
    assert replace(bench, recipe=recipe).code() == "toolkit-incomplete"
    assert bench.left == []


def test_a_machine_without_a_host_compiler(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nothing-here")
    assert bench.code() == "compiler-missing"
    assert bench.left == []


def test_a_wheel_that_is_not_the_locked_one(bench: Bench) -> None:
    write_wheel(bench.links, "toy_blas", "13.1", {"nvidia/cu13/lib/libtoyblas.so.13": "another"})
    assert bench.code() == "hash-mismatch"
    assert bench.left == []


def test_a_full_disk_leaves_nothing_and_no_cache_is_emptied(bench: Bench) -> None:
    words: list[str] = []

    def full(argv: Sequence[str | Path], **more: object) -> Completed:
        words.append(" ".join(map(str, argv[1:3])))
        if "install" in argv:
            output = "error: Failed to install: toy_nvcc-13.0.88.whl (toy-nvcc==13.0.88)\n  No space left on device"
            raise ProcessError(code="process-failed", message="uv ended", context={"output": output})
        return proc.run(argv, **more)  # type: ignore[arg-type]

    assert bench.code(run=full) == "disk-full"
    assert bench.left == []
    assert words == ["pip install"]


def test_a_file_in_the_place_of_the_folder(bench: Bench) -> None:
    bench.workspace.root.mkdir()
    bench.workspace.toolkits.write_text("a file\n")
    assert bench.code() == "workspace-unusable"
    assert bench.workspace.toolkits.read_text() == "a file\n"


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_toolkit import make_bench
bench = make_bench(Path({root!r}))
def told(done=0.0, total=None, *, note=""):
    print(note, flush=True)
    if note.startswith({phase!r}):
        import time; time.sleep(600)
print(bench.provide(progress=told).home, flush=True)
"""


def start_child(tmp_path: Path, phase: str) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parent), str(ROOT / "tests"), str(ROOT / "src")]
    script = textwrap.dedent(CHILD.format(paths=paths, root=str(tmp_path), phase=phase))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def wait_for(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdout
    for line in child.stdout:
        if line.startswith(word):
            return
    raise AssertionError(f"{word} never came")


@pytest.mark.parametrize("phase", ["2 wheels", "links", "receipt"])
def test_a_kill_at_any_phase_leaves_none_and_the_next_run_makes_it(tmp_path: Path, phase: str) -> None:
    with start_child(tmp_path, phase) as child:
        wait_for(child, phase)
        child.send_signal(signal.SIGKILL)
    bench = make_bench(tmp_path)
    assert not is_installed(bench.toolkit)
    assert [name.startswith(".") for name in bench.left] == [True]
    assert is_installed(bench.provide())
    assert bench.left == [bench.toolkit.fingerprint]


def test_two_runs_at_once_make_it_once(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    with start_child(tmp_path, "receipt") as child:
        wait_for(child, "receipt")
        notes: list[str] = []

        def told(done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
            notes.append(note)
            if note.startswith("waiting"):
                child.kill()

        bench.provide(progress=told)
    assert re.search(rf"process {child.pid}, which installs this CUDA toolkit", notes[0])
    assert bench.left == [bench.toolkit.fingerprint]


def moved_pin(bench: Bench) -> Bench:
    pins = [pin.model_copy(update={"version": "13.2"}) for pin in bench.locked.requirements]
    return replace(bench, locked=bench.locked.model_copy(update={"requirements": pins}))


def moved_file(bench: Bench) -> Bench:
    first, *rest = bench.locked.requirements
    other = first.model_copy(update={"files": [first.files[0].model_copy(update={"sha256": "0" * 64})]})
    return replace(bench, locked=bench.locked.model_copy(update={"requirements": [other, *rest]}))


def moved_symbols(bench: Bench) -> Bench:
    return replace(bench, recipe=RECIPE.model_copy(update={"driver_symbols": ["cuInit"]}))


@pytest.mark.parametrize("move", [moved_pin, moved_file, moved_symbols])
def test_another_pin_is_another_fingerprint(bench: Bench, move: Callable[[Bench], Bench]) -> None:
    assert move(bench).toolkit.fingerprint != bench.toolkit.fingerprint


def test_where_the_workspace_is_and_in_which_order_pins_stand_decides_nothing(bench: Bench) -> None:
    pins = list(reversed(bench.locked.requirements))
    other = replace(
        bench,
        workspace=Workspace(root=Path("/elsewhere")),
        locked=bench.locked.model_copy(update={"requirements": pins}),
    )
    assert other.toolkit.fingerprint == bench.toolkit.fingerprint


def test_gc_removes_what_no_lock_names(bench: Bench) -> None:
    bench.provide()
    (bench.workspace.toolkits / f".{'a' * 64}.1-b.tmp").mkdir()
    (bench.workspace.toolkits / "found").mkdir()
    name, later = bench.toolkit.fingerprint, time.time() + 3600.0

    def retire(**more: object) -> set[str]:
        given = {"keep": frozenset({name}), "keep_s": 60.0, "now": later, "dry_run": False, **more}
        return {item.path.name for item in retire_toolkits(bench.workspace, **given)}  # type: ignore[arg-type]

    assert retire(now=time.time(), keep=()) == set()
    assert retire(keep=(), dry_run=True) == {name, f".{'a' * 64}.1-b.tmp"}
    assert retire() == {f".{'a' * 64}.1-b.tmp"}
    assert is_installed(bench.toolkit)
    assert retire(keep=()) == {name}
    assert bench.left == ["found"]
