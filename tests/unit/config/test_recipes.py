"""The catalog that the project ships."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sglforge.config.load import Catalog, load_catalog

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def shipped() -> Catalog:
    return load_catalog(ROOT)


def test_it_loads_whole(shipped: Catalog) -> None:
    assert set(shipped.targets) >= {"cpu", "sm120"}
    assert set(shipped.stacks) >= {"main", "release-0.5.23"}
    assert set(shipped.profiles) >= {"tiny-cpu"}


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


def test_sglang_is_a_repacked_wheel_in_the_release_and_source_on_main(shipped: Catalog) -> None:
    assert shipped.stack("release-0.5.23").packages["sglang"].source.method == "repack"
    assert shipped.stack("main").packages["sglang"].source.method == "pep517"


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
