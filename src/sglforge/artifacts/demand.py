"""What a target demands of binaries, for what we built and for what somebody else did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sglforge.artifacts.architectures import Architecture, parse
from sglforge.artifacts.binary import Wanted
from sglforge.config.model import Target

_CUDA_VARIANT = re.compile(r"cu(\d{2})\d")


def demanded(
    target: Target,
    *,
    torch_variant: str | None,
    machine: str,
    glibc: str | None,
    gpus: Sequence[Architecture] = (),
    claims: Mapping[str, tuple[str, ...]] | None = None,
    open_symbols: Mapping[str, str] | None = None,
    built: bool = False,
    torch: str | None = None,
    package: str | None = None,
) -> Wanted:
    """Return what a target demands.

    Args:
        target: Its compute capability and arch list count for a target of kind cuda; one of kind cpu demands no GPU
            code.
        torch_variant: The variant of the environment's torch: `cu130`.
        machine: `x86_64`.
        glibc: The GNU C library of this machine, None where it is not known.
        gpus: The GPUs to serve; empty: the one that the target is named after.
        claims: See :class:`~sglforge.artifacts.binary.Wanted`.
        open_symbols: Likewise.
        built: Whether we built it.
        torch: The version of the environment's torch.
        package: What to build again where it does not fit.
    """
    own = parse(target.compute_capability) if target.kind == "cuda" and target.compute_capability else None
    variant = _CUDA_VARIANT.fullmatch(torch_variant or "")
    return Wanted(
        gpus=tuple(gpus) or ((own,) if own else ()),
        arch_list=tuple(one for text in target.arch_list if (one := parse(text))),
        cuda_major=int(variant[1]) if variant else None,
        machine=machine,
        glibc=glibc,
        min_glibc=target.min_glibc,
        claims=dict(claims or {}),
        open_symbols=dict(open_symbols or {}),
        built=built,
        torch=torch,
        package=package,
    )
