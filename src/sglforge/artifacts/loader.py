"""Which of a package's files are loaded on which GPU.

A wheel may hold the same extension once for every family of GPUs; what the others hold does not matter there, and
what the picked one lacks cannot be made up by the others. Sources: `sgl_kernel/load_utils.py` (capability exactly 9.0
takes `sm90/`, every other one `sm100/`, then the file beside the package's `__init__`), the gates of SGLang's FA3 and
FlashMLA backends, and FlashInfer's names of modules (`fused_moe_90`, `gemm_sm100`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from sglforge.artifacts.architectures import Architecture, of_number

_COMMON = re.compile(r"(?:^|.*/)sgl_kernel/(?:(sm90|sm100)/)?common_ops\.[^/]*so")
_ONLY = {
    "flash_ops": ((8, 9), "FlashAttention 3, which SGLang calls on compute capability 8.x and 9.x"),
    "flashmla_ops": ((9, 10), "FlashMLA, which SGLang calls on compute capability 9.0 and 10.x"),
}
_FLASHINFER = re.compile(r"(?:^|.*/)(?:aot|cached_ops|jit_cache)/([^/]+)/[^/]+\.so")
_MODULE_GPU = re.compile(r"_sm_?(\d{2,3})[af]?(?=_|$)|_(\d{2,3})[af]?$")
_NUMBERS = frozenset({75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121})
"""Architectures that names of modules end with; a head dimension of 192 or 128 is none."""


def not_loaded(paths: Iterable[str], gpu: Architecture) -> dict[str, str]:
    """Return the files that are not loaded on a GPU, each with the reason; all others may be.

    Args:
        paths: All files of a package, with ``/`` between folders.
        gpu: The GPU.
    """
    names = list(paths)
    reasons = {path: why for path in names if (why := _module_reason(path, gpu) or _gate_reason(path, gpu))}
    return reasons | _other_common_ops(names, gpu)


def _other_common_ops(paths: Sequence[str], gpu: Architecture) -> dict[str, str]:
    found = {path: match[1] for path in paths if (match := _COMMON.fullmatch(path))}
    wanted = "sm90" if (gpu.major, gpu.minor) == (9, 0) else "sm100"
    picked = wanted if wanted in found.values() else None
    shown = f"{picked}/common_ops" if picked else "the one beside the package"
    return {path: f"on {gpu.capability} {shown} is loaded" for path, folder in found.items() if folder != picked}


def _gate_reason(path: str, gpu: Architecture) -> str | None:
    file = PurePosixPath(path)
    majors, what = _ONLY.get(file.name.partition(".")[0], ((), ""))
    if "sgl_kernel" not in file.parts[:-1] or not majors or gpu.major in majors:
        return None
    return f"it is {what}"


def _module_reason(path: str, gpu: Architecture) -> str | None:
    """Return why a FlashInfer module is not loaded: its name names other GPUs."""
    module = _FLASHINFER.fullmatch(path)
    if not module:
        return None
    numbers = {int(marked or last) for marked, last in _MODULE_GPU.findall(module[1])}
    families = {of_number(number).major for number in numbers & _NUMBERS}
    if not families or gpu.major in families:
        return None
    return f"its name says that it is for compute capability {', '.join(f'{major}.x' for major in sorted(families))}"
