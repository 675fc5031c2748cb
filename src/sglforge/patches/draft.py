"""A tree as it will be: files of the checkout with the changes made so far, all in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from sglforge.patches.checkout import Checkout, File
from sglforge.patches.faults import drifted
from sglforge.patches.pytext import PythonText
from sglforge.trees.layout import either_layout, package_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A checkout and what is changed of it: a file's new state, or None where it is deleted."""

    checkout: Checkout
    changed: Mapping[str, File | None] = field(default_factory=lambda: MappingProxyType({}))

    def locate(self, files: Sequence[str]) -> str:
        """Return the name of the one file of several places that is in the tree.

        Raises PatchError as :meth:`Checkout.locate` does.
        """
        return self.checkout.locate(files, self.has)

    def place(self, name: str) -> str:
        """Return the real name of a file that a diff names, or where such a file would go.

        Raises PatchError ``patch-path-unsafe``, ``patch-target-ambiguous`` and, for a link, ``patch-drifted``.
        """
        root, names = self.checkout.root, []
        for way in either_layout(root, name):
            real = self.checkout.real_name(way)
            if (root / way).is_symlink():
                raise drifted(f"{way} is a link to {real}, and the diff takes it for a file")
            names.append(real)
        if any(self.has(real) for real in names):
            return self.locate([name])
        named, *other = names
        if other and not (root / PurePosixPath(named).parts[0]).is_dir():
            inside = PurePosixPath(other[0]).parts[: len(package_root(root).parts) + 1]
            if (root / PurePosixPath(*inside)).is_dir():
                return other[0]
        return named

    def has(self, file: str) -> bool:
        """Tell whether the tree has a file of a real name."""
        return self.changed[file] is not None if file in self.changed else self.checkout.has(file)

    def read(self, file: str) -> File | None:
        """Return a file's state, None where there is none; ``file`` is a real name."""
        return self.changed[file] if file in self.changed else self.checkout.original(file)

    def python(self, file: str) -> PythonText:
        """Return a file as Python; one that is not there is empty.

        Raises PatchError ``patch-target-unreadable``.
        """
        state = self.read(file)
        return self.checkout.parsed(file, state.raw if state else b"")

    def with_bytes(self, file: str, raw: bytes) -> Draft:
        """Return the tree with another content of a file; its mode stays."""
        old = self.read(file)
        return self.with_files({file: File(raw=raw, executable=old.executable if old else False)})

    def with_python(self, source: PythonText) -> Draft:
        """Return the tree with a Python file that was edited."""
        self.checkout.remember(source)
        return self.with_bytes(source.file, source.raw)

    def with_files(self, files: Mapping[str, File | None]) -> Draft:
        """Return the tree with files changed, added or (None) deleted."""
        return Draft(checkout=self.checkout, changed=MappingProxyType({**self.changed, **files}))

    def since(self, before: Draft) -> tuple[str, ...]:
        """Return the files that differ from an earlier draft of the same tree."""
        return tuple(sorted(file for file in self.changed if self.read(file) != before.read(file)))

    def texts(self) -> Mapping[str, PythonText]:
        """Return the Python files that are changed, by their names.

        Raises PatchError ``patch-target-unreadable``.
        """
        return {file: self.python(file) for file in self.modules(Draft(checkout=self.checkout))}

    def modules(self, before: Draft) -> Iterator[str]:
        """Yield the Python files that differ from an earlier draft and are still there."""
        for file in self.since(before):
            if PurePosixPath(file).suffix in {".py", ".pyi"} and self.has(file):
                yield file
