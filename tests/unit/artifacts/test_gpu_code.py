"""Architectures of GPU code: their order, our reader of containers, and which file is loaded where."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from gpu_files import container, cubin, entry, library
from hypothesis import given, settings
from hypothesis import strategies as st

from sglforge.artifacts import fatbin
from sglforge.artifacts.architectures import Architecture, parse
from sglforge.artifacts.elf import Elf, opened, read_elf
from sglforge.artifacts.fatbin import Reading, read_cubin, read_device_code
from sglforge.artifacts.loader import not_loaded


def arch(text: str) -> Architecture:
    found = parse(text)
    assert found
    return found


@pytest.mark.parametrize(
    ("code", "runs", "does_not"),
    [
        ("sm_120", ["12.0", "12.1"], ["10.0", "9.0", "13.0"]),
        ("sm_120f", ["12.0", "12.1"], ["10.0", "11.0"]),
        ("sm_120a", ["12.0"], ["12.1", "10.0"]),
        ("sm_121f", ["12.1"], ["12.0"]),
        ("sm_80", ["8.0", "8.6", "8.9"], ["9.0", "12.0"]),
        ("sm_90a", ["9.0"], ["10.0"]),
        ("sm_100f", ["10.0", "10.3"], ["11.0", "12.0"]),
    ],
)
def test_machine_code_runs_on(code: str, runs: list[str], does_not: list[str]) -> None:
    assert [gpu for gpu in (*runs, *does_not) if arch(code).runs_on(arch(gpu))] == runs


@pytest.mark.parametrize(
    ("code", "compiles", "does_not"),
    [
        ("compute_90", ["9.0", "10.0", "12.0"], ["8.9"]),
        ("compute_90a", ["9.0"], ["12.0"]),
        ("compute_120f", ["12.0", "12.1"], ["13.0"]),
        ("compute_121", ["12.1", "13.0"], ["12.0"]),
    ],
)
def test_ptx_compiles_for(code: str, compiles: list[str], does_not: list[str]) -> None:
    assert [gpu for gpu in (*compiles, *does_not) if arch(code).compiles_for(arch(gpu))] == compiles


@pytest.mark.parametrize(
    ("text", "name"),
    [("12.0f", "sm_120f"), ("sm_90a", "sm_90a"), ("compute_120", "sm_120"), ("100", "sm_100"), ("8.6+PTX", "sm_86")],
)
def test_spellings(text: str, name: str) -> None:
    assert arch(text).name == name


@pytest.mark.parametrize("text", ["", "sm_", "12", "native", "sm_120x", "1.2.3", "12.0ff"])
def test_what_is_no_architecture(text: str) -> None:
    assert parse(text) is None or text == "12"


def reading(path: Path) -> Reading:
    with opened(path) as data:
        return read_device_code(data, read_elf(data))


def held(found: Reading) -> list[str]:
    return [f"{one.unit} {one.kind} {one.architecture.name}" for one in found.codes]


def test_every_entry_of_every_container_is_read(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so", container("120f", "90a", "ptx:120"), container("100f", entry("120a", body=b"")))
    found = reading(path)
    assert found.unsure == ()
    assert found.units == 2
    assert held(found) == ["0 sass sm_120f", "0 sass sm_90a", "0 ptx sm_120", "1 sass sm_100f", "1 sass sm_120a"]


def test_a_library_of_the_host_has_none(tmp_path: Path) -> None:
    assert reading(library(tmp_path / "a.so")) == Reading()


@pytest.mark.parametrize("flags", [0x2011, 0x8011, 0x1008013])
def test_compressed_and_debug_entries_tell_it_too(tmp_path: Path, flags: int) -> None:
    found = reading(library(tmp_path / "a.so", container(entry("120f", flags=flags))))
    assert (held(found), found.unsure) == (["0 sass sm_120f"], ())


@pytest.mark.parametrize(
    ("containers", "registered", "why"),
    [
        ([container("120f")], 2, "2 containers are registered, 1 were found"),
        ([container(entry("120f", flags=0x4000011))], None, "flags 0x4200011"),
        ([container(entry("120f", flags=0x300011))], None, "flags 0x300011"),
        ([container("120f")[:-8]], None, "something else than a container"),
        ([b"\x50\xed\x55\xba\x02\x00\x10\x00" + bytes(64)], None, "something else than a container"),
        ([b"something else entirely" + bytes(41)], None, "something else than a container"),
        ([struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 80) + entry("120f", body=bytes(900))], None, "ends behind"),
        ([struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 88) + entry("120f") + bytes(8)], None, "beside its last entry"),
    ],
)
def test_what_is_not_understood_is_said(
    tmp_path: Path, containers: list[bytes], registered: int | None, why: str
) -> None:
    found = reading(library(tmp_path / "a.so", *containers, registered=registered))
    assert why in "; ".join(found.unsure)


def test_an_unknown_kind_is_not_understood(tmp_path: Path) -> None:
    odd = bytearray(entry("120f"))
    odd[0] = 16
    found = reading(library(tmp_path / "a.so", container(bytes(odd))))
    assert "kind 16" in found.unsure[0]
    assert found.codes == ()


def test_without_section_headers_it_is_not_guessed(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so", container("120f"))
    content = bytearray(path.read_bytes())
    content[40:48] = bytes(8)
    content[58:64] = bytes(6)
    path.write_bytes(content)
    assert "no section headers" in reading(path).unsure[0]


def test_a_section_of_zeros_costs_little(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so", bytes(64 << 20), container("120f"), registered=1)
    started = time.process_time()
    found = reading(path)
    assert (held(found), found.unsure) == (["0 sass sm_120f"], ())
    assert time.process_time() - started < 5


def test_containers_without_end_are_not_read_to_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "MOST_ENTRIES", 50)
    found = reading(library(tmp_path / "a.so", *[container()] * 200))
    assert (found.units, "more than is read" in found.unsure[0]) == (51, True)
    odd = entry("120f", flags=0x4000011)
    assert len(reading(library(tmp_path / "b.so", container(*[odd] * 900))).unsure) < 110


@pytest.fixture(scope="module")
def fat(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Elf]:
    content = library(
        tmp_path_factory.mktemp("fat") / "a.so", container("120f", "ptx:90"), container("90a")
    ).read_bytes()
    return content, read_elf(content)


@settings(max_examples=200, deadline=None)
@given(edits=st.lists(st.tuples(st.integers(0, 319), st.integers(0, 255)), min_size=1, max_size=6))
def test_damaged_containers_end(fat: tuple[bytes, Elf], edits: list[tuple[int, int]]) -> None:
    content, elf = fat
    section = elf.section(".nv_fatbin")
    assert section
    changed = bytearray(content)
    for at, value in edits:
        changed[section.offset + at % section.size] = value
    found = read_device_code(bytes(changed), elf)
    assert len(found.codes) <= 3


@pytest.mark.parametrize(
    ("number", "options", "name", "sure"),
    [
        (120, "-arch sm_120f -m 64 ", "sm_120f", True),
        (120, "-arch sm_120 -m 64 ", "sm_120", True),
        (90, "-O3 -arch=sm_90a", "sm_90a", True),
        (100, None, "sm_100", False),
        (100, "-O3", "sm_100", False),
        (100, "-arch sm_120f", "sm_100", False),
        (100, "-arch sm_100f -arch sm_100a", "sm_100", False),
    ],
)
def test_cubins(number: int, options: str | None, name: str, sure: bool) -> None:
    data = cubin(number, options=options)
    found = read_cubin(data, read_elf(data))
    assert [one.architecture.name for one in found.codes] == [name]
    assert (not found.unsure) == sure


SGL = [
    "sgl_kernel/sm90/common_ops.abi3.so",
    "sgl_kernel/sm100/common_ops.abi3.so",
    "sgl_kernel/flash_ops.abi3.so",
    "sgl_kernel/flashmla_ops.abi3.so",
    "sgl_kernel/spatial_ops.abi3.so",
    "torch/flash_ops.so",
]


@pytest.mark.parametrize(
    ("gpu", "left"),
    [
        ("12.0", {SGL[0], SGL[2], SGL[3]}),
        ("9.0", {SGL[1]}),
        ("8.9", {SGL[0], SGL[3]}),
        ("10.3", {SGL[0], SGL[2]}),
    ],
)
def test_sgl_kernel_loads_one_of_its_common_ops(gpu: str, left: set[str]) -> None:
    assert set(not_loaded(SGL, arch(gpu))) == left


def test_without_the_folder_the_one_beside_the_package_is_loaded() -> None:
    paths = ["sgl_kernel/sm90/common_ops.abi3.so", "sgl_kernel/common_ops.abi3.so"]
    assert set(not_loaded(paths, arch("12.0"))) == {paths[0]}
    assert set(not_loaded(paths, arch("9.0"))) == {paths[1]}


@pytest.mark.parametrize(
    ("module", "gpu", "loaded"),
    [
        ("fused_moe_90", "12.0", False),
        ("fused_moe_90", "9.0", True),
        ("gemm_sm100", "12.0", False),
        ("fp4_quantization_120f", "12.0", True),
        ("fp4_quantization_120f", "10.0", False),
        ("batch_decode_head_dim_qk_128_head_dim_vo_128", "10.0", True),
        ("batch_prefill_head_dim_qk_192_head_dim_vo_128", "12.0", True),
        ("batch_decode_90_head_dim_qk_64", "12.0", True),
        ("gemm_sm90_groupwise", "12.0", False),
        ("single_prefill_512", "12.0", True),
        ("page", "12.0", True),
    ],
)
def test_flashinfer_modules_name_their_gpu(module: str, gpu: str, loaded: bool) -> None:
    path = f"flashinfer/data/aot/{module}/{module}.so"
    assert (path not in not_loaded([path], arch(gpu))) == loaded
