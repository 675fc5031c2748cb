"""What comes in from the command line, what goes out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import sglforge
from sglforge.base import workspace
from sglforge.base.arguments import shown
from sglforge.base.console import Console
from sglforge.base.workspace import Workspace
from sglforge.errors import ConfigError, Finding, verdict_of

T = TypeVar("T")
_NAMING = frozenset({"install", "verify", "render", "smoke", "tune"})
"""The verbs that take the name of an environment."""
_COMPILING = frozenset({"build", "fetch", "install", "plan", "rebuild"})
"""The verbs that take the name of a set of modules."""
_PATCHING = frozenset({"patch", "drift"})
"""The verbs that take the name of a package with a series."""
_FLAGS = MappingProxyType({"versions": "versions to try"})
"""What to call options that are no words with dashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for; ``options`` holds what only one verb knows."""

    argv: tuple[str, ...]
    catalog_root: Path
    workspace: Workspace
    stack: str | None = None
    target: str = "auto"
    facts_file: Path | None = None
    offline: bool = False
    python: str | None = None
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def option(self, name: str, kind: type[T]) -> T | None:
        """Return an option of the verb, None where it was not given."""
        value = self.options.get(name)
        return value if isinstance(value, kind) else None

    def flag(self, name: str) -> bool:
        """Return whether a switch of the verb was given."""
        return bool(self.options.get(name))

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of a list option."""
        value = self.options.get(name)
        return tuple(str(word) for word in value) if isinstance(value, list) else ()

    def apart(self, option: str, others: Sequence[str], why: str) -> None:
        """Refuse options beside one that makes no use of them: nothing that was asked for is passed over in silence.

        Raises ConfigError ``usage``.
        """
        if given := [name for name in others if self.options.get(name) or (name == "offline" and self.offline)]:
            raise ConfigError(
                code="usage",
                message=f"{option} does not go with {' and '.join(_FLAGS.get(name, f'--{name}') for name in given)}",
                hint=f"{why}: leave one of the two out",
            )

    def command(self, verb: str, *more: str) -> str:
        """Return how to call a verb on the same workspace, stack, target, environment and package, for a hint."""
        words = ["--stack", self.stack] if self.stack and verb != "drift" else []
        words += ["--target", self.target] if self.target != "auto" and verb != "drift" else []
        words += ["--workspace", str(self.workspace.root)] if self.workspace != workspace.locate(None) else []
        if any(word.partition("=")[0] == "--catalog" for word in self.argv):
            words += ["--catalog", str(self.catalog_root)]
        name = self.option("env", str)
        words += ["--env", name] if name and verb in _NAMING else []
        modules = self.option("modules", str)
        words += ["--modules", modules] if modules and verb in _COMPILING else []
        package = self.option("package", str)
        words += ["--package", package] if package and package != "sglang" and verb in _PATCHING else []
        words += more
        return f"nox -s {verb} -- {shlex.join(words)}" if words else f"nox -s {verb}"


def again(argv: Sequence[str]) -> str:
    """Return how to call a verb again with the words that were given, but for what is secret in addresses."""
    argv = shown(argv)
    return f"nox -s {argv[0]} -- {shlex.join(argv[1:])}" if argv[1:] else f"nox -s {argv[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a verb returns: the JSON document, the text for people, the exit code."""

    document: Mapping[str, object]
    text: str = ""
    exit_code: int = 0


def opening(findings: Sequence[Finding], console: Console) -> dict[str, object]:
    """Show findings to people, and return what the document of a verb that judges begins with."""
    for finding in findings:
        console.finding(finding)
    return {
        "schema": 1,
        "verdict": verdict_of(findings),
        "findings": [finding.to_json() for finding in findings],
    }


def find_catalog(explicit: Path | None) -> Path:
    """Return the catalog: the given folder, the checkout around here, or what was installed with sglforge.

    Raises ConfigError ``catalog-missing``.
    """
    if explicit is not None:
        if (explicit / "recipes").is_dir():
            return explicit.absolute()
        raise ConfigError(
            code="catalog-missing",
            message=f"no recipes in {explicit}",
            where=str(explicit),
            hint="name a folder that holds recipes/, patches/, templates/ and locks/",
        )
    here = Path.cwd()
    package = Path(sglforge.__file__).parent
    for folder in (here, *here.parents, package.parents[1], package / "_catalog"):
        if (folder / "recipes" / "stacks").is_dir():
            return folder
    raise ConfigError(
        code="catalog-missing",
        message="no recipes here, in a folder above, or beside the installed sglforge",
        where=str(here),
        hint="run it in a checkout of sglforge, or name one with --catalog DIR",
    )
