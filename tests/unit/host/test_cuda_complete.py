"""A toolkit that lacks a file is told from a whole one, with the file's name and where it is instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_toolkit import NEEDS, SYMBOLS, write_toolkit

from sglforge.config.load import load_catalog
from sglforge.host.cuda.complete import lacking, summary

FILES = {
    "bin/nvcc": ("program", "nvcc"),
    "bin/cuobjdump": ("program", "cuobjdump"),
    "nvvm/bin/cicc": ("program", "cicc"),
    "bin/nvcc.profile": ("file", "bin/nvcc.profile"),
    "nvvm/libdevice/libdevice.10.bc": ("file", "nvvm/libdevice/libdevice.10.bc"),
    "include/cuda.h": ("header", "cuda.h"),
    "include/cccl/nv/target": ("header", "nv/target"),
    "lib64/libcudart.so": ("library", "cudart"),
    "lib64/libcudadevrt.a": ("library", "cudadevrt"),
    "lib64/stubs/libcuda.so": ("stub", "cuda"),
}
ROOT = Path(__file__).parents[3]


def test_a_whole_toolkit_lacks_nothing(tmp_path: Path) -> None:
    assert lacking(write_toolkit(tmp_path), [NEEDS], SYMBOLS) == ()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gone=st.sets(st.sampled_from(sorted(FILES))))
def test_exactly_what_is_gone_is_told(tmp_path: Path, gone: set[str]) -> None:
    home = tmp_path / "toolkit"
    shutil.rmtree(home, ignore_errors=True)
    write_toolkit(home)
    for name in gone:
        (home / name).unlink()
    lacks = lacking(home, [NEEDS, NEEDS], SYMBOLS)
    assert {(lack.kind, lack.name) for lack in lacks} == {FILES[name] for name in gone}
    assert len(lacks) == len(gone)
    assert all(lack.name in summary(lacks) for lack in lacks)


def test_a_folder_in_the_place_of_a_file_and_a_program_that_cannot_run(tmp_path: Path) -> None:
    home = write_toolkit(tmp_path)
    (home / "include/cuda.h").unlink()
    (home / "include/cuda.h").mkdir()
    (home / "bin/cuobjdump").chmod(0o644)
    assert summary(lacking(home, [NEEDS], SYMBOLS)) == "program cuobjdump (not executable); header cuda.h"


def test_an_empty_stub_is_none(tmp_path: Path) -> None:
    home = write_toolkit(tmp_path)
    (home / "lib64/stubs/libcuda.so").write_text("\0cuInit\0cuMemAlloc_v2_more\0")
    assert summary(lacking(home, [NEEDS], SYMBOLS)) == "stub cuda (without cuMemAlloc_v2)"
    (home / "lib64/stubs/libcuda.so").write_text("")
    assert summary(lacking(home, [NEEDS], [*SYMBOLS, "cuA", "cuB"])) == (
        "stub cuda (without cuInit, cuMemAlloc_v2, cuA and 1 more)"
    )


def test_the_layout_of_conda(tmp_path: Path) -> None:
    home = write_toolkit(tmp_path)
    (home / "targets/x86_64-linux").mkdir(parents=True)
    (home / "include").rename(home / "targets/x86_64-linux/include")
    (home / "lib64").rename(home / "targets/x86_64-linux/lib")
    assert summary(lacking(home, [NEEDS], SYMBOLS)) == (
        "headers cuda.h, nv/target (in targets/x86_64-linux, where builds do not look); "
        "libraries cudart, cudadevrt (in targets/x86_64-linux/lib, builds look into lib64); "
        "stub cuda (in targets/x86_64-linux, where builds do not look)"
    )


def test_the_layout_of_wheels(tmp_path: Path) -> None:
    home = write_toolkit(tmp_path)
    (home / "lib64").rename(home / "lib")
    (home / "lib/libcudart.so").rename(home / "lib/libcudart.so.13")
    assert summary(lacking(home, [NEEDS], SYMBOLS)) == (
        "library cudart (in lib, without the lib*.so to link with); "
        "library cudadevrt (in lib, builds look into lib64); "
        "stub cuda (in lib, where builds do not look)"
    )


@pytest.mark.parametrize("package", ["flashinfer", "sgl-kernel"])
def test_shipped_recipes_say_what_they_take(package: str) -> None:
    catalog = load_catalog(ROOT)
    needs = catalog.packages[package].cuda
    toolkit = catalog.toolkit(catalog.target("sm120"))
    assert needs
    assert toolkit
    assert {"cublas_v2.h", "curand_kernel.h", "nvrtc.h"} <= set(needs.headers)
    assert "cuobjdump" in toolkit.cuda.programs
    assert toolkit.cuda.stubs == ["cuda"]
