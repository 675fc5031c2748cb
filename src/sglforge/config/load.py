"""Load a catalog: every recipe, target, stack and profile, checked against each other in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sglforge.config.crosscheck import check_packages, check_profiles, check_stacks, check_targets, check_toolkits
from sglforge.config.model import PackageRecipe, Profile, Stack, Target, Toolkit
from sglforge.config.parse import invalid
from sglforge.config.shelf import read_shelf
from sglforge.config.suggest import UNKNOWN, Kind, hint
from sglforge.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What people wrote, valid as a whole; ``root`` holds recipes/, patches/, locks/ and the rest."""

    root: Path
    packages: Mapping[str, PackageRecipe]
    targets: Mapping[str, Target]
    toolkits: Mapping[str, Toolkit]
    stacks: Mapping[str, Stack]
    profiles: Mapping[str, Profile]

    def stack(self, name: str) -> Stack:
        """Return a stack by name; raises ConfigError ``unknown-stack``."""
        return _named("stack", name, self.stacks)

    def target(self, name: str) -> Target:
        """Return a target by name; raises ConfigError ``unknown-target``."""
        return _named("target", name, self.targets)

    def toolkit(self, target: Target) -> Toolkit | None:
        """Return the CUDA toolkit that a target is compiled with; None where it names none."""
        return self.toolkits[target.toolkit] if target.toolkit else None

    def profile(self, name: str) -> Profile:
        """Return a profile by name; raises ConfigError ``unknown-profile``."""
        return _named("profile", name, self.profiles)


def load_catalog(root: Path) -> Catalog:
    """Read every file under ``root/recipes``.

    Raises ConfigError ``catalog-missing`` when there is no such folder, else ``config-invalid`` with every
    fault of every file.
    """
    recipes = root / "recipes"
    if not recipes.is_dir():
        raise ConfigError(
            code="catalog-missing",
            message=f"no recipes in {root}",
            where=str(recipes),
            hint="run it in a checkout of sglforge, or install sglforge, which brings its recipes",
        )
    packages = read_shelf(recipes / "packages", PackageRecipe, kind="package")
    targets = read_shelf(recipes / "targets", Target, kind="target")
    toolkits = read_shelf(recipes / "toolkits", Toolkit, kind="toolkit")
    stacks = read_shelf(recipes / "stacks", Stack, kind="stack")
    profiles = read_shelf(recipes / "profiles", Profile, kind="profile")
    faults = (
        *packages.faults,
        *targets.faults,
        *toolkits.faults,
        *stacks.faults,
        *profiles.faults,
        *check_packages(root, packages),
        *check_targets(targets, stacks, toolkits),
        *check_toolkits(toolkits),
        *check_stacks(root, stacks, packages=packages, targets=targets, toolkits=toolkits, profiles=profiles),
        *check_profiles(profiles, targets),
    )
    if faults:
        raise invalid(faults)
    return Catalog(
        root=root,
        packages={written.model.name: written.model for written in packages},
        targets={written.model.name: written.model for written in targets},
        toolkits={written.model.name: written.model for written in toolkits},
        stacks={written.model.name: written.model for written in stacks},
        profiles={written.model.name: written.model for written in profiles},
    )


def _named(kind: Kind, name: str, known: Mapping[str, T]) -> T:
    try:
        return known[name]
    except KeyError:
        raise ConfigError(
            code=UNKNOWN[kind],
            message=f"there is no {kind} `{name}`",
            context={"known": ", ".join(sorted(known)) or "none"},
            hint=hint(name, known),
        ) from None
