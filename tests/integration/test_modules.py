"""FlashInfer's kernels for SM120, compiled for real with the lock's CUDA toolkit: built, loaded, edited, kept.

What is compiled here never runs: that takes the GPU.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from calling import ROOT, Called, call

from sglforge.base.workspace import Workspace
from sglforge.build.modules.environment import make_environment
from sglforge.config.lockfile import lock_path, read_lock
from sglforge.host import package_index
from sglforge.provision.make import install_torch
from sglforge.provision.progress import silent
from sglforge.provision.python import running_interpreter
from sglforge.provision.uv import open_uv
from sglforge.sources.unpack import unpack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(5400)]

BUILD = ("build", "flashinfer", "--target", "sm120", "--modules", "minimal")
MODULES = 9
CHILD = Path(__file__).parent / "child" / "load_modules.py"


@pytest.fixture(scope="module")
def flashinfer(workspace: Path) -> Called:
    done = call(*BUILD, workspace=workspace, timeout_s=5000)
    assert done.code == 0, done.talk
    return done


@pytest.fixture(scope="module")
def wheel(flashinfer: Called, workspace: Path) -> Path:
    return stored(flashinfer, workspace)[1]


def stored(done: Called, workspace: Path) -> tuple[Mapping[str, Any], Path]:
    """Return the entry and the wheel that a build of one package made or found."""
    plan = done.document["plan"]
    assert isinstance(plan, dict)
    (key,) = [step["key"] for step in plan["steps"] if step["package"] == "flashinfer"]
    entry = json.loads((workspace / "store" / "entries" / f"{key}.json").read_text())
    path = workspace / "store" / "objects" / entry["wheel"]["sha256"] / entry["wheel"]["name"]
    assert path.is_file()
    return entry, path


def told(wheel: Path) -> Mapping[str, Any]:
    """Return what a wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/sglforge.json")]
        document = json.loads(archive.read(name))
    assert isinstance(document, dict)
    return document


def libraries(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {Path(name).stem: archive.read(name) for name in archive.namelist() if "/data/aot/" in name}


def test_the_wheel_has_the_modules_and_says_what_was_done(wheel: Path) -> None:
    assert wheel.name.endswith(".minimal-py3-none-linux_x86_64.whl")
    modules = told(wheel)["modules"]
    assert (modules["set"], modules["architectures"], modules["scope"]) == ("minimal", ["12.0f"], "compiled")
    assert set(libraries(wheel)) == set(modules["names"])
    assert len(modules["names"]) == MODULES


def test_a_second_build_has_nothing_to_do(flashinfer: Called, workspace: Path) -> None:
    again = call(*BUILD, workspace=workspace)
    steps = again.document["steps"]
    assert isinstance(steps, list)
    assert [step["state"] for step in steps] == ["hit"]


def test_flashinfer_loads_them_and_compiles_nothing(wheel: Path, workspace: Path, tmp_path: Path) -> None:
    locked = read_lock(lock_path(ROOT, "main", "sm120")).modules["flashinfer"]
    python, uv, log = running_interpreter(), open_uv(package_index.read()), tmp_path / "log"
    environment, place = tmp_path / "environment", Workspace(root=workspace)
    make_environment(environment, locked.requirements, python.path, uv, tmp_path, log)
    install_torch(
        locked.torch,
        python.minor,
        ["--python", environment],
        folder=environment,
        uv=uv,
        workspace=place,
        log=log,
        progress=silent,
    )
    tree, driver = unpack(wheel, tmp_path / "tree"), tmp_path / "driver"
    (toolkit,) = place.toolkits.glob("*/cuda")
    driver.mkdir()
    (driver / "libcuda.so.1").symlink_to(toolkit / "lib64" / "stubs" / "libcuda.so")
    done = subprocess.run(
        [environment / "bin" / "python", "-B", CHILD, "topk"],
        env={
            "PATH": f"{toolkit}/bin:{environment}/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(tree),
            "LD_LIBRARY_PATH": f"{toolkit}/lib64:{driver}",
            "CUDA_HOME": str(toolkit),
            "FLASHINFER_CUDA_ARCH_LIST": "12.0f",
            "FLASHINFER_WORKSPACE_BASE": str(tmp_path / "jit"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("topk") == "MissingJITCacheError", "it is in no module of the set"
    assert said == dict.fromkeys(told(wheel)["modules"]["names"], "loaded")
    assert not list((tmp_path / "jit").rglob("*.so"))


TOPIC = """
description = "A mark in one kernel, for a test."
origin = "sglforge"
reason = "A topic that reaches one module must compile one module."
reference = "flashinfer/data/csrc"
forwarded = "no"
versions = "==0.7.2"
superseded = "Never: it is a test."

[[edits]]
kind = "text"
file = "csrc/page.cu"
operation = "insert-before"
anchor = "using namespace flashinfer;"
payload = "payload/mark.cu"
"""


def catalog_with(payload: str, folder: Path) -> Path:
    """Return a copy of the catalog with a topic that puts a text into one kernel source."""
    for name in ("recipes", "patches", "locks", "templates", "kernels", "models"):
        shutil.copytree(ROOT / name, folder / name)
    topic = folder / "patches" / "flashinfer" / "mark"
    (topic / "payload").mkdir(parents=True)
    (topic.parent / "series.toml").write_text('topics = ["mark"]\n')
    (topic / "patch.toml").write_text(TOPIC)
    (topic / "payload" / "mark.cu").write_text(payload)
    return folder


def test_a_topic_on_one_source_compiles_one_module(wheel: Path, workspace: Path, tmp_path: Path) -> None:
    catalog = catalog_with('extern "C" int sglforge_mark() { return 7; }\n', tmp_path / "catalog")
    done = call(*BUILD, "--catalog", catalog, workspace=workspace, timeout_s=3000)
    assert done.code == 0, done.talk
    entry, patched = stored(done, workspace)
    assert entry["provenance"]["compiled"]["modules"] == ["page"]
    before, after = libraries(wheel), libraries(patched)
    assert {name for name in after if after[name] != before[name]} == {"page"}
    assert b"sglforge_mark" in after["page"]


def test_an_error_in_a_source_is_told_with_its_place(wheel: Path, workspace: Path, tmp_path: Path) -> None:
    catalog = catalog_with("int broken() { return not_declared; }\n", tmp_path / "catalog")
    done = call(*BUILD, "--catalog", catalog, workspace=workspace, timeout_s=3000)
    assert done.codes == {"module-compile-failed"}
    assert "module page of flashinfer does not compile: flashinfer/data/csrc/page.cu:" in done.talk
    assert "not_declared" in done.talk
