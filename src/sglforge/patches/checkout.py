"""The tree that is patched: read inside it only, edited in memory, written together at the end."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sglforge.errors import PatchError
from sglforge.patches.faults import drifted, unsafe
from sglforge.patches.history import History, history_of
from sglforge.patches.pytext import PythonText, read
from sglforge.trees.layout import either_layout

_SHOWN = 5
State = tuple[bytes, int]
"""A file on disk: its bytes and its mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """What git keeps of a file: its bytes, and whether it may be run."""

    raw: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A source tree and what was read of it: ``root`` is a real path, files are names relative to it.

    ``history`` is what git knows about it, None where it is in no repository.
    """

    root: Path
    history: History | None = None
    _read: dict[str, File | None] = field(default_factory=dict)
    _parsed: dict[tuple[str, bytes], PythonText] = field(default_factory=dict)

    def locate(self, files: Sequence[str], has: Callable[[str], bool] | None = None) -> str:
        """Return the real name of the one file of several places that is in the tree, links followed.

        A place is looked for at the tree's root and, in the other layout that SGLang comes in, with or without
        the repository's ``python/`` in front. ``has`` tells which names count as files, by default those on disk.

        Raises PatchError ``patch-path-unsafe`` when a place leads out of the tree, ``patch-target-ambiguous`` when
        two are there, ``patch-target-moved`` and ``patch-drifted`` when none is.
        """
        names = dict.fromkeys(self.real_name(place) for file in files for place in either_layout(self.root, file))
        found = [name for name in names if (has or self.has)(name)]
        if len(found) > 1:
            raise PatchError(
                code="patch-target-ambiguous",
                message=f"the tree has {' and '.join(found)}: the edit is for one of them",
                hint="name one file, or one edit for each with its own `versions`",
            )
        if not found:
            raise self.missing(files)
        return found[0]

    def real_name(self, place: str) -> str:
        """Return the name that a place really has, links followed; there need not be a file.

        Raises PatchError ``patch-path-unsafe`` when it leads out of the tree or nowhere.
        """
        name = PurePosixPath(place)
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise unsafe(f"{place!r} is not a path inside the tree")
        try:
            real = (self.root / name).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise unsafe(f"{place!r} cannot be followed: {error}") from error
        if not real.is_relative_to(self.root):
            raise unsafe(f"{name} is a link out of the tree, to {real}")
        if (self.root / name).is_symlink() and not real.exists():
            raise unsafe(f"{name} is a link that leads nowhere")
        return real.relative_to(self.root).as_posix()

    def has(self, file: str) -> bool:
        """Tell whether a real name is a file on disk."""
        return (self.root / file).is_file()

    def original(self, file: str) -> File | None:
        """Return a file as it lies in the tree, None where there is none; ``file`` is a real name."""
        if file not in self._read:
            path = self.root / file
            executable = path.is_file() and bool(path.stat().st_mode & stat.S_IXUSR)
            self._read[file] = File(raw=path.read_bytes(), executable=executable) if path.is_file() else None
        return self._read[file]

    def parsed(self, file: str, raw: bytes) -> PythonText:
        """Return bytes as a Python file; what was parsed once is not parsed again.

        Raises PatchError ``patch-target-unreadable``.
        """
        if (file, raw) not in self._parsed:
            self.remember(read(raw, file))
        return self._parsed[file, raw]

    def remember(self, source: PythonText) -> None:
        """Keep a text that is parsed already."""
        self._parsed[source.file, source.raw] = source

    def write(self, files: Mapping[str, File | None]) -> None:
        """Write files whole, each under a temporary name beside it, then all of them renamed; None deletes one.

        Modes stay, but for the right to run a file. Folders are made where they lack, and go with their last file.

        Raises PatchError ``patch-not-written``; the tree is then as it was.
        """
        before = {self.root / name: _state(self.root / name) for name in files}
        drafts: dict[Path, Path] = {}
        made: list[Path] = []
        published: list[Path] = []
        try:
            for name, file in files.items():
                path = self.root / name
                if file is not None:
                    made += _make_folders(path.parent)
                    drafts[path] = _draft(path, file.raw, _mode(file, before[path]))
            for path in before:
                published.append(path)
                _publish(path, drafts.get(path))
        except OSError as error:
            _restore({path: before[path] for path in published}, drafts.values(), made)
            raise PatchError(
                code="patch-not-written",
                message=f"cannot write {error.filename}: {error.strerror}",
                hint="the tree must be writable and the disk must have room; the tree is as it was",
            ) from error
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)
        for path in before.keys() - drafts.keys():
            _drop_empty_folders(path.parent, self.root)

    def is_altered(self, file: str) -> bool:
        """Tell whether git or an unpacked wheel's RECORD says that a file had another content; False: nothing does."""
        if self.history and self.history.is_changed(file):
            return True
        original = self.original(file)
        for record in self.root.glob("*.dist-info/RECORD"):
            for row in csv.reader(record.read_text(encoding="utf-8", errors="replace").splitlines()):
                if row[:1] == [file] and len(row) > 1 and row[1].startswith("sha256="):
                    return original is None or _record_hash(original.raw) != row[1]
        return False

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

    def missing(self, files: Sequence[str]) -> PatchError:
        """Return the fault of a file that is in none of its places: moved when others have its name, else gone."""
        last = {PurePosixPath(file).name for file in files}
        same = sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.name in last)
        wanted = " or ".join(files)
        if not same:
            return drifted(f"the tree has no file {wanted}")
        return PatchError(
            code="patch-target-moved",
            message=f"the tree has no file {wanted}; files of that name: {', '.join(same[:_SHOWN])}",
            hint="add the file's new place to the edit's `file`, if it is the same file",
        )


def open_checkout(tree: Path, origin: Path | None = None) -> Checkout:
    """Return a tree to work on; ``origin`` is the folder that it is a copy of, if it is one.

    Raises PatchError ``tree-missing`` when there is no such folder.
    """
    if not tree.is_dir():
        raise PatchError(
            code="tree-missing",
            message=f"there is no source tree {tree}",
            hint="name an unpacked source tree",
        )
    return Checkout(root=tree.resolve(), history=history_of(origin or tree))


def _record_hash(raw: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


def _draft(path: Path, content: bytes, mode: int) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
    return draft


def _state(path: Path) -> State | None:
    return (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) if path.is_file() else None


def _mode(file: File, old: State | None) -> int:
    if old is None:
        return 0o755 if file.executable else 0o644
    mode = old[1]
    if file.executable == bool(mode & stat.S_IXUSR):
        return mode
    return mode | (mode & 0o444) >> 2 if file.executable else mode & ~0o111


def _publish(path: Path, draft: Path | None) -> None:
    if draft is None:
        path.unlink(missing_ok=True)
    else:
        draft.replace(path)


def _restore(before: Mapping[Path, State | None], drafts: Iterable[Path], made: Sequence[Path]) -> None:
    for draft in drafts:
        draft.unlink(missing_ok=True)
    for path, old in before.items():
        if old is None:
            path.unlink(missing_ok=True)
        elif _state(path) != old:
            _draft(path, *old).replace(path)
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder with those above it; return the new ones, the uppermost first."""
    new = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return new[::-1]


def _drop_empty_folders(folder: Path, root: Path) -> None:
    with suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent
