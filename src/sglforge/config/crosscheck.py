"""Check what no single file can say: names that lead to other files, folders, requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sglforge.base.toml import KeyPath
from sglforge.config import variables
from sglforge.config.cuda import cuda_of_variant, major
from sglforge.config.model import (
    GitSource,
    Modules,
    PackageRecipe,
    PathSource,
    Profile,
    Stack,
    StackEnvironment,
    StackPackage,
    Target,
    Toolkit,
)
from sglforge.config.shelf import N, Shelf, Written
from sglforge.config.suggest import UNKNOWN, hint
from sglforge.errors import Finding

CATALOG_PREFIX = "catalog:"
"""A model that is a folder of the catalog: ``catalog:models/tiny-llama``."""

# the common forms, so that packaging is imported for unusual ones only
_CLAUSE = r"(?:==|>=|<=|~=|!=|>|<)\s*[0-9][0-9a-zA-Z.]*(?:\.\*)?"
_PLAIN_REQUIREMENT = re.compile(rf"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:{_CLAUSE}(?:\s*,\s*{_CLAUSE})*)?")

_TORCH_PLACES = {"requirements": "the environment's `torch`", "requires": "`modules.torch`"}
"""Where the torch of a list of requirements is said, by the list's key."""


def check_packages(root: Path, packages: Shelf[PackageRecipe]) -> Iterator[Finding]:
    """Yield the faults of package recipes."""
    for written in packages:
        yield from _requirements(written, written.model.build_requires, ("build-requires",))
        yield from _variables(written)
        for index, name in enumerate(written.model.depends):
            yield from _known(written, name, packages, ("depends", index))
        if written.model.cuda is not None and "nvcc" not in written.model.toolchain:
            yield written.fault(
                "invalid-value",
                ("cuda",),
                "`cuda` says what is taken of a CUDA toolkit, and `toolchain` does not have nvcc",
                hint='add "nvcc" to `toolchain`, or leave `cuda` out',
            )
        if written.model.modules:
            yield from _modules(root, written, written.model.modules)


def check_toolkits(toolkits: Shelf[Toolkit]) -> Iterator[Finding]:
    """Yield the faults of toolkits."""
    for written in toolkits:
        yield from _requirements(written, written.model.requires, ("requires",))


def _modules(root: Path, written: Written[PackageRecipe], modules: Modules) -> Iterator[Finding]:
    """Yield the faults of what a recipe says of modules that are compiled ahead of time."""
    yield from _requirements(written, modules.requires, ("modules", "requires"))
    if not (root / modules.driver).is_file():
        yield written.fault(
            "file-missing",
            ("modules", "driver"),
            f"there is no file {modules.driver} in the catalog",
            hint="name the program that has the package write the statements of its modules",
        )
    if modules.default_set not in modules.sets:
        yield written.fault(
            "unknown-module-set",
            ("modules", "default-set"),
            f"there is no set `{modules.default_set}` among the recipe's own",
            hint=hint(modules.default_set, modules.sets),
        )


def check_targets(targets: Shelf[Target], stacks: Shelf[Stack], toolkits: Shelf[Toolkit]) -> Iterator[Finding]:
    """Yield the faults of targets."""
    for written in targets:
        target = written.model
        if target.default_stack is not None:
            yield from _known(written, target.default_stack, stacks, ("default-stack",))
        if target.toolkit is not None:
            yield from _known(written, target.toolkit, toolkits, ("toolkit",))
        if target.toolkit is not None and target.kind != "cuda":
            yield written.fault(
                "invalid-value",
                ("toolkit",),
                f"a target of kind {target.kind} is not compiled with a CUDA toolkit",
                hint="leave `toolkit` out",
            )
        if target.kind == "cuda" and not target.arch_list:
            yield written.fault(
                "missing-key",
                (),
                "a target of kind cuda lacks the key `arch-list`",
                hint='arch-list: GPU architectures, as the compiler spells them: ["12.0f"]',
            )


