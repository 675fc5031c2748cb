"""Real compilers, setuptools and nvcc: root here and a plain user there, at the same time, make the same bytes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from calling import ROOT, argv
from toy_catalog import MINOR, PIN, REQUIRES, write_catalog

from sglforge.artifacts.differences import differences
from sglforge.base.files import sha256_file
from sglforge.base.sandbox.namespaces import PLACE
from sglforge.base.sandbox.step import Sandbox
from sglforge.build.hooks import give
from sglforge.build.pep517 import SOURCE_DATE_EPOCH
from sglforge.host.package_index import read
from sglforge.provision.uv import open_uv
from sglforge.sources.paths import copy_folder, level

pytestmark = pytest.mark.integration

PACKAGES = Path(__file__).parents[1] / "packages"
RECIPE = """\
name = "extension"
description = "A C extension."
import-name = "extension_toy"
build-requires = ["setuptools>=77"]
"""
STACK = """
[packages.extension]
source = { kind = "path", path = "kernels/extension" }

[environments.cpu]
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can read; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def catalog(shared: Path) -> Path:
    root = write_catalog(shared / "catalog")
    copy_folder(PACKAGES / "extension-toy", root / "kernels" / "extension")
    (root / "recipes" / "packages" / "extension.toml").write_text(RECIPE)
    stack = root / "recipes" / "stacks" / "toys.toml"
    stack.write_text(stack.read_text().replace("\n[environments.cpu]\n", STACK))
    (pin,) = tomllib.loads((PACKAGES / "build-requires.toml").read_text())["setuptools-sdist"]
    (file,) = pin["files"]
    requires = REQUIRES.format(package="extension", file=file["name"], sha256=file["sha256"])
    requires = requires.replace('"pin"', '"setuptools"').replace('"1.0"', f'"{pin["version"]}"')
    lock = root / "locks" / "toys.cpu.lock.toml"
    lock.write_text(lock.read_text().replace("\n[[pythons]]\n", f"\n{requires}\n[[pythons]]\n"))
    assert PIN in lock.read_text()
    return root


@pytest.fixture
def user() -> Iterator[str]:
    """A plain user with a home, who can run this Python and read this checkout."""
    name = f"sglforge-{secrets.token_hex(4)}"
    subprocess.run(["useradd", "--create-home", name], check=True)
    try:
        probe = [sys.executable, "-c", "import sglforge.cli"]
        env = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            subprocess.run(probe, user=name, group=name, extra_groups=[], env=env, cwd="/", check=True)
        except (PermissionError, subprocess.CalledProcessError):
            pytest.skip("a plain user does not reach this Python or this checkout")
        yield name
    finally:
        subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)


def built(workspace: Path, catalog: Path, *, jobs: int, env: Mapping[str, str], **more: Any) -> dict[str, Any]:
    words = ("build", "extension", "--target", "cpu", "--catalog", catalog, "--jobs", str(jobs), "--json")
    done = subprocess.run(
        argv(*words, "--workspace", workspace),
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        **more,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def wheel_in(workspace: Path) -> Path:
    (wheel,) = (workspace / "store" / "objects").rglob("*.whl")
    return wheel


@needs_root
def test_a_c_extension_of_root_and_of_a_plain_user_is_the_same(catalog: Path, shared: Path, user: str) -> None:
    home = Path("~" + user).expanduser()
    ours, theirs = shared / "workspace of root", home / "w"
    strange = {"HOME": str(home), "LC_ALL": "C", "TZ": "Asia/Tokyo", "USER": user}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(built, ours, catalog, jobs=1, env={})
        second = pool.submit(
            built, theirs, catalog, jobs=4, env=strange, user=user, group=user, extra_groups=[], umask=0o077
        )
        documents = first.result(), second.result()
    if any("sandbox-incomplete" in str(document["findings"]) for document in documents):
        pytest.skip("no fixed place here, at least for a plain user")
    one, other = wheel_in(ours), wheel_in(theirs)
    assert differences(one, other) == ()
    assert sha256_file(one) == sha256_file(other)
    with zipfile.ZipFile(one) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        library = archive.read(name)
        archive.extract(name, shared)
    assert bytes(Path(PLACE, "work", "source")) in library
    script = "import extension_toy; print(*extension_toy.built(), sep='\\n')"
    said = subprocess.run([sys.executable, "-c", script], cwd=shared, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[1:] == ["Jan  1 1980", "Tue Jan  1 00:00:00 1980", "42"]


KERNEL = """
#include <cassert>
#include <cstdio>
#include "scaled.h"
namespace {
__device__ int counter;
__global__ void add(float *to, const float *from, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  assert(count > 0);
  if (at < count) to[at] = scaled(from[at]);
  if (at == 0) atomicAdd(&counter, 1);
}
}
void run(float *to, const float *from, int count) {
  std::printf("%s", __FILE__);
  add<<<(count + 255) / 256, 256>>>(to, from, count);
}
"""
HEADER = "static __host__ __device__ inline float scaled(float x) { return 2.0f * x; }"


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CUDA toolkit out of wheels: programs and headers, nothing else."""
    folder = tmp_path_factory.mktemp("toolkit")
    uv = open_uv(read())
    uv("venv", "--quiet", "--no-project", "--python", sys.executable, folder / "env")
    wanted = "cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.*"
    uv("pip", "install", "--quiet", "--python", folder / "env", "--no-build", wanted)
    home = folder / "env" / "lib" / f"python{MINOR}" / "site-packages" / "nvidia" / "cu13"
    assert (home / "bin" / "nvcc").is_file()
    return home


def compiled(toolkit: Path, parent: Path, name: str, *, user: int | None = None) -> tuple[bytes, bool]:
    """Return the object of a kernel, and whether it was compiled at the fixed place."""
    folder = parent / name
    (folder / "tmp").mkdir(parents=True)
    (folder / "kernel.cu").write_text(KERNEL)
    (folder / "scaled.h").write_text(HEADER)
    level(folder, time_s=SOURCE_DATE_EPOCH)  # -lineinfo writes down the times of files
    give(folder, user)
    sandbox = Sandbox(folders=(folder,), fixed={"work": folder, "cuda": toolkit}, user=user)
    if not sandbox.placed:
        return b"", False
    cuda = sandbox.seen(toolkit)
    flags = ("-gencode=arch=compute_120f,code=sm_120f", "-O2", "-g", "-lineinfo", "--objdir-as-tempdir")
    sandbox(
        [cuda / "bin" / "nvcc", "-c", sandbox.seen(folder / "kernel.cu"), "-o", "kernel.o", *flags],
        cwd=folder,
        env={"PATH": f"{cuda}/bin:/usr/bin:/bin", "TMPDIR": str(sandbox.seen(folder / "tmp"))},
        timeout_s=300.0,
    )
    return (folder / "kernel.o").read_bytes(), True


def test_cuda_objects_are_the_same_in_other_folders(toolkit: Path, shared: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    elsewhere = 65534 if os.geteuid() == 0 else None
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(compiled, toolkit, shared, "one")
        second = pool.submit(compiled, toolkit, shared, "a longer name", user=elsewhere)
        (one, placed), (other, also) = first.result(), second.result()
    if not (placed and also):
        pytest.skip("no fixed place here")
    assert one == other
    assert bytes(Path(PLACE, "work", "kernel.cu")) in one
