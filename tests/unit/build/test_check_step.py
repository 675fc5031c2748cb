"""Before a wheel is stored: what its binaries must be on a target with GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gpu_files import container, entry, library, wheel_of

from sglforge.artifacts.demand import demanded
from sglforge.base.ids import BuildKey
from sglforge.build.execute import BinaryRules, BuildPython, check_step
from sglforge.config.model import PackageRecipe, PathSource, Target, WheelSource
from sglforge.errors import CheckError
from sglforge.plan import Step

PYTHON = BuildPython(path=Path("python"), minor="3.12")
TARGET = Target(
    name="sm120", description="", kind="cuda", arch_list=["12.0f"], compute_capability="12.0", min_glibc="2.34"
)
RULES = BinaryRules(wanted=demanded(TARGET, torch_variant="cu130", machine="x86_64", glibc="2.99"))
STEP = Step(
    package="toy",
    recipe=PackageRecipe(name="toy", description="", import_name="toy_gpu"),
    source=PathSource(kind="path", path="toy"),
    locked=None,
    build_requires=(),
    key=BuildKey("k" * 64),
    key_parts={},
    local_version="sm120.t1",
    state="miss",
    why="never built here",
)


def wheel(folder: Path, *containers: bytes, body: str = "int one(void) { return 1; }") -> Path:
    path = library(folder / "made" / "x.so", *containers, body=body)
    return wheel_of(folder, {"toy_gpu/__init__.py": b"", "toy_gpu/x.so": path})


def refused(made: Path, step: Step = STEP) -> str:
    with pytest.raises(CheckError) as caught:
        check_step(step, made, PYTHON, rules=RULES, scratch=made.parent / "scratch")
    assert caught.value.findings
    return caught.value.code


def test_code_for_the_target_is_stored(tmp_path: Path) -> None:
    made = wheel(tmp_path, container("120f"))
    check_step(STEP, made, PYTHON, rules=RULES, scratch=tmp_path / "scratch")


@pytest.mark.parametrize(
    ("containers", "code"),
    [
        ([container("90a")], "so-missing-arch"),
        ([container("120f"), container("90a")], "so-missing-arch"),
        ([container("120")], "arch-needs-suffix"),
        ([container(entry("120f", flags=0x4000011))], "so-not-understood"),
    ],
)
def test_what_does_not_fit_is_not(tmp_path: Path, containers: list[bytes], code: str, no_toolkit: None) -> None:
    assert refused(wheel(tmp_path, *containers)) == code


def test_a_released_wheel_may_be_for_other_gpus_too(tmp_path: Path) -> None:
    made = wheel(tmp_path, container("120f"), container("90a"))
    released = replace(STEP, source=WheelSource(kind="wheel", project="toy", version="1.0"))
    check_step(released, made, PYTHON, rules=RULES, scratch=tmp_path / "scratch")


def test_symbols_are_looked_up_in_the_build_environment(tmp_path: Path) -> None:
    body = "int needed(void); int call(void) { return needed(); }"
    made = wheel(tmp_path, container("120f"), body=body)
    check_step(STEP, made, PYTHON, rules=RULES, scratch=tmp_path / "without")
    site = tmp_path / "scratch" / "env" / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    assert refused(made) == "so-own-undefined-symbol"
    recipe = STEP.recipe.model_copy(update={"open_symbols": {"needed": "nobody calls it"}})
    check_step(replace(STEP, recipe=recipe), made, PYTHON, rules=RULES, scratch=tmp_path / "scratch")


def test_without_rules_binaries_are_not_looked_at(tmp_path: Path) -> None:
    check_step(STEP, wheel(tmp_path, container("90a")), PYTHON)


@pytest.fixture
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the machine's cuobjdump."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
