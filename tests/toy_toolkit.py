"""Toy CUDA toolkits: folders that have what builds look for, and wheels that a toolkit is made of."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglforge.base.files import sha256_file
from sglforge.config.lockfile import LockedFile, LockedRequirement, LockedToolkit
from sglforge.config.model import CudaNeeds, Toolkit

NEEDS = CudaNeeds(
    programs=["nvcc", "cicc", "cuobjdump"],
    headers=["cuda.h", "nv/target"],
    libraries=["cudart", "cudadevrt"],
    stubs=["cuda"],
)
SYMBOLS = ["cuInit", "cuMemAlloc_v2"]
RECIPE = Toolkit(
    name="cuda-13.0",
    description="A toy.",
    release="13.0",
    newest_gcc=15,
    requires=["toy-nvcc==13.0.*"],
    cuda=NEEDS,
    driver_symbols=SYMBOLS,
)
NVCC = '#!/bin/sh\necho "Cuda compilation tools, release {release}, V{version}"\n'
HOST_CONFIG = "#if __GNUC__ > 15\n#error\n#endif\n"
CUDA_H = """\
typedef int CUresult;
#ifndef __CUDA_API_VERSION_INTERNAL
#define cuMemAlloc cuMemAlloc_v2
#endif
CUresult cuInit(unsigned int flags);
CUresult cuMemAlloc(void **pointer, unsigned long size);
"""


def write_toolkit(home: Path, *, version: str = "13.0.88") -> Path:
    """Write a complete toolkit, as NVIDIA's packages lay it out, and return its folder."""
    release = ".".join(version.split(".")[:2])
    files = {
        "bin/nvcc": NVCC.format(release=release, version=version),
        "bin/cuobjdump": "#!/bin/sh\n",
        "bin/nvcc.profile": "TOP = x\n",
        "nvvm/bin/cicc": "#!/bin/sh\n",
        "nvvm/libdevice/libdevice.10.bc": "BC",
        "include/cuda.h": CUDA_H,
        "include/crt/host_config.h": HOST_CONFIG,
        "include/cccl/nv/target": "\n",
        "lib64/libcudart.so": "so",
        "lib64/libcudadevrt.a": "a",
        "lib64/stubs/libcuda.so": "".join(f"\0{symbol}\0" for symbol in SYMBOLS),
    }
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.parent.name == "bin" and path.suffix != ".profile":
            path.chmod(0o755)
    return home


def wheel_files(*, version: str = "13.0.88", without: Sequence[str] = ()) -> dict[str, str]:
    """Return what wheels bring: one folder, libraries by their versions only, no stub, programs without a mode."""
    top = "nvidia/cu13"
    files = {
        f"{top}/bin/nvcc": NVCC.format(release=".".join(version.split(".")[:2]), version=version),
        f"{top}/bin/cuobjdump": "#!/bin/sh\n",
        f"{top}/bin/nvcc.profile": "TOP = x\n",
        f"{top}/nvvm/bin/cicc": "#!/bin/sh\n",
        f"{top}/nvvm/libdevice/libdevice.10.bc": "BC",
        f"{top}/include/cuda.h": CUDA_H,
        f"{top}/include/crt/host_config.h": HOST_CONFIG,
        f"{top}/include/cccl/nv/target": "\n",
        f"{top}/lib/libcudart.so.13": "so",
        f"{top}/lib/libcudadevrt.a": "a",
    }
    return {name: text for name, text in files.items() if name.removeprefix(f"{top}/") not in without}


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Write a correct wheel into a folder."""
    info = f"{name}-{version}.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**members, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


def lock_toolkit(*wheels: Path) -> LockedToolkit:
    """Return the lock of a toolkit that is made of wheels."""
    pins = []
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        files = [LockedFile(name=wheel.name, sha256=sha256_file(wheel))]
        pins.append(LockedRequirement(name=name.replace("_", "-"), version=version, files=files))
    return LockedToolkit(name=RECIPE.name, release=RECIPE.release, requires=RECIPE.requires, requirements=pins)
