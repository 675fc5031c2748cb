"""Releases of CUDA, and how builds of torch name them."""

from __future__ import annotations

import re

_VARIANT = re.compile(r"cu([0-9]{1,3})([0-9])")


def cuda_of_variant(variant: str) -> str:
    """Return the CUDA release that a build of torch is for: ``13.0`` for ``cu130``; empty for one without CUDA."""
    found = _VARIANT.fullmatch(variant)
    return f"{found[1]}.{found[2]}" if found else ""


def major(release: str) -> str:
    """Return the major of a release or version."""
    return release.partition(".")[0]
