"""What the binaries of a plan's wheels are held to."""

from __future__ import annotations

import platform

from sglforge.artifacts.demand import demanded
from sglforge.build.execute import BinaryRules
from sglforge.host.cuda.model import CudaToolkit
from sglforge.pipeline.select import Planned


def binary_rules(planned: Planned, toolkit: CudaToolkit | None = None) -> BinaryRules | None:
    """Return what the binaries of a wheel are held to; None where the target has no GPUs.

    ``toolkit`` is what it was compiled with: its cuobjdump reads it, its libraries define symbols too.
    """
    selection = planned.selection
    if selection.target.kind != "cuda":
        return None
    facts, torch = selection.facts, selection.environment.torch
    wanted = demanded(
        selection.target,
        torch_variant=torch.variant,
        machine=facts.machine or platform.machine(),
        glibc=facts.glibc,
        torch=f"{torch.version}+{torch.variant}",
    )
    return BinaryRules(wanted=wanted, toolkits=(toolkit.home,) if toolkit else ())
