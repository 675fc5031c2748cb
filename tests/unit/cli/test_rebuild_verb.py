"""`rebuild` on toy packages that really build: the same bytes, other bytes, nothing to compare with."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from calling import Called, call
from toy_catalog import PIN, REQUIRES, offline, write_catalog

from sglforge.base.files import sha256_file
from sglforge.sources.paths import copy_folder

TOY = Path(__file__).parents[2] / "packages" / "compiled-toy"
RECIPE = """\
name = "compiled"
description = "A toy that is compiled."
import-name = "compiled_toy"
build-requires = ["pin"]
"""
STACK = """
[packages.compiled]
source = { kind = "path", path = "kernels/compiled" }

[environments.cpu]
"""

Sglforge = Callable[..., Called]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    root = write_catalog(tmp_path / "catalog")
    copy_folder(TOY, root / "kernels" / "compiled")
    (root / "recipes" / "packages" / "compiled.toml").write_text(RECIPE)
    stack = root / "recipes" / "stacks" / "toys.toml"
    stack.write_text(stack.read_text().replace("\n[environments.cpu]\n", STACK))
    lock = root / "locks" / "toys.cpu.lock.toml"
    pin = REQUIRES.format(package="compiled", file=PIN, sha256=sha256_file(root / "links" / PIN))
    lock.write_text(lock.read_text().replace("\n[[pythons]]\n", f"\n{pin}\n[[pythons]]\n"))
    return root


@pytest.fixture
def sglforge(catalog: Path, tmp_path: Path) -> Sglforge:
    def run(*words: str) -> Called:
        return call(
            *words, "--catalog", catalog, "--target", "cpu", workspace=tmp_path / "workspace", env=offline(catalog)
        )

    return run


def state(root: Path) -> Mapping[str, tuple[int, ...]]:
    """Return all that can change of a store: names, sizes, times, inodes, modes."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode, status.st_nlink)
    return found


def packages(called: Called) -> dict[str, dict[str, Any]]:
    found = called.document["packages"]
    assert isinstance(found, list)
    return {package["package"]: package for package in found}


def test_wheels_that_are_made_again_alike_are_proven(sglforge: Sglforge, tmp_path: Path) -> None:
    assert sglforge("build", "base", "engine", "compiled").code == 0
    before = state(tmp_path / "workspace" / "store")
    done = sglforge("rebuild")
    assert done.code == 0, done.talk
    assert done.document["verdict"] in {"pass", "warn"}
    found = packages(done)
    assert found.keys() == {"base", "engine", "compiled"}
    for package in found.values():
        assert package["same"]
        assert package["stored"] == package["rebuilt"]
        assert package["differences"] == []
        assert (package["user"] == "nobody") or package["user"].startswith("the same")
    assert state(tmp_path / "workspace" / "store") == before
    assert not list((tmp_path / "workspace" / "scratch").iterdir())


def test_a_wheel_that_is_another_each_time_is_shown_byte_by_byte(
    sglforge: Sglforge, catalog: Path, tmp_path: Path
) -> None:
    (catalog / "kernels" / "compiled" / "luck.txt").touch()
    assert sglforge("build", "compiled").code == 0
    before = state(tmp_path / "workspace" / "store")
    done = sglforge("rebuild", "compiled")
    assert done.code == 7
    assert done.document["verdict"] == "fail"
    assert "not-reproducible" in done.codes
    found = packages(done)["compiled"]
    assert not found["same"]
    (library,) = found["differences"]
    assert (library["file"], library["kind"]) == ("compiled_toy/libtoy.so", "content")
    assert library["sizes"][0] == library["sizes"][1]
    rodata = [change for change in library["changes"] if change["section"] == ".rodata"]
    assert rodata
    stored = next((tmp_path / "workspace" / "store" / "objects").rglob("*.whl"))
    with zipfile.ZipFile(stored) as archive:
        content = archive.read("compiled_toy/libtoy.so")
    for change in rodata:
        first, second = bytes.fromhex(change["first"]), bytes.fromhex(change["second"])
        assert content[change["offset"] : change["offset"] + len(first)] == first
        assert first != second
    assert "compiled_toy/libtoy.so" in done.talk
    assert "in .rodata" in done.talk
    assert state(tmp_path / "workspace" / "store") == before


def test_what_is_not_in_the_store_cannot_be_compared(sglforge: Sglforge) -> None:
    done = sglforge("rebuild", "compiled")
    assert (done.code, done.codes) == (7, {"wheels-not-built"})
    assert "build -- " in done.talk
    assert sglforge("rebuild", "nothing").codes == {"unknown-package"}


def test_a_damaged_wheel_proves_nothing(sglforge: Sglforge, tmp_path: Path) -> None:
    assert sglforge("build", "base").code == 0
    wheel = next((tmp_path / "workspace" / "store" / "objects").rglob("*.whl"))
    content = bytearray(wheel.read_bytes())
    content[100] ^= 1
    wheel.chmod(0o644)
    wheel.write_bytes(content)
    done = sglforge("rebuild", "base")
    assert (done.code, done.codes) == (9, {"store-damaged"})
    assert wheel.read_bytes() == content


@pytest.mark.skipif(os.geteuid() != 0, reason="only root builds as somebody else")
def test_a_build_that_fails_is_told_as_one(sglforge: Sglforge, catalog: Path, tmp_path: Path) -> None:
    """A package that asks who it is fails under another user: the stage's own error, and the store stays."""
    backend = catalog / "kernels" / "compiled" / "compiled_backend.py"
    backend.write_text(
        backend.read_text().replace("    tag = ", "    os.getuid() and sys.exit('not root')\n    tag = ")
    )
    assert sglforge("build", "compiled").code == 0
    before = state(tmp_path / "workspace" / "store")
    done = sglforge("rebuild", "compiled")
    if done.code == 0:
        pytest.skip("no other user here")
    assert (done.code, done.codes) == (7, {"build-backend-failed"})
    assert "not root" in done.talk
    assert state(tmp_path / "workspace" / "store") == before
