"""What our reader says of GPU code is what cuobjdump says, for files that nvcc has really compiled.

The toolkit comes from the package registry. Nothing of it runs on a GPU.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

from sglforge.artifacts.architectures import Architecture, parse
from sglforge.artifacts.binary import Wanted
from sglforge.artifacts.elf import opened, read_elf
from sglforge.artifacts.examine import Tools, examine_library
from sglforge.artifacts.fatbin import Reading, is_cubin, read_cubin, read_device_code
from sglforge.artifacts.sass import Disassembler, find_disassembler, list_code
from sglforge.base import proc

pytestmark = pytest.mark.integration

REQUIREMENTS = ("cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.*", "nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")

SOURCE = r"""
#include <cstdint>
extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2.0f; }
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200
#define HAS_FP4
#elif defined(__CUDA_ARCH_FEAT_SM120_ALL)
#define HAS_FP4
#endif
extern "C" __global__ void to_fp4(uint8_t *to, const float2 *from) {
#ifdef HAS_FP4
  uint16_t packed;
  float2 pair = from[threadIdx.x];
  asm volatile("{ .reg .b8 low; cvt.rn.satfinite.e2m1x2.f32 low, %1, %2; cvt.u16.u8 %0, low; }"
               : "=h"(packed) : "f"(pair.x), "f"(pair.y));
  to[threadIdx.x] = (uint8_t)packed;
#endif
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """A real toolkit, and a folder to work in."""

    home: Path
    folder: Path

    @property
    def disassembler(self) -> Disassembler:
        found = find_disassembler([self.home], environment={})
        assert found
        return found

    def compile(self, name: str, *options: str | Path) -> Path:
        source = self.folder / "kernels.cu"
        source.write_text(SOURCE)
        target = self.folder / name
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        link = [] if name.endswith(".cubin") else ["-shared", "-cudart", "shared", f"-L{self.home / 'lib'}"]
        proc.run(
            [self.home / "bin" / "nvcc", *link, "-Xcompiler", "-fPIC", *options, "-o", target, source],
            env={**os.environ, "PATH": path},
            timeout_s=300,
        )
        return target


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Toolkit:
    folder = tmp_path_factory.mktemp("toolkit")
    uv = find_uv_bin()
    proc.run([uv, "venv", "--quiet", "--no-project", folder / "venv"], timeout_s=60)
    proc.run([uv, "pip", "install", "--quiet", "--python", folder / "venv", *REQUIREMENTS], timeout_s=600)
    (home,) = folder.glob("venv/lib/python3*/site-packages/nvidia/cu13")
    (home / "lib64").symlink_to("lib")
    (home / "lib" / "libcudart.so").symlink_to("libcudart.so.13")
    return Toolkit(home=home, folder=folder)


def generated(*names: str) -> list[str]:
    """Return the options for machine code (`120f`) and PTX (`ptx:120`)."""
    made = []
    for name in names:
        number = name.removeprefix("ptx:")
        made += ["-gencode", f"arch=compute_{number},code={'compute' if 'ptx' in name else 'sm'}_{number}"]
    return made


def ours(path: Path) -> Reading:
    with opened(path) as data:
        elf = read_elf(data)
        return read_cubin(data, elf) if is_cubin(elf) else read_device_code(data, elf)


def arch(text: str) -> Architecture:
    found = parse(text)
    assert found
    return found


@pytest.mark.parametrize(
    ("codes", "options"),
    [
        (["90", "90a", "100f", "120f", "ptx:120f"], []),
        (["120a", "121f", "ptx:120a"], []),
        (["120", "120a", "ptx:120"], ["-lineinfo", "--compress-mode=speed"]),
        (["120f", "86"], ["--compress-mode=size"]),
        (["120f", "ptx:120"], ["-rdc=true"]),
    ],
    ids=lambda value: " ".join(value) or "plain",
)
def test_our_reader_says_what_cuobjdump_says(toolkit: Toolkit, codes: list[str], options: list[str]) -> None:
    path = toolkit.compile("kernels.so", *generated(*codes), *options)
    found = ours(path)
    listing = list_code(path, toolkit.disassembler, run=proc.run)
    assert not found.unsure
    assert listing.trouble is None
    counted = Counter(("ptx" if code.kind == "ptx" else "elf", code.architecture) for code in found.codes)
    assert counted == Counter(listing.pieces)
    relocatable = "-rdc=true" in options  # the PTX stays in what is linked later, and is not loaded
    assert found.architectures("sass") == {arch(name) for name in codes if "ptx" not in name}
    expected = set() if relocatable else {arch(name[4:]) for name in codes if "ptx" in name}
    assert found.architectures("ptx") == expected


def test_listing_cubins_does_not_tell_the_family(toolkit: Toolkit) -> None:
    """Why the containers are read: the tool's own short list calls sm_120f sm_120."""
    path = toolkit.compile("family.so", *generated("120f"))
    said = proc.run([toolkit.disassembler.path, "-lelf", path], timeout_s=60).stdout
    assert set(re.findall(r"sm_\w+", said)) == {"sm_120"}
    assert ours(path).architectures("sass") == {arch("sm_120f")}


@pytest.mark.parametrize("code", ["90", "90a", "100f", "103a", "120", "120a", "120f", "121f"])
def test_a_cubin_says_what_it_was_compiled_for(toolkit: Toolkit, code: str) -> None:
    found = ours(toolkit.compile(f"{code}.cubin", "-cubin", *generated(code)))
    assert found.architectures("sass") == {arch(code)}
    assert not found.unsure


@pytest.mark.parametrize(("code", "kept"), [("120f", True), ("120a", True), ("120", False)])
def test_fp4_conversions_are_where_the_feature_set_is(toolkit: Toolkit, code: str, kept: bool) -> None:
    path = toolkit.compile("fp4.so", *generated(code))
    wanted = Wanted(gpus=(arch("12.0"),), arch_list=(arch("12.0f"),), claims={"*.so": ("fp4-convert",)}, built=True)
    tools = Tools(scratch=toolkit.folder, disassembler=toolkit.disassembler)
    found = {one.code for one in examine_library(path, wanted, tools).findings} - {"not-checked"}
    assert found == (set() if kept else {"arch-needs-suffix"})
