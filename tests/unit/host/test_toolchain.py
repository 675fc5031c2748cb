"""The fingerprint has every part that a recipe may name."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from sglforge.config.model import PackageRecipe
from sglforge.host.cuda.model import CudaToolkit
from sglforge.host.facts import Cuda, HostFacts
from sglforge.host.toolchain import fingerprint

FACTS = HostFacts(python="3.12.3", glibc="2.39", gcc="13.3.0", cuda=Cuda(nvcc="13.0.88"))


def test_every_part_of_a_recipe_is_there_but_for_those_of_the_lock() -> None:
    (part,) = get_args(PackageRecipe.model_fields["toolchain"].annotation)
    assert {*fingerprint(FACTS), "python-abi", "torch"} == set(get_args(part))


def test_the_parts_are_those_that_change_a_build() -> None:
    assert fingerprint(FACTS) == {
        "glibc": "2.39",
        "host-compiler": "gcc 13",
        "nvcc": "13.0.88",
    }


def test_absent_is_told_from_unknown() -> None:
    assert fingerprint(HostFacts(absent=("nvcc",)))["nvcc"] == "absent"
    assert fingerprint(HostFacts())["nvcc"] == "unknown"


def test_where_a_target_names_a_toolkit_its_fingerprint_stands_for_nvcc() -> None:
    toolkit = CudaToolkit(home=Path("/x"), origin="lock", release="13.0", version="13.0.88", fingerprint="f" * 64)
    assert fingerprint(FACTS, toolkit) == {**fingerprint(FACTS), "nvcc": "f" * 64}
    assert fingerprint(HostFacts(absent=("nvcc",)), toolkit)["nvcc"] == "f" * 64