def check_stacks(
    root: Path,
    stacks: Shelf[Stack],
    *,
    packages: Shelf[PackageRecipe],
    targets: Shelf[Target],
    toolkits: Shelf[Toolkit],
    profiles: Shelf[Profile],
) -> Iterator[Finding]:
    """Yield the faults of stacks."""
    for written in stacks:
        for name, package in written.model.packages.items():
            key: KeyPath = ("packages", name)
            yield from _known(written, name, packages, key)
            recipe = packages.written.get(name)
            yield from _package(root, written, package, key, recipe)
            if recipe and package.source.method == "pep517":
                yield from _dependencies(written, name, recipe.model.depends, key)
            for index, target in enumerate(package.targets):
                yield from _known(written, target, targets, (*key, "targets", index))
        for name, environment in written.model.environments.items():
            key = ("environments", name)
            yield from _known(written, name, targets, key)
            yield from _environment(written, environment, key, name, profiles)
            yield from _cuda_of_torch(written, environment, key, name, targets, toolkits)


def check_profiles(profiles: Shelf[Profile], targets: Shelf[Target]) -> Iterator[Finding]:
    """Yield the faults of profiles."""
    for written in profiles:
        yield from _known(written, written.model.target, targets, ("target",))


def _package(
    root: Path,
    written: Written[Stack],
    package: StackPackage,
    key: KeyPath,
    recipe: Written[PackageRecipe] | None,
) -> Iterator[Finding]:
    source = package.source
    if isinstance(source, PathSource):
        yield from _folder(root, written, source.path, (*key, "source", "path"))
        if recipe and any(variables.uses(text, "version") for text in recipe.model.environment.values()):
            yield written.fault(
                "invalid-value",
                (*key, "source"),
                f"the recipe of `{recipe.model.name}` writes {{version}} into a variable, and a folder has no version",
                hint="take the package from git or a release, or write the version into the recipe",
            )
    if isinstance(source, GitSource):
        yield from _seen(written, source, (*key, "source"))
    if recipe and source.kind in {"sdist", "path"} and not recipe.model.build_requires:
        yield recipe.fault(
            "missing-key",
            (),
            f"stack `{written.model.name}` builds it from source, the recipe lacks `build-requires`",
            hint='build-requires: requirements of the build environment, such as ["hatchling"]',
        )


def _dependencies(written: Written[Stack], name: str, depends: list[str], key: KeyPath) -> Iterator[Finding]:
    """Yield what keeps packages from being there when another one is built with them."""
    entries = written.model.packages
    order = list(entries)
    for needed in depends:
        entry = entries.get(needed)
        if entry is None:
            what = f"the stack does not have `{needed}`"
        elif needed == name:
            what = "it cannot be built before itself"
        elif order.index(needed) >= order.index(name):
            what = f"`{needed}` does not stand before it"
        elif entry.targets and not set(entries[name].targets or written.model.environments) <= set(entry.targets):
            what = f"`{needed}` is for target {', '.join(entry.targets)} only"
        else:
            continue
        yield written.fault(
            "dependency-missing",
            key,
            f"package `{name}` is built with `{needed}` installed, and {what}",
            hint="take it out of `depends`"
            if needed == name
            else f"put `{needed}` before `{name}` in the stack, for the same targets",
        )


def _variables(written: Written[PackageRecipe]) -> Iterator[Finding]:
    for name, text in written.model.environment.items():
        place: KeyPath = ("environment", name)
        for what, hint_text in _about_variable(name, text):
            yield written.fault("invalid-value", place, f"`environment.{name}`: {what}", hint=hint_text)


