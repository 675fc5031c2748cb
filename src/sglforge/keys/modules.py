"""Modules that are compiled ahead of time: what a plan says of them, and what of that is in the build key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglforge.base.files import digest
from sglforge.base.ids import Sha256
from sglforge.config.lockfile import LockedModules
from sglforge.config.model import Modules, ModuleSet, PackageRecipe, Target
from sglforge.config.suggest import hint
from sglforge.errors import ConfigError, LockError
from sglforge.keys.requirements import unpinned

SHOWN = 32
"""How much of the name of a module people are shown in a list: some are longer than a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModules:
    """The set of modules that a build compiles into a wheel.

    ``name`` is the set's; ``driver`` the program of the catalog that asks the package for their statements,
    ``driver_sha256`` its content; ``architectures`` are the target's; ``locked`` is the driver's environment.
    """

    name: str
    set: ModuleSet
    driver: str
    driver_sha256: Sha256
    into: str
    architectures: tuple[str, ...]
    locked: LockedModules

    def parts(self) -> Mapping[str, object]:
        """Return what decides of them, for the build key; the wheel's version has the name of the set."""
        return {
            "set": self.name,
            "names": sorted(self.set.names),
            "claims": {glob: sorted(names) for glob, names in self.set.claims.items()},
            "into": self.into,
            "driver": self.driver_sha256,
            "torch": f"{self.locked.torch.version}+{self.locked.torch.variant}",
            "requires": {
                pinned.name: {"version": pinned.version, "files": digest(sorted(file.sha256 for file in pinned.files))}
                for pinned in self.locked.requirements
            },
        }

    def claims(self) -> dict[str, tuple[str, ...]]:
        """Return what is claimed of which files of the wheel, as globs."""
        return {self.place(glob): tuple(names) for glob, names in self.set.claims.items()}

    def place(self, module: str) -> str:
        """Return where a module goes in the wheel."""
        return self.into.format(name=module)

    def describe(self) -> str:
        """Return the set in a person's words."""
        names = [name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..." for name in self.set.names]
        return f"modules {self.name}: {', '.join(names)}"

    @property
    def takes(self) -> str:
        """What compiling all of it takes, in words; empty where nobody measured."""
        return f"about {self.set.cpu_minutes:g} CPU minutes" if self.set.cpu_minutes else ""


def compiles_modules(recipe: PackageRecipe, *, method: str, target: Target) -> bool:
    """Say whether modules are compiled into a package: from source, for a target with GPU architectures."""
    return recipe.modules is not None and method == "pep517" and bool(target.arch_list)


def planned_modules(
    recipe: PackageRecipe, *, wanted: str | None, target: Target, locked: LockedModules | None, driver: Sha256
) -> PlannedModules:
    """Return the set of modules that is asked for, or the recipe's default.

    Args:
        recipe: The package's, with a table ``modules``.
        wanted: Name of the set, None for the default.
        target: Whose architectures they are compiled for.
        locked: What the lock pins of the driver's environment.
        driver: Digest of the driver.

    Raises ConfigError ``unknown-module-set``; LockError ``lock-stale`` where the lock does not pin what the recipe
    asks for.
    """
    modules = recipe.modules
    if modules is None:
        raise TypeError(f"{recipe.name} has no modules")
    name = wanted or modules.default_set
    if name not in modules.sets:
        raise ConfigError(
            code="unknown-module-set",
            message=f"{recipe.name} has no set of modules `{name}`",
            context={"known": ", ".join(modules.sets)},
            hint=hint(name, modules.sets),
        )
    return PlannedModules(
        name=name,
        set=modules.sets[name],
        driver=modules.driver,
        driver_sha256=driver,
        into=modules.into,
        architectures=tuple(target.arch_list),
        locked=_current(recipe.name, modules, locked),
    )


def _current(package: str, modules: Modules, locked: LockedModules | None) -> LockedModules:
    pinned = locked.requirements if locked else ()
    missing = list(unpinned(modules.requires, pinned))
    torch = modules.torch
    if locked is None or (locked.torch.version, locked.torch.variant) != (torch.version, torch.variant):
        missing.append(f"torch {torch.version}+{torch.variant}")
    if missing or locked is None:
        raise LockError(
            code="lock-stale",
            message=f"the modules of {package} need {', '.join(missing)}, the lock does not pin that",
            hint="nox -s lock",
        )
    return locked
