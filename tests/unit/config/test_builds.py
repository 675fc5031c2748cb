"""Variables and dependencies of builds, checked when the catalog is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.config.load import load_catalog

from .conftest import faults_of


def write(catalog: Path, name: str, text: str) -> None:
    (catalog / "recipes" / name).write_text(text)


def recipe(catalog: Path, name: str, more: str = "") -> None:
    lines = [f'name = "{name}"', 'description = "x"', f'import-name = "{name}"', 'build-requires = ["hatchling"]']
    write(catalog, f"packages/{name}.toml", "\n".join([*lines, more, ""]))


def stack(catalog: Path, *packages: str) -> None:
    text = (catalog / "recipes/stacks/first.toml").read_text()
    head, _, rest = text.partition("[packages.engine]\n")
    environments = rest[rest.index("[environments") :]
    write(catalog, "stacks/first.toml", head + "\n".join(packages) + "\n\n" + environments)


def path(name: str, *targets: str) -> str:
    listed = ", ".join(f'"{target}"' for target in targets)
    return f'[packages.{name}]\nsource = {{ kind = "path", path = "kernels/engine" }}\ntargets = [{listed}]'


GIT = '[packages.engine]\nsource = { kind = "git", url = "https://example.org/e.git", ref = "main" }'
WHEEL = '[packages.engine]\nsource = { kind = "wheel", project = "e", version = "1.0" }'


def test_variables_of_a_build_are_read(catalog: Path) -> None:
    recipe(catalog, "engine", '[environment]\nE_VERSION = "{version}"\nE_ARGS = "-D{{x}}=1"')
    stack(catalog, GIT)
    assert load_catalog(catalog).packages["engine"].environment == {"E_VERSION": "{version}", "E_ARGS": "-D{{x}}=1"}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('HOME = "/root"', "`environment.HOME`: it is set for every build in the same way"),
        ('SOURCE_DATE_EPOCH = "1"', "`environment.SOURCE_DATE_EPOCH`: it is set for every build in the same way"),
        ('https_proxy = "x"', "`environment.https_proxy`: it is set for every build in the same way"),
        ('MAX_JOBS = "4"', "`environment.MAX_JOBS`: how many jobs run at once is a matter of the machine"),
        ('A = "\\u0000"', "`environment.A`: a variable cannot hold a zero byte"),
        ('A = "{versions}"', "`environment.A`: '{versions}' has an unknown placeholder {versions}"),
        ('A = "{}"', "`environment.A`: '{}' has an unknown placeholder {}"),
        ('A = "{version!r}"', "asks for a form of {version}"),
        ('A = "{version:>9}"', "asks for a form of {version}"),
        ('A = "{version.real}"', "has an unknown placeholder {version.real}"),
        ('A = "{version"', "has a brace without its other half"),
        ('A = "$ENV{HOME}"', "has an unknown placeholder {HOME}"),
    ],
)
def test_a_variable_that_cannot_be_is_refused_with_its_line(catalog: Path, line: str, fault: str) -> None:
    recipe(catalog, "engine", f"\n[environment]\n{line}")
    stack(catalog, GIT)
    (found,) = faults_of(catalog)
    assert found.startswith("packages/engine.toml:7 invalid-value: `environment.")
    assert fault in found


def test_a_folder_has_no_version_to_write_into_a_variable(catalog: Path) -> None:
    recipe(catalog, "engine", '[environment]\nE_VERSION = "{version}"')
    (found,) = faults_of(catalog)
    assert found.startswith("stacks/first.toml:5 invalid-value: the recipe of `engine` writes {version} into")


@pytest.mark.parametrize(
    ("packages", "fault"),
    [
        ((path("engine"),), "the stack does not have `base`"),
        ((path("engine"), path("base")), "`base` does not stand before it"),
        ((path("base", "gpu"), path("engine")), "`base` is for target gpu only"),
        ((path("base", "gpu"), path("engine", "cpu")), "`base` is for target gpu only"),
        ((path("base"), path("engine", "cpu")), ""),
        ((path("base", "cpu"), path("engine")), ""),
        ((WHEEL,), ""),
    ],
)
def test_a_package_is_built_after_what_it_is_built_with(catalog: Path, packages: tuple[str, ...], fault: str) -> None:
    write(catalog, "targets/gpu.toml", 'name = "gpu"\ndescription = "x"\nkind = "cpu"\n')
    recipe(catalog, "base")
    recipe(catalog, "engine", 'depends = ["base"]')
    stack(catalog, *packages)
    if not fault:
        assert load_catalog(catalog).packages["engine"].depends == ["base"]
        return
    (found,) = faults_of(catalog)
    assert "dependency-missing: package `engine` is built with `base` installed, and " + fault in found
    assert found.startswith("stacks/first.toml:")


def test_a_package_cannot_be_built_with_itself(catalog: Path) -> None:
    recipe(catalog, "engine", 'depends = ["engine"]')
    assert "it cannot be built before itself | take it out of `depends`" in faults_of(catalog)[0]


def test_a_dependency_without_a_recipe_is_named(catalog: Path) -> None:
    recipe(catalog, "engine", 'depends = ["engine-x"]')
    found = faults_of(catalog)
    assert found[0] == "packages/engine.toml:5 unknown-package: there is no package `engine-x` | did you mean `engine`?"
