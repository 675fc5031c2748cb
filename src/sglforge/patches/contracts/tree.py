"""The patched tree as the contracts read it: edited texts from memory, every other file from the disk."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from sglforge.errors import PatchError
from sglforge.patches.pytext import PythonText, parse


@dataclass(frozen=True, kw_only=True)
class PatchedTree:
    """A source tree with edited texts that are not written yet, and files that are to go.

    ``root`` is a real path; files are names relative to it. Links are not followed: what one leads to inside the
    tree is read under its own name.
    """

    root: Path
    texts: Mapping[str, PythonText]
    gone: frozenset[str] = frozenset()
    _modules: dict[str, ast.Module | None] = field(default_factory=dict)
    _found: dict[str, str | None] = field(default_factory=dict)

    @cached_property
    def sources(self) -> Mapping[str, bytes]:
        """Every Python file of the tree with its bytes, hidden folders left out.

        Raises PatchError ``tree-unreadable``.
        """
        found = {file: text.raw for file, text in self.texts.items()}
        try:
            for file in _python_files(str(self.root), ""):
                if file not in found and file not in self.gone:
                    found[file] = (self.root / file).read_bytes()
        except OSError as error:
            raise PatchError(
                code="tree-unreadable",
                message=f"{error.filename}: {error.strerror or 'cannot be read'}",
                hint="make every Python file of the tree readable",
            ) from error
        return found

    def module(self, file: str) -> ast.Module | None:
        """Return the syntax tree of a file, or None when it is not there or no Python."""
        if file not in self._modules:
            self._modules[file] = self._parsed(file)
        return self._modules[file]

    def module_file(self, importer: str, dotted: str, level: int = 0) -> str | None:
        """Return the file or folder that an import of a file names, or None when it lies outside of the tree.

        Absolute imports are followed inside the importer's own top-level package only; ``level`` counts the dots
        of a relative one.
        """
        parts = tuple(part for part in dotted.split(".") if part)
        folders = PurePosixPath(importer).parent.parts
        if level:
            if level - 1 > len(folders):
                return None
            return self._at((*folders[: len(folders) - level + 1], *parts))
        if not parts or parts[0] not in folders:
            return None
        return self._at((*folders[: folders.index(parts[0])], *parts))

    def inner(self, package: str, name: str) -> str | None:
        """Return the file or folder of a submodule of what :meth:`module_file` found, or None."""
        folder = PurePosixPath(package)
        if folder.suffix == ".py":
            if folder.name != "__init__.py":
                return None
            folder = folder.parent
        return self._at((*folder.parts, name))

    def _at(self, parts: tuple[str, ...]) -> str | None:
        name = "/".join(parts)
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def _look(self, name: str) -> str | None:
        for file in (f"{name}.py", f"{name}/__init__.py"):
            if file in self.texts or (file not in self.gone and (self.root / file).is_file()):
                return file
        return name if name and (self.root / name).is_dir() else None

    def _parsed(self, file: str) -> ast.Module | None:
        if text := self.texts.get(file):
            return text.module
        try:
            return parse((self.root / file).read_bytes()) if file not in self.gone else None
        except (OSError, SyntaxError, ValueError):
            return None


def _python_files(folder: str, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir():
                yield from _python_files(entry.path, f"{prefix}{entry.name}/")
            elif entry.name.endswith(".py") and entry.is_file():
                yield prefix + entry.name
