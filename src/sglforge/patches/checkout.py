"""The tree that is patched: read inside it only, edited in memory, written together at the end."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sglforge.errors import PatchError
from sglforge.patches.faults import drifted
from sglforge.patches.pytext import PythonText, read
from sglforge.trees.layout import either_layout

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A source tree and what was read of it: ``root`` is a real path, files are names relative to it."""

    root: Path
    _read: dict[str, PythonText] = field(default_factory=dict)

    def locate(self, files: Sequence[str]) -> str:
        """Return the real name of the one file of several places that is in the tree, links followed.

        A place is looked for at the tree's root and, in the other layout that SGLang comes in, with or without
        the repository's ``python/`` in front.

        Raises PatchError ``patch-path-unsafe`` when a place leads out of the tree, ``patch-target-ambiguous`` when
        two are there, ``patch-target-moved`` and ``patch-drifted`` when none is.
        """
        places = [PurePosixPath(place) for file in files for place in either_layout(self.root, file)]
        found = dict.fromkeys(name for place in places if (name := self._real(place)))
        if len(found) > 1:
            raise PatchError(
                code="patch-target-ambiguous",
                message=f"the tree has {' and '.join(found)}: the edit is for one of them",
                hint="name one file, or one edit for each with its own `versions`",
            )
        if not found:
            raise self._missing([PurePosixPath(file) for file in files])
        return next(iter(found))

    def original(self, file: str) -> PythonText:
        """Return a file of the tree as it lies there; ``file`` is a name from :meth:`locate`.

        Raises PatchError ``patch-target-unreadable``.
        """
        if file not in self._read:
            self._read[file] = read((self.root / file).read_bytes(), file)
        return self._read[file]

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write files whole: each under a temporary name beside it, then all of them renamed; modes stay.

        Raises PatchError ``patch-not-written``; the tree is then as it was.
        """
        drafts: dict[Path, Path] = {}
        published: list[tuple[Path, bytes]] = []
        try:
            for file, content in contents.items():
                path = self.root / file
                drafts[path] = _draft(path, content)
            for path, draft in drafts.items():
                old = path.read_bytes()
                draft.replace(path)
                published.append((path, old))
        except OSError as error:
            for path, old in published:
                _draft(path, old).replace(path)
            raise PatchError(
                code="patch-not-written",
                message=f"cannot write {error.filename}: {error.strerror}",
                hint="the tree must be writable and the disk must have room; the tree is as it was",
            ) from error
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)

    def defining(self, name: str) -> tuple[str, ...]:
        """Return where else in the tree a function or class of that name is defined, as ``file:line``."""
        pattern = re.compile(rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b".encode(), re.MULTILINE)
        found: list[str] = []
        for path in sorted(self.root.rglob("*.py")):
            with suppress(OSError):
                content = path.read_bytes()
                for match in pattern.finditer(content):
                    line = content.count(b"\n", 0, match.start()) + 1
                    found.append(f"{path.relative_to(self.root).as_posix()}:{line}")
            if len(found) >= _SHOWN:
                break
        return tuple(found[:_SHOWN])

    def _real(self, name: PurePosixPath) -> str | None:
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise _unsafe(f"{str(name)!r} is not a path inside the tree")
        try:
            real = (self.root / name).resolve()
        except (OSError, RuntimeError) as error:
            raise _unsafe(f"{name} cannot be followed: {error}") from error
        if not real.is_relative_to(self.root):
            raise _unsafe(f"{name} is a link out of the tree, to {real}")
        if real.is_file():
            return real.relative_to(self.root).as_posix()
        if (self.root / name).is_symlink():
            raise _unsafe(f"{name} is a link that leads nowhere")
        return None

    def _missing(self, names: Sequence[PurePosixPath]) -> PatchError:
        last = dict.fromkeys(name.name for name in names)
        same = sorted(path.relative_to(self.root).as_posix() for name in last for path in self.root.rglob(name))
        wanted = " or ".join(str(name) for name in names)
        if not same:
            return drifted(f"the tree has no file {wanted}")
        return PatchError(
            code="patch-target-moved",
            message=f"the tree has no file {wanted}; files of that name: {', '.join(same[:_SHOWN])}",
            hint="add the file's new place to the edit's `file`, if it is the same file",
        )


def open_checkout(tree: Path) -> Checkout:
    """Return a tree to work on.

    Raises PatchError ``tree-missing`` when there is no such folder.
    """
    if not tree.is_dir():
        raise PatchError(
            code="tree-missing",
            message=f"there is no source tree {tree}",
            hint="name an unpacked source tree",
        )
    return Checkout(root=tree.resolve())


def _draft(path: Path, content: bytes) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    mode = stat.S_IMODE(path.stat().st_mode)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
    return draft


def _unsafe(message: str) -> PatchError:
    return PatchError(
        code="patch-path-unsafe",
        message=message,
        hint="a topic edits files of the tree, by relative paths, and no others",
    )
