"""Folders as sources: one digest over what counts, and a copy of just that."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import Sha256
from sglforge.errors import FetchError

IGNORED = frozenset(
    {".git", ".hypothesis", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".venv", "__pycache__"}
)
IGNORED_AT_THE_TOP = frozenset({"build", "dist"})
IGNORED_SUFFIXES = (".egg-info", ".pyc")


def digest_folder(folder: Path) -> Sha256:
    """Return one hash over a folder's files: relative names, executable bits, link targets and contents.

    What builds and caches leave behind does not count, nor do times, owners and empty folders, so that any
    checkout of the same commit gives the same hash.

    Raises FetchError ``source-path-missing`` and ``source-path-unsafe``.
    """
    return digest([_describe(folder, relative) for relative in _files(folder)])


def copy_folder(folder: Path, into: Path) -> None:
    """Copy what :func:`digest_folder` counts into a new folder.

    Raises FetchError ``source-path-missing`` and ``source-path-unsafe``.
    """
    into.mkdir(parents=True)
    for relative in _files(folder):
        target = into / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / relative, target, follow_symlinks=False)


def level(folder: Path, *, time_s: int) -> None:
    """Give everything in a folder the same time, and modes that say only whether it can be executed.

    What an archive, a checkout or the umask says of times and modes would reach whatever a build writes down of them.

    Args:
        folder: A private copy.
        time_s: The time, in seconds since the epoch.
    """
    for current, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = f"{current}/{name}"
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                os.chmod(path, 0o755 if mode & 0o100 else 0o644)  # noqa: PTH101 - thousands: no Path for each
            os.utime(path, (time_s, time_s), follow_symlinks=False)
        os.chmod(current, 0o755)  # noqa: PTH101, S103 - private is the folder that it lies in
        os.utime(current, (time_s, time_s))


def _describe(folder: Path, relative: str) -> list[str]:
    path = folder / relative
    if path.is_symlink():
        return [relative, "link", path.readlink().as_posix()]
    return [relative, "program" if path.stat().st_mode & 0o100 else "file", sha256_file(path)]


def _files(folder: Path) -> Iterator[str]:
    """Yield the relative names that count, sorted."""
    if not folder.is_dir():
        raise FetchError(
            code="source-path-missing",
            message=f"there is no source folder {folder}",
            hint="correct `path` in the stack; it is relative to the catalog's root",
        )
    root = folder.resolve()
    names = []
    for current, folders, files in os.walk(folder):
        at_the_top = Path(current) == folder
        folders[:] = [name for name in folders if _counts(name, at_the_top=at_the_top)]
        links = [name for name in folders if Path(current, name).is_symlink()]
        names += [
            Path(current, name).relative_to(folder).as_posix()
            for name in (*files, *links)
            if _counts(name, at_the_top=at_the_top)
        ]
    for name in sorted(names):
        path = folder / name
        if not name.isprintable():  # also false for bytes that are not UTF-8
            raise _unsafe(path, "has a name that does not survive every tool")
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise _unsafe(path, "points out of the folder, at what the build key does not see")
        if not path.is_symlink() and not path.is_file():
            raise _unsafe(path, "is neither a file nor a folder")
        yield name


def _counts(name: str, *, at_the_top: bool) -> bool:
    ignored = name in IGNORED or name.endswith(IGNORED_SUFFIXES) or (at_the_top and name in IGNORED_AT_THE_TOP)
    return not ignored


def _unsafe(path: Path, what: str) -> FetchError:
    return FetchError(
        code="source-path-unsafe",
        message=f"{path.name} {what}",
        where=str(path),
        hint="replace it by a file, or keep it out of the source folder",
    )
