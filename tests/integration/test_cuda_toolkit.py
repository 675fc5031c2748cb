"""The toolkit of sm120 (the lock's, unless this machine has a whole one) compiles; nothing of it runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from calling import ROOT, call

from sglforge.config.load import load_catalog
from sglforge.host.cuda import nvcc
from sglforge.host.cuda.complete import lacking

pytestmark = pytest.mark.integration

SOURCE = """\
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <cuda.h>
#include <cuda_fp4.h>
#include <curand_kernel.h>
#include <nvrtc.h>
#include <nvtx3/nvToolsExt.h>

__global__ void to_fp4(float2 from, __nv_fp4x2_storage_t *to) {
  *to = __nv_cvt_float2_to_fp4x2(from, __NV_E2M1, cudaRoundNearest);
}

extern "C" int use_everything() {
  cublasHandle_t blas;
  curandGenerator_t random;
  CUdeviceptr memory;
  int failed = cublasCreate(&blas), version = 0;
  failed += curandCreateGenerator(&random, CURAND_RNG_TEST);
  failed += nvrtcVersion(&version, &version);
  failed += cuMemAlloc(&memory, 4);
  failed += cuGreenCtxDestroy(nullptr);
  to_fp4<<<1, 1>>>({1, 2}, nullptr);
  return failed + static_cast<int>(cublasLtGetVersion());
}
"""


@pytest.fixture(scope="module")
def home(workspace: Path) -> Path:
    """The folder of the toolkit, fetched where it is the lock's."""
    fetched = call("fetch", "flashinfer", "--target", "sm120", workspace=workspace)
    assert fetched.code == 0, fetched.talk
    toolkit: Any = fetched.document["toolkit"]
    return Path(toolkit["home"])


def test_it_is_whole_and_what_the_recipe_says(home: Path) -> None:
    catalog = load_catalog(ROOT)
    recipe = catalog.toolkit(catalog.target("sm120"))
    assert recipe
    needs = [recipe.cuda, *(package.cuda for package in catalog.packages.values() if package.cuda)]
    assert lacking(home, needs, recipe.driver_symbols) == ()
    assert nvcc.newest_gcc(home) == recipe.newest_gcc


def test_it_compiles_and_links_for_the_family_without_anything_else(home: Path, tmp_path: Path) -> None:
    (tmp_path / "all.cu").write_text(SOURCE)
    options = ["-arch=sm_120f", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-cudart", "shared"]
    libraries = ["-lcublas", "-lcublasLt", "-lcurand", "-lnvrtc", "-lcuda"]
    folders = [f"-L{home}/lib64", f"-L{home}/lib64/stubs"]
    subprocess.run(
        [home / "bin/nvcc", *options, "all.cu", "-o", "all.so", *folders, *libraries],
        cwd=tmp_path,
        env={"PATH": f"{home}/bin:/usr/bin:/bin"},
        check=True,
        timeout=600,
    )
    needed = subprocess.run(
        ["readelf", "-d", "all.so"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert {"libcuda.so.1", "libcudart.so.13", "libcublas.so.13", "libcurand.so.10", "libnvrtc.so.13"} <= set(
        re.findall(r"NEEDED.*\[(.*)\]", needed)
    )
    sass = subprocess.run(
        [home / "bin/cuobjdump", "-sass", "all.so"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "sm_120f" in re.findall(r"^arch = (\S+)$", sass, re.MULTILINE)
    assert "to_fp4" in sass


def test_afterwards_no_network_is_needed(workspace: Path, home: Path) -> None:
    again = call("fetch", "flashinfer", "--target", "sm120", "--offline", workspace=workspace)
    assert again.code == 0, again.talk
    assert home.is_dir()
