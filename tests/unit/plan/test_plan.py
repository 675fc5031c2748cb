"""plan.make: what decides a key, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sglforge import plan
from sglforge.base.files import digest
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
from sglforge.plan import BuildPlan, Estimate, Found, Known, LastBuild

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
NOTHING = Found()
KNOWN = Known(
    toolchain={"nvcc": "13.0"},
    sources={"sglang": Sha256("1" * 64), "kernels": Sha256("c" * 64)},
    series={"sglang": {"topic": Sha256("b" * 64)}},
)


def make(
    *,
    stack: Stack = STACK,
    target: Target = CPU,
    recipes: Mapping[str, PackageRecipe] = RECIPES,
    lock: Lock = LOCK,
    python: LockedPython = PYTHON,
    known: Known = KNOWN,
    found: Found = NOTHING,
) -> BuildPlan:
    drafts = plan.draft(stack=stack, target=target, recipes=recipes, lock=lock, python=python, known=known)
    return plan.make(drafts, stack=stack, target=target, python=python, found=found)


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
    last = {"kernels": LastBuild(key_parts=first.steps[1].key_parts)}
    again = make(found=Found(stored=stored, last=last))
    assert [(step.state, step.why) for step in again.steps] == [
        ("hit", "in the store"),
        ("miss", "no longer in the store"),
    ]
    assert [step.package for step in again.misses] == ["kernels"]
    assert [step.why for step in first.steps] == ["never built here", "never built here"]
    moved = make(known=replace(KNOWN, sources={"kernels": Sha256("e" * 64)}), found=Found(last=last)).steps[1]
    assert moved.why == "changed since the last build: source"
    assert [change.text for change in moved.changes] == ["source: digest cccccccc -> eeeeeeee"]
    for found in (Found(damaged=stored), Found(stored=stored, damaged=stored)):
        step = make(found=found).steps[0]
        assert (step.state, step.why) == ("miss", "its wheel in the store is damaged")


def test_time_and_memory_are_those_of_the_last_build_or_unknown() -> None:
    first = make()
    took = {"sglang": Estimate(seconds=30.0, peak_rss_mib=900.0), "kernels": Estimate(seconds=4.5, peak_rss_mib=80.0)}
    last = {name: LastBuild(key_parts={}, took=known) for name, known in took.items()}
    assert first.estimate == Estimate()
    assert make(found=Found(last=last)).estimate == Estimate(seconds=34.5, peak_rss_mib=900.0)
    one = {**last, "kernels": LastBuild(key_parts={}, took=Estimate(seconds=4.5))}
    assert make(found=Found(last=one)).estimate == Estimate(seconds=34.5)
    assert make(found=Found(last={"sglang": last["sglang"]})).estimate == Estimate()
    # what is there takes nothing, and says nothing of the last time
    there = make(found=Found(last=last, stored={first.steps[0].key}))
    assert there.estimate == took["kernels"]
    assert there.steps[0].estimate == Estimate()
    assert there.steps[0].changes == ()
    everything = make(found=Found(stored={step.key for step in first.steps}))
    assert everything.estimate == Estimate(seconds=0.0, peak_rss_mib=0.0)


def test_the_label_of_a_wheel_names_target_source_and_patches() -> None:
    sglang, kernels = make().steps
    patches = digest([("topic", "b" * 64)])
    assert sglang.local_version == f"cpu.t11111111.p{patches[:8]}"
    assert kernels.local_version == "cpu.tcccccccc"


@pytest.mark.parametrize("sources", [{}, {"sglang": LOCK.sources["sglang"].model_copy(update={"version": "0.5.22"})}])
def test_a_stack_that_moved_on_makes_its_lock_stale(sources: dict[str, LockedArchive]) -> None:
    with pytest.raises(LockError) as caught:
        make(lock=LOCK.model_copy(update={"sources": sources}))
    assert caught.value.code == "lock-stale"
    assert "sglang 0.5.23" in caught.value.message
    assert caught.value.hint == "nox -s lock -- --stack s --target cpu"


def test_a_recipe_that_moved_on_makes_its_lock_stale() -> None:
    def with_requires(*requires: str) -> BuildPlan:
        recipe = RECIPES["kernels"].model_copy(update={"build_requires": list(requires)})
        pins = [LockedRequirement(name="scikit-build-core", version="0.11.1", files=[FILE])]
        return make(
            recipes={**RECIPES, "kernels": recipe}, lock=LOCK.model_copy(update={"build_requires": {"kernels": pins}})
        )

    fine = with_requires("Scikit_Build.Core", "scikit-build-core>=0.11", "tomli; python_version < '3.11'")
    assert keys(fine) == keys(with_requires())
    for wanted in ("cmake", "scikit-build-core>=0.12"):
        with pytest.raises(LockError) as caught:
            with_requires(wanted)
        assert caught.value.code == "lock-stale"
        assert f"kernels needs {wanted} for its build" in caught.value.message


def chain() -> tuple[Stack, dict[str, PackageRecipe]]:
    """Three packages: the second and the third are built with the one before."""
    names = ("a", "b", "c")
    stack = Stack(
        name="s",
        description="",
        packages={name: StackPackage(source=PathSource(kind="path", path=name)) for name in names},
        environments=STACK.environments,
    )
    recipes = {
        name: PackageRecipe(name=name, description="", import_name=name, depends=list(names[max(at - 1, 0) : at]))
        for at, name in enumerate(names)
    }
    return stack, recipes


def test_what_a_package_is_built_with_is_built_where_its_wheel_is_not_there() -> None:
    stack, recipes = chain()
    known = Known(toolchain={}, sources={name: Sha256(name * 64) for name in "abc"}, series={})
    first = make(stack=stack, recipes=recipes, known=known)
    a, b, c = (step.key for step in first.steps)
    assert [step.package for step in plan.needed(first.steps, ["b"])] == ["a", "b"]
    assert [step.package for step in plan.needed(first.steps, ["c"])] == ["a", "b", "c"]
    there = make(stack=stack, recipes=recipes, known=known, found=Found(stored={b}))
    # a wheel that is there needs nothing, and the environment needs every wheel
    assert [step.package for step in plan.needed(there.steps, ["c"])] == ["b", "c"]
    assert [step.package for step in plan.needed(there.steps, ["b"])] == ["b"]
    assert [step.package for step in plan.needed(there.steps, ["b"], of_hits=True)] == ["a", "b"]
    assert [step.package for step in there.misses] == ["a", "c"]
    assert [step.key for step in there.steps] == [a, b, c]


def test_a_change_reaches_whatever_is_built_with_it() -> None:
    stack, recipes = chain()
    known = Known(toolchain={}, sources={name: Sha256(name * 64) for name in "abc"}, series={})
    first = make(stack=stack, recipes=recipes, known=known)
    last = {step.package: LastBuild(key_parts=step.key_parts) for step in first.steps}
    moved = replace(known, sources={**known.sources, "a": Sha256("f" * 64)})
    after = make(
        stack=stack, recipes=recipes, known=moved, found=Found(stored={step.key for step in first.steps}, last=last)
    )
    assert [step.why for step in after.steps] == [
        "changed since the last build: source",
        "changed since the last build: depends",
        "changed since the last build: depends",
    ]
    (change,) = after.steps[2].changes
    assert change.text == f"depends: b changed ({first.steps[1].key[:8]} -> {after.steps[1].key[:8]})"
