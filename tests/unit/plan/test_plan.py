"""plan.make: what decides a key, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sglforge import plan
from sglforge.base.ids import BuildKey, Sha256
from sglforge.config.lockfile import (
    Lock,
    LockedArchive,
    LockedFile,
    LockedPython,
    LockedRequirement,
    LockedTorch,
)
from sglforge.config.model import (
    PackageRecipe,
    PathSource,
    Stack,
    StackEnvironment,
    StackPackage,
    Target,
    TorchPin,
    WheelSource,
)
from sglforge.errors import LockError
from sglforge.plan import BuildPlan, Known

FILE = LockedFile(name="x-1-py3-none-any.whl", sha256="f" * 64)
PIN = TorchPin(version="2.13.0", variant="cpu")
CPU = Target(name="cpu", description="", kind="cpu")
STACK = Stack(
    name="s",
    description="",
    packages={
        "sglang": StackPackage(source=WheelSource(kind="wheel", project="sglang", version="0.5.23")),
        "kernels": StackPackage(source=PathSource(kind="path", path="kernels/x")),
        "gpu-only": StackPackage(source=PathSource(kind="path", path="kernels/y"), targets=["sm120"]),
    },
    environments={"cpu": StackEnvironment(torch=PIN, pythons=["3.11"])},
)
RECIPES = {
    "sglang": PackageRecipe(name="sglang", description="", import_name="sglang", toolchain=["python-abi"]),
    "kernels": PackageRecipe(name="kernels", description="", import_name="sgl_kernel"),
}
PYTHON = LockedPython(
    minor="3.11", torch=LockedTorch(version="2.13.0", variant="cpu", sha256=["a" * 64]), requirements=[]
)
LOCK = Lock(
    format=1,
    stack="s",
    target="cpu",
    sources={
        "sglang": LockedArchive(
            kind="wheel",
            project="sglang",
            version="0.5.23",
            files=[LockedFile(name="sglang-0.5.23-cp311-cp311-linux_x86_64.whl", sha256="1" * 64)],
        )
    },
    build_requires={},
    pythons=[PYTHON],
)
KNOWN = Known(
    toolchain={"python-abi": "cp311", "nvcc": "13.0"},
    sources={"sglang": Sha256("1" * 64), "kernels": Sha256("c" * 64)},
    series={"sglang": Sha256("b" * 64)},
    stored=frozenset(),
    previous={},
)


def make(
    *,
    stack: Stack = STACK,
    target: Target = CPU,
    recipes: Mapping[str, PackageRecipe] = RECIPES,
    lock: Lock = LOCK,
    python: LockedPython = PYTHON,
    known: Known = KNOWN,
) -> BuildPlan:
    return plan.make(stack=stack, target=target, recipes=recipes, lock=lock, python=python, known=known)


def keys(made: BuildPlan) -> dict[str, BuildKey]:
    return {step.package: step.key for step in made.steps}


def test_a_plan_is_made_of_the_packages_of_the_target_in_the_order_of_the_stack() -> None:
    assert [step.package for step in make().steps] == ["sglang", "kernels"]
    assert plan.packages(STACK, Target(name="sm120", description="", kind="cuda")) == (
        "sglang",
        "kernels",
        "gpu-only",
    )


def test_the_same_inputs_give_the_same_plan() -> None:
    assert make() == make()


def changed_recipe() -> BuildPlan:
    recipe = RECIPES["sglang"].model_copy(update={"exclude": {"*.so": "because"}})
    return make(recipes={**RECIPES, "sglang": recipe})


@pytest.mark.parametrize(
    ("part", "made"),
    [
        ("recipe", changed_recipe),
        ("source", lambda: make(known=replace(KNOWN, sources={**KNOWN.sources, "sglang": Sha256("9" * 64)}))),
        ("patches", lambda: make(known=replace(KNOWN, series={"sglang": Sha256("d" * 64)}))),
        ("target", lambda: make(target=CPU.model_copy(update={"arch_list": ["12.0f"]}))),
        ("toolchain.python-abi", lambda: make(known=replace(KNOWN, toolchain={"python-abi": "cp312"}))),
    ],
)
def test_each_part_changes_the_key_and_is_named(part: str, made: object) -> None:
    assert callable(made)
    before = make().steps[0]
    previous = {"sglang": before.key_parts}
    after: BuildPlan = made()
    step = after.steps[0]
    assert step.key != before.key
    assert after.environment_key != make().environment_key
    differing = {name for name in step.key_parts if step.key_parts[name] != previous["sglang"][name]}
    assert differing == {part}


def test_what_does_not_decide_the_result_does_not_change_a_key() -> None:
    described = {**RECIPES, "sglang": RECIPES["sglang"].model_copy(update={"description": "other words"})}
    other_nvcc = replace(KNOWN, toolchain={**KNOWN.toolchain, "nvcc": "13.1"})
    for made in (make(recipes=described), make(known=other_nvcc)):
        assert keys(made) == keys(make())


def test_a_requirement_changes_the_environment_but_no_wheel() -> None:
    requirement = LockedRequirement(name="six", version="1.17.0", files=[FILE])
    made = make(python=PYTHON.model_copy(update={"requirements": [requirement]}))
    assert keys(made) == keys(make())
    assert made.environment_key != make().environment_key


def test_build_requirements_change_the_key_of_their_package_only() -> None:
    pins = [LockedRequirement(name="hatchling", version="1.27.0", files=[FILE])]
    made = make(lock=LOCK.model_copy(update={"build_requires": {"kernels": pins}}))
    assert keys(made)["sglang"] == keys(make())["sglang"]
    assert keys(made)["kernels"] != keys(make())["kernels"]


def test_hit_and_miss_say_why() -> None:
    first = make()
    stored = frozenset({first.steps[0].key})
    again = make(known=replace(KNOWN, stored=stored, previous={"kernels": first.steps[1].key_parts}))
    assert [(step.state, step.why) for step in again.steps] == [
        ("hit", "in the store"),
        ("miss", "no longer in the store"),
    ]
    assert [step.package for step in again.misses] == ["kernels"]
    assert [step.why for step in first.steps] == ["never built here", "never built here"]
    moved = replace(KNOWN, sources={"kernels": Sha256("e" * 64)}, previous={"kernels": first.steps[1].key_parts})
    assert make(known=moved).steps[1].why == "changed since the last build: source"
    for known in (KNOWN, replace(KNOWN, stored=stored)):
        step = make(known=replace(known, damaged=stored)).steps[0]
        assert (step.state, step.why) == ("miss", "its wheel in the store is damaged")


def test_the_label_of_a_wheel_names_target_source_and_patches() -> None:
    sglang, kernels = make().steps
    assert sglang.local_version == f"cpu.t{sglang.key_parts['source'][:8]}.pbbbbbbbb"
    assert kernels.local_version == "cpu.tcccccccc"


@pytest.mark.parametrize("sources", [{}, {"sglang": LOCK.sources["sglang"].model_copy(update={"version": "0.5.22"})}])
def test_a_stack_that_moved_on_makes_its_lock_stale(sources: dict[str, LockedArchive]) -> None:
    with pytest.raises(LockError) as caught:
        make(lock=LOCK.model_copy(update={"sources": sources}))
    assert caught.value.code == "lock-stale"
    assert "sglang 0.5.23" in caught.value.message
    assert caught.value.hint == "nox -s lock -- --stack s --target cpu"