def _about_variable(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a variable of a build, and what to do."""
    if name in variables.OWN:
        yield "it is set for every build in the same way", "leave it out; no recipe can change it"
    if name in variables.JOBS:
        yield "how many jobs run at once is a matter of the machine", "leave it out, and use --jobs"
    if "\0" in text:
        yield "a variable cannot hold a zero byte", "leave it out"
    for what in variables.wrong_placeholders(text):
        known = ", ".join(f"{{{placeholder}}}" for placeholder in variables.PLACEHOLDERS)
        yield f"{text!r} {what}", f"known: {known}; write {{{{ and }}}} for braces"


def _seen(written: Written[Stack], source: GitSource, key: KeyPath) -> Iterator[Finding]:
    """Yield the fault of a package that its own build would not see."""
    folder, paths = source.subdirectory, source.source_paths
    if folder and paths and not any(folder == path or folder.startswith(f"{path}/") for path in paths):
        yield written.fault(
            "invalid-value",
            (*key, "source-paths"),
            f"the build does not see its own folder: `subdirectory` {folder} lies in none of `source-paths`",
            hint=f'add "{folder}" to `source-paths`',
        )


def _environment(
    written: Written[Stack],
    environment: StackEnvironment,
    key: KeyPath,
    target: str,
    profiles: Shelf[Profile],
) -> Iterator[Finding]:
    if len(set(environment.pythons)) < len(environment.pythons):
        yield written.fault(
            "invalid-value",
            (*key, "pythons"),
            f"`pythons` of environment `{target}` names a Python twice",
            hint="name each Python minor once, the preferred one first",
        )
    yield from _requirements(written, environment.requirements, (*key, "requirements"))
    if environment.smoke_profile is None:
        return
    place = (*key, "smoke-profile")
    yield from _known(written, environment.smoke_profile, profiles, place)
    profile = profiles.written.get(environment.smoke_profile)
    if profile and profile.model.target != target:
        yield written.fault(
            "invalid-value",
            place,
            f"profile `{profile.model.name}` is for target `{profile.model.target}`, not for `{target}`",
            hint=f"name a profile whose target is `{target}`",
        )


def _cuda_of_torch(
    written: Written[Stack],
    environment: StackEnvironment,
    key: KeyPath,
    name: str,
    targets: Shelf[Target],
    toolkits: Shelf[Toolkit],
) -> Iterator[Finding]:
    """Yield the fault of a torch that is built for another CUDA than what is compiled beside it."""
    target = targets.written.get(name)
    toolkit = toolkits.written.get(target.model.toolkit) if target and target.model.toolkit else None
    if toolkit is None:
        return
    release, torch = toolkit.model.release, environment.torch
    if major(cuda_of_variant(torch.variant)) != major(release):
        yield written.fault(
            "torch-cuda-mismatch",
            (*key, "torch"),
            f"torch {torch.version}+{torch.variant} is not built for CUDA {major(release)}, "
            f"and target `{name}` is compiled with toolkit {toolkit.model.name}",
            hint=f"take the variant cu{release.replace('.', '')}, or a toolkit of torch's CUDA",
        )


def _requirements(written: Written[N], requirements: list[str], key: KeyPath) -> Iterator[Finding]:
    for index, text in enumerate(requirements):
        place = (*key, index)
        if plain := _PLAIN_REQUIREMENT.fullmatch(text):
            name = plain[1]
        else:
            from packaging.requirements import InvalidRequirement, Requirement

            try:
                name = Requirement(text).name
            except InvalidRequirement as error:
                yield written.fault(
                    "bad-requirement",
                    place,
                    f"{text!r} is not a requirement: {str(error).splitlines()[0]}",
                    hint='write it as PEP 508 says: "name", "name==1.2" or "name[extra]>=1,<2"',
                )
                continue
        if key[-1] in _TORCH_PLACES and name.lower() == "torch":
            yield written.fault(
                "invalid-value",
                place,
                "torch among the requirements: it is installed first and never resolved",
                hint=f"say its version and variant in {_TORCH_PLACES[str(key[-1])]}",
            )


def _known(
    written: Written[N],
    name: str,
    shelf: Shelf[PackageRecipe] | Shelf[Target] | Shelf[Toolkit] | Shelf[Stack] | Shelf[Profile],
    key: KeyPath,
) -> Iterator[Finding]:
    if name not in shelf.names:
        yield written.fault(
            UNKNOWN[shelf.kind], key, f"there is no {shelf.kind} `{name}`", hint=hint(name, shelf.names)
        )


def _folder(root: Path, written: Written[N], path: str, key: KeyPath) -> Iterator[Finding]:
    folder = root / path
    if not folder.is_dir():
        beside = [entry.name for entry in folder.parent.iterdir()] if folder.parent.is_dir() else []
        yield written.fault(
            "folder-missing", key, f"there is no folder {path} in the catalog", hint=hint(folder.name, beside)
        )
