"""Folders that kernels are compiled into: named as the real programs name them, and what is new in them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from shared_objects import shared_object

from sglforge.base import proc
from sglforge.errors import Severity
from sglforge.smoke.observe.jit import (
    JitFolder,
    Snapshot,
    changes,
    file_kind,
    folders_of,
    jit_folders,
    judge_jit,
    module_name,
    snapshot,
)
from sglforge.smoke.observe.processes import environment_of


def paths(*environments: dict[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for folder in jit_folders(environments, home="/home/u", user="u"):
        found.setdefault(folder.owner, set()).add(folder.path)
    return found


def test_the_defaults_of_all_versions_without_any_variable() -> None:
    found = paths({})
    assert found["flashinfer"] == {"/home/u/.cache/flashinfer", "/home/u/.cache/sglang/.cache/flashinfer"}
    assert found["triton"] == {"/home/u/.triton/cache", "/home/u/.cache/sglang/triton"}
    assert found["inductor"] == {"/tmp/torchinductor_u", "/home/u/.cache/sglang/inductor"}
    assert found["deep-gemm"] == {"/home/u/.cache/deep_gemm", "/home/u/.cache/sglang/deep_gemm"}
    assert found["driver"] == {"/home/u/.nv/ComputeCache", "/home/u/.cache/sglang/nv"}
    assert found["torch-extensions"] == {"/home/u/.cache/torch_extensions"}
    assert found["sgl-jit"] == {"/home/u/.cache/sglang/jit"}
    assert found["tvm-ffi"] == {"/home/u/.cache/tvm-ffi"}


def test_a_variable_of_a_child_replaces_the_default_for_all() -> None:
    found = paths({"HOME": "/h"}, {"HOME": "/h", "TRITON_CACHE_DIR": "/t", "FLASHINFER_WORKSPACE_BASE": "/f"})
    assert found["triton"] == {"/t", "/h/.cache/sglang/triton"}
    assert found["flashinfer"] == {"/f/.cache/flashinfer", "/h/.cache/sglang/.cache/flashinfer"}


def test_homes_and_bases_move_what_lies_below_them() -> None:
    found = paths(
        {"HOME": "/h", "SGLANG_CACHE_DIR": "~/s", "TRITON_HOME": "/th", "XDG_CACHE_HOME": "/x", "TMPDIR": "/v"}
    )
    assert "/h/s/triton" in found["triton"]
    assert "/th/.triton/cache" in found["triton"]
    assert found["torch-extensions"] == {"/x/torch_extensions"}
    assert "/v/torchinductor_u" in found["inductor"]
    assert found["sgl-jit"] == {"/h/.cache/sglang/jit"}  # SGLang does not derive this one


def test_two_values_of_one_variable_are_both_watched() -> None:
    assert {"/a", "/b"} <= paths({"TRITON_CACHE_DIR": "/a"}, {"TRITON_CACHE_DIR": "/b"})["triton"]


def test_folders_of_a_real_process(tmp_path: Path) -> None:
    service = proc.spawn(["sleep", "30"], log=tmp_path / "log", env={"TVM_FFI_CACHE_DIR": str(tmp_path / "ffi")})
    try:
        deadline = time.monotonic() + 20
        while not environment_of(service.pid):  # a program that has just begun has none yet
            assert time.monotonic() < deadline
        found = {folder.owner: folder for folder in folders_of([service.pid])}
    finally:
        service.stop(grace_s=0.0)
    expected = JitFolder(owner="tvm-ffi", path=str(tmp_path / "ffi"), source="TVM_FFI_CACHE_DIR")
    assert found["tvm-ffi"] == expected


FILES = [
    ("flashinfer", "0.7.2/120f/cached_ops/batch_decode_bf16/batch_decode_bf16.so", "product", "batch_decode_bf16"),
    ("flashinfer", "0.7.2/120f/cached_ops/page/page.o", "product", "page"),
    ("flashinfer", "0.7.2/120f/cached_ops/page/.ninja_log", "log", "page"),
    ("flashinfer", "0.7.2/120f/cached_ops/tmp/page.lock", "lock", "tmp"),
    ("flashinfer", "0.7.2/120f/generated/page/config.inc", "other", "page"),
    ("flashinfer", "0.7.2/120f/flashinfer_jit.log", "log", "flashinfer_jit"),
    ("flashinfer", "cubins/abc/fmhaSm120.cubin", "product", "fmhaSm120"),
    ("triton", "QX7A/_fwd_kernel.cubin", "product", "_fwd_kernel"),
    ("triton", "QX7A/__grp___fwd_kernel.json", "other", "_fwd_kernel"),
    ("triton", "QX7A/cuda_utils.cpython-311-x86_64-linux-gnu.so", "product", "cuda_utils"),
    ("triton", "QX7A/lock", "lock", "lock"),
    ("inductor", "ab/cabcd.main.cpp", "other", "cabcd.main"),
    ("inductor", "triton/0/QX7A/triton_poi_fused_add_0.cubin", "product", "triton_poi_fused_add_0"),
    ("inductor", "fxgraph/ab/fabcd/n6x", "product", "n6x"),
    ("inductor", "locks/fabcd.lock", "lock", "fabcd"),
    ("sgl-jit", "sm120f/sgl_kernel_jit_norm/build-1/deps-2/sgl_kernel_jit_norm.so", "product", "sgl_kernel_jit_norm"),
    ("tvm-ffi", "sgl_kernel_jit_norm_0a1b/main.so", "product", "sgl_kernel_jit_norm_0a1b"),
    ("deep-gemm", "cache/kernel.fp8_gemm_nt.0a1b/kernel.cubin", "product", "fp8_gemm_nt"),
    ("torch-extensions", "py311_cu130/cuda_ext/cuda_ext.so", "product", "cuda_ext"),
    ("cute", "0a1b/flash_fwd/2c3d.o", "product", "flash_fwd"),
    ("driver", "0/1/0123456789abcdef", "product", "kernels from PTX"),
    ("driver", "index", "other", "kernels from PTX"),
    ("sglang", "rust_extensions/artifacts/sglang-tree/0a1b/tree.cpython-311.so", "product", "sglang-tree"),
    ("sglang", "torch_compile_cache/0a/rank_0_0/triton_cache/QX7A/red_fused.cubin", "product", "red_fused"),
    ("sglang", "flashinfer/autotune/0.7.2/sm120/0a1b/tactics.json", "other", "0a1b"),
    ("tilelang", "0a1b/kernel_lib.so", "product", "0a1b"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "path", "kind", "module"), FILES)
def test_a_file_and_its_module_by_the_path(owner: str, path: str, kind: str, module: str) -> None:
    assert (file_kind(owner, PurePath(path)), module_name(owner, PurePath(path))) == (kind, module)


@given(
    owner=st.sampled_from(sorted({owner for owner, *_ in FILES})),
    parts=st.lists(
        st.sampled_from(["cached_ops", "triton", "kernel.a", "a.so", "rust_extensions", "lock", ".so", "generated"]),
        min_size=1,
        max_size=5,
    ),
)
def test_any_path_has_a_kind_and_a_name(owner: str, parts: list[str]) -> None:
    path = PurePath(*parts)
    assert file_kind(owner, path) in {"product", "lock", "log", "other"}
    assert isinstance(module_name(owner, path), str)


def watched(tmp_path: Path) -> tuple[JitFolder, ...]:
    return (
        JitFolder(owner="sglang", path=str(tmp_path / "cache"), source="SGLANG_CACHE_DIR"),
        JitFolder(owner="flashinfer", path=str(tmp_path / "cache/.cache/flashinfer"), source="SGLANG_CACHE_DIR"),
    )


def write(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_a_module_that_gcc_makes_is_found_and_named(tmp_path: Path) -> None:
    folders = watched(tmp_path)
    ops = tmp_path / "cache/.cache/flashinfer/0.7.2/120f/cached_ops"
    shared_object(ops / "old/old.so")
    before = snapshot(folders)
    built = shared_object(ops / "sampling/sampling.so")
    write(ops / "sampling/build.log")
    write(ops / "tmp/sampling.lock")
    found = changes(before, snapshot(folders))
    assert found.modules == (("flashinfer", "sampling"),)
    (product,) = (file for file in found.files if file.kind == "product")
    assert (product.path, product.new, product.size) == (str(built), True, built.stat().st_size)
    assert len(found.files) == 3
    finding = judge_jit(found)
    assert finding is not None
    assert (finding.code, finding.severity) == ("jit-at-run-time", Severity.ERROR)
    assert "flashinfer: sampling" in finding.message
    assert str(built) in finding.detail


def test_nothing_new_is_no_finding_and_neither_are_logs_and_locks(tmp_path: Path) -> None:
    folders = watched(tmp_path)
    write(tmp_path / "cache/.cache/flashinfer/a/cached_ops/m/m.so")
    before = snapshot(folders)
    assert changes(before, snapshot(folders)).files == ()
    write(tmp_path / "cache/.cache/flashinfer/a/cached_ops/m/m.log")
    write(tmp_path / "cache/x.lock")
    found = changes(before, snapshot(folders))
    assert [file.kind for file in found.files] == ["log", "lock"]
    assert judge_jit(found) is None


def test_what_a_cache_is_filled_with_is_no_finding(tmp_path: Path) -> None:
    folders = (*watched(tmp_path), JitFolder(owner="triton", path=str(tmp_path / "t"), source="TRITON_CACHE_DIR"))
    before = snapshot(folders)
    write(tmp_path / "t/QX7A/_fwd_kernel.cubin")
    found = changes(before, snapshot(folders))
    assert found.modules == (("triton", "_fwd_kernel"),)
    assert judge_jit(found) is None


def test_products_are_told_from_the_rest_and_by_their_time(tmp_path: Path) -> None:
    ops = tmp_path / "cache/.cache/flashinfer/a/cached_ops"
    os.utime(write(ops / "old/old.so"), (1000.0, 1000.0))
    os.utime(write(ops / "new/new.so"), (2000.0, 2000.0))
    write(ops / "new/build.log")
    seen = snapshot(watched(tmp_path))
    assert set(seen.products().files) == {str(ops / "old/old.so"), str(ops / "new/new.so")}
    assert seen.modules_since(1500.0) == (("flashinfer", "new"),)
    assert seen.modules_since(2000.5) == ()


def test_a_product_that_was_written_again(tmp_path: Path) -> None:
    folders = watched(tmp_path)
    product = write(tmp_path / "cache/.cache/flashinfer/a/cached_ops/m/m.so")
    before = snapshot(folders)
    os.utime(product, ns=(0, time.time_ns() + 10**9))
    (file,) = changes(before, snapshot(folders)).files
    assert (file.new, file.module) == (False, "m")


def test_a_folder_that_did_not_exist_is_empty(tmp_path: Path) -> None:
    before = snapshot(watched(tmp_path))
    assert before.files == {}
    assert before.unreadable == ()
    write(tmp_path / "cache/.cache/flashinfer/a/cached_ops/m/m.so")
    assert changes(before, snapshot(watched(tmp_path))).modules == (("flashinfer", "m"),)


def test_a_folder_that_only_the_second_snapshot_knows_is_an_open_question(tmp_path: Path) -> None:
    other = JitFolder(owner="triton", path=str(tmp_path / "triton"), source="TRITON_CACHE_DIR")
    write(tmp_path / "triton/Q/k.cubin")
    before = snapshot(watched(tmp_path))
    found = changes(before, snapshot((*watched(tmp_path), other)))
    assert found.files == ()
    assert found.unreadable == (other.path,)


def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cache/a.so")
    scandir = os.scandir

    def refuse(path: str) -> os.DirEntry[str] | object:
        if path.endswith("/cache"):
            raise PermissionError(13, "refused", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert snapshot(watched(tmp_path)).unreadable == (str(tmp_path / "cache"),)


def test_a_name_that_is_no_text_can_be_written_down(tmp_path: Path) -> None:
    before = snapshot(watched(tmp_path))
    write(tmp_path / "cache" / os.fsdecode(b"\xff.so"))
    (file,) = changes(before, snapshot(watched(tmp_path))).files
    file.path.encode()
    assert file.kind == "product"


def test_a_snapshot_survives_json(tmp_path: Path) -> None:
    write(tmp_path / "cache/.cache/flashinfer/a/cached_ops/m/m.so")
    after = snapshot(watched(tmp_path))
    assert TypeAdapter(Snapshot).validate_python(json.loads(json.dumps(asdict(after)))) == after
