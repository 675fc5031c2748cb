"""Toolkits are found wherever people put them; what only looks like one is told with what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_toolkit import NEEDS, RECIPE, write_toolkit

from sglforge.base import proc
from sglforge.base.workspace import Workspace
from sglforge.host.cuda import find as finding
from sglforge.host.cuda import nvcc
from sglforge.host.cuda.choose import choose, judge
from sglforge.host.cuda.fingerprint import fingerprint
from sglforge.host.cuda.model import LOCKED, CudaToolkit
from sglforge.host.facts import FoundToolkit, from_json

Find = Callable[[], tuple[FoundToolkit, ...]]


@pytest.fixture(autouse=True)
def _no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin-that-is-not-there")
    monkeypatch.setattr("sys.path", [])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def find(root: Path) -> Find:
    return lambda: finding.find(proc.run, root=root)


def only(found: tuple[FoundToolkit, ...]) -> FoundToolkit:
    (one,) = found
    return one


def test_a_machine_without_any(find: Find) -> None:
    assert find() == ()


def test_one_folder_under_many_names_comes_once(find: Find, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_toolkit(root / "usr/local/cuda-13.0")
    (root / "usr/local/cuda").symlink_to("cuda-13.0")
    monkeypatch.setenv("CUDA_HOME", str(root / "usr/local/cuda"))
    monkeypatch.setenv("PATH", f"{home}/bin")
    found = only(find())
    assert (found.home, found.nvcc, found.problem) == (str(home), "13.0.88", None)
    assert found.origin.startswith("CUDA_HOME, nvcc on PATH, ")


def test_what_is_named_comes_before_what_is_only_there(
    find: Find, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("12.9.86", "13.0.88", "13.2.1"):
        write_toolkit(root / f"usr/local/cuda-{version.rpartition('.')[0]}", version=version)
    write_toolkit(root / "opt/cuda", version="12.0.1")
    write_toolkit(tmp_path / "conda", version="12.1.1")
    write_toolkit(tmp_path / "own", version="12.2.1")
    site = tmp_path / "venv/lib/python3.12/site-packages"
    write_toolkit(site / "nvidia/cu13", version="13.5.1")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "own"))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    versions = [found.nvcc for found in find()]
    assert versions == ["12.2.1", "13.2.1", "13.0.88", "12.9.86", "12.0.1", "12.1.1", "13.5.1"]


def spoil_file(home: Path) -> str:
    home.write_text("")
    return str(home)


def spoil_dangling(home: Path) -> str:
    home.symlink_to("/nowhere-at-all")
    return str(home)


def spoil_empty(home: Path) -> str:
    home.mkdir()
    return str(home)


def spoil_program(home: Path) -> str:
    (write_toolkit(home) / "bin/nvcc").chmod(0o644)
    return str(home)


def spoil_wrapper(home: Path) -> str:
    (home / "bin").mkdir(parents=True)
    (home / "bin/nvcc").write_text("#!/bin/sh\n")
    (home / "bin/nvcc").chmod(0o755)
    return str(home)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_file, "it is not a folder"),
        (spoil_dangling, "it is a link to /nowhere-at-all, which does not exist"),
        (spoil_empty, "it has no bin/nvcc"),
        (spoil_program, "its bin/nvcc cannot be run"),
        (spoil_wrapper, "its nvcc is a program that starts another one"),
        (lambda home: f":{write_toolkit(home)}", "it holds a `:`"),
        (lambda home: "cuda", "it is not the whole path of a folder"),
        (str, "it does not exist"),
    ],
)
def test_a_variable_that_names_no_toolkit(
    find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], str], words: str
) -> None:
    value = spoil(tmp_path / "home")
    monkeypatch.setenv("CUDA_HOME", value)
    found = only(find())
    assert (found.home, found.origin, found.nvcc) == (value, "CUDA_HOME", None)
    assert found.problem is not None
    assert found.problem.startswith(words)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("printf '\\001\\377garbage'; exit 3", "nvcc does not say its version but: "),
        ("exit 1", "nvcc does not say its version but: nothing (status 1)"),
        ("echo 'release 13.0'", "nvcc does not say its version but: release 13.0"),
    ],
)
def test_an_nvcc_that_says_nothing_of_use(find: Find, root: Path, script: str, words: str) -> None:
    home = write_toolkit(root / "usr/local/cuda")
    (home / "bin/nvcc").write_text(f"#!/bin/sh\n{script}\n")
    found = only(find())
    assert found.nvcc is None
    assert found.problem is not None
    assert found.problem.startswith(words)
    assert found.problem.isprintable()
    assert judge(found, RECIPE, [NEEDS]).why_not == found.problem


def test_an_nvcc_that_hangs_is_ended(find: Find, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "TIMEOUT_S", 0.3)
    home = write_toolkit(root / "usr/local/cuda")
    (home / "bin/nvcc").write_text("#!/bin/sh\nexec /bin/sleep 300\n")
    start = time.monotonic()
    assert (only(find()).problem or "").startswith("nvcc gives no answer in")
    assert time.monotonic() - start < 30


def test_facts_with_toolkits_are_read_back(find: Find, root: Path) -> None:
    write_toolkit(root / "usr/local/cuda")
    facts = from_json({"toolkits": [{"home": "/a", "origin": "CUDA_HOME", "nvcc": "13.0.88", "problem": None}]})
    assert facts.toolkits == (FoundToolkit(home="/a", origin="CUDA_HOME", nvcc="13.0.88"),)
    assert from_json({}).toolkits is None


def locked(workspace: Workspace) -> CudaToolkit:
    return CudaToolkit(
        home=workspace.toolkits / "f" / "cuda", origin=LOCKED, release="13.0", version="13.0.88", fingerprint="f" * 64
    )


def test_the_first_that_fits_is_taken_else_the_locks(find: Find, root: Path, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / "workspace")
    lock = locked(workspace)
    assert choose((), lock, workspace).why == "the lock's: this machine has none"
    write_toolkit(root / "usr/local/cuda-12.9", version="12.9.86")
    partial = write_toolkit(root / "usr/local/cuda-13.0")
    (partial / "include/cuda.h").unlink()
    judged = [judge(one, RECIPE, [NEEDS]) for one in find()]
    assert [one.why_not for one in judged] == ["it lacks header cuda.h", "its nvcc is not of release 13.0"]
    assert [one.incomplete for one in judged] == [True, False]
    assert choose(judged, lock, workspace).toolkit == lock
    whole = write_toolkit(root / "opt/cuda")
    chosen = choose([judge(one, RECIPE, [NEEDS]) for one in find()], lock, workspace).toolkit
    assert (chosen.home, chosen.release, chosen.version) == (whole, "13.0", "13.0.88")
    assert chosen.fingerprint == fingerprint(whole, workspace)
    assert not chosen.locked


def test_a_variable_that_names_the_locks_own_toolkit_changes_no_key(
    find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root=tmp_path / "workspace")
    lock = locked(workspace)
    monkeypatch.setenv("CUDA_HOME", str(write_toolkit(lock.home)))
    assert choose([judge(only(find()), RECIPE, [NEEDS])], lock, workspace).toolkit == lock


def test_a_fingerprint_moves_with_programs_and_headers_and_nothing_else(tmp_path: Path) -> None:
    workspace, home = Workspace(root=tmp_path / "workspace"), write_toolkit(tmp_path / "toolkit")
    first = fingerprint(home, workspace)
    assert fingerprint(home, workspace) == first
    (home / "lib64/libcudart.so").write_text("another")
    (home / "doc.txt").write_text("words")
    assert fingerprint(home, workspace) == first
    seen = {first}
    for name in ("include/cuda.h", "bin/nvcc", "nvvm/bin/cicc", "include/cccl/nv/target", "lib64/libcudadevrt.a"):
        path = home / name
        before = path.stat()
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])  # same size
        assert path.stat().st_size == before.st_size
        seen.add(fingerprint(home, workspace))
    (home / "include/new.h").write_text("")
    seen.add(fingerprint(home, workspace))
    assert len(seen) == 7
    moved = home.rename(tmp_path / "moved")
    assert fingerprint(moved, workspace) in seen


def test_a_damaged_note_of_a_fingerprint_is_no_fingerprint(tmp_path: Path) -> None:
    workspace, home = Workspace(root=tmp_path / "workspace"), write_toolkit(tmp_path / "toolkit")
    first = fingerprint(home, workspace)
    (note,) = (workspace.toolkits / "found").iterdir()
    for text in ("", "{}", "[1]", '{"seen": 1, "fingerprint": "f"}', "\0"):
        note.write_text(text)
        assert fingerprint(home, workspace) == first


def test_the_host_compilers_that_headers_take(tmp_path: Path) -> None:
    home = write_toolkit(tmp_path)
    assert nvcc.newest_gcc(home) == 15
    assert nvcc.newest_gcc(tmp_path / "nowhere") is None
    (home / "include/crt/host_config.h").write_text("nothing")
    assert nvcc.newest_gcc(home) is None
