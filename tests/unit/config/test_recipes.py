"""The catalog that the project ships."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sglforge.base.ids import Sha256
from sglforge.config.load import Catalog, load_catalog
from sglforge.config.lockfile import read_lock
from sglforge.plan import Known, draft

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / "locks").glob("*.lock.toml"))


@pytest.fixture(scope="module")
def shipped() -> Catalog:
    return load_catalog(ROOT)


def test_it_loads_whole(shipped: Catalog) -> None:
    assert set(shipped.targets) >= {"cpu", "sm120"}
    assert set(shipped.stacks) >= {"main", "release-0.5.9", "release-0.5.12.post1", "release-0.5.23"}
    assert set(shipped.profiles) >= {"tiny-cpu", "tiny-cpu-triton"}


def test_the_default_stack_of_each_target_has_an_environment_for_it(shipped: Catalog) -> None:
    assert {name: target.default_stack for name, target in shipped.targets.items()} == {
        "cpu": "release-0.5.23",
        "sm120": "main",
    }
    for name, target in shipped.targets.items():
        assert name in shipped.stack(target.default_stack or "").environments


def test_a_target_that_waits_says_for_what(shipped: Catalog) -> None:
    assert shipped.target("cpu").waits_for is None
    assert "SM120 on CUDA 13" in (shipped.target("sm120").waits_for or "")


def test_sglang_is_built_from_source_where_upstream_publishes_any(shipped: Catalog) -> None:
    methods = {name: stack.packages["sglang"].source.method for name, stack in shipped.stacks.items()}
    assert methods["release-0.5.23"] == "repack"
    assert methods["release-0.5.9"] == methods["release-0.5.10.post1"] == methods["main"] == "pep517"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name.removesuffix(".lock.toml"))
def test_a_shipped_lock_is_what_its_stack_asks_for(shipped: Catalog, path: Path) -> None:
    lock = read_lock(path)
    stack, target = shipped.stack(lock.stack), shipped.target(lock.target)
    environment = stack.environments[target.name]
    assert [python.minor for python in lock.pythons] == environment.pythons
    for python in lock.pythons:
        assert (python.torch.version, python.torch.variant) == (environment.torch.version, environment.torch.variant)
        pinned = {requirement.name: requirement.version for requirement in python.requirements}
        for requirement in map(Requirement, environment.requirements):
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
    toolchain = dict.fromkeys(("glibc", "host-compiler", "nvcc"), "any")
    drivers = {name: Sha256("0" * 64) for name, recipe in shipped.packages.items() if recipe.modules}
    known = Known(toolchain=toolchain, sources={}, series={}, drivers=drivers)
    drafts = draft(stack=stack, target=target, recipes=shipped.packages, lock=lock, python=lock.pythons[0], known=known)
    for step in drafts:
        if step.source.kind != "git":
            assert bool(step.build_requires) == (step.source.method == "pep517"), step.package


def test_build_requirements_match_the_kernels_own_backend(shipped: Catalog) -> None:
    pyproject = tomllib.loads((ROOT / "kernels/sgl-kernel-cpu/pyproject.toml").read_text())
    wanted = {Requirement(text).name for text in pyproject["build-system"]["requires"]}
    assert wanted == {Requirement(text).name for text in shipped.packages["sgl-kernel-cpu"].build_requires}


def test_nothing_is_both_required_and_relaxed(shipped: Catalog) -> None:
    for stack in shipped.stacks.values():
        for environment in stack.environments.values():
            required = {Requirement(text).name for text in environment.requirements}
            assert required.isdisjoint(environment.relaxed)
            assert all(reason.strip() for reason in environment.relaxed.values())
