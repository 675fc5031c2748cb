"""What a commit has at the paths that a build sees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from sglforge.base.treeid import Blob
from sglforge.config.lockfile import LockedPath
from sglforge.config.model import GitSource
from sglforge.config.suggest import nearest
from sglforge.errors import FetchError, LockError
from sglforge.sources.git.mirror import Mirror

WHOLE = "."
"""The path that stands for a whole repository."""
SUBMODULE = "160000"
"""The mode of an entry that is a commit of another repository."""
_GIT_FOLDER = re.compile(r"(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE)
"""What some file system takes for ``.git``."""
_SHOWN = 12
_FAR = 5000


def seen_paths(source: GitSource) -> tuple[str, ...]:
    """Return the paths that a build sees, sorted: those of the stack, else the package's folder, else all."""
    return tuple(sorted(set(source.source_paths))) or (source.subdirectory or WHOLE,)


def locked_paths(mirror: Mirror, commit: str, paths: Sequence[str]) -> list[LockedPath]:
    """Return each path with the id of its tree or blob in a commit.

    Raises LockError ``git-path-missing``; FetchError ``mirror-damaged``.
    """
    if WHOLE in paths:
        whole = mirror.read("rev-parse", "--verify", f"{commit}^{{tree}}").strip()
        return [LockedPath(path=WHOLE, id=whole)]
    found = {}
    for line in mirror.read("ls-tree", "-t", "-z", "--full-tree", commit, "--", *paths).split("\0"):
        meta, _, name = line.partition("\t")
        found[name] = meta.rpartition(" ")[2]
    for path in paths:
        if path not in found:
            raise _no_path(mirror, commit, path)
    return [LockedPath(path=path, id=found[path]) for path in paths]


def files(mirror: Mirror, commit: str, paths: Iterable[str] = (WHOLE,)) -> dict[str, Blob]:
    """Return every file, link and submodule of a commit below some paths, by its name in the repository.

    Raises FetchError ``source-path-unsafe`` for names that do not survive every tool, ``mirror-damaged``.
    """
    wanted = [path for path in paths if path != WHOLE]
    only = () if WHOLE in paths else tuple(wanted)
    found = {}
    for line in mirror.read("ls-tree", "-r", "-z", "--full-tree", commit, "--", *only).split("\0"):
        if line:
            meta, _, name = line.partition("\t")
            mode, _, one = meta.split(" ")
            _require_safe(name)
            found[name] = Blob(mode=mode, id=one)
    return found


def missing_blobs(mirror: Mirror, commit: str, entries: Mapping[str, Blob]) -> list[str]:
    """Return the ids of those of a commit's files that the mirror does not hold.

    Raises FetchError ``mirror-damaged``.
    """
    # a path after `--` would have git ask whether the commit changes it, so the whole tree is looked at
    words = ("rev-list", "--objects", "--no-object-names", "--missing=print", f"{commit}^{{tree}}")
    absent = {line[1:] for line in mirror.read(*words).splitlines() if line.startswith("?")}
    return sorted(absent & {entry.id for entry in entries.values()})


def within(entries: Mapping[str, Blob], path: str) -> dict[str, Blob]:
    """Return the entries below a folder, named from there; of a file the file itself, under its last name."""
    if path == WHOLE:
        return dict(entries)
    if path in entries:
        return {PurePosixPath(path).name: entries[path]}
    prefix = f"{path}/"
    return {name.removeprefix(prefix): entry for name, entry in entries.items() if name.startswith(prefix)}


def _no_path(mirror: Mirror, commit: str, path: str) -> LockError:
    known = mirror.read("ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", commit).split("\0")[:-1]
    same = [name for name in known if PurePosixPath(name).name == PurePosixPath(path).name]
    near = nearest(path, same) or (same[0] if same else None) or nearest(path, known[:_FAR])
    top = sorted({name.partition("/")[0] for name in known})[:_SHOWN]
    return LockError(
        code="git-path-missing",
        message=f"commit {commit[:_SHOWN]} has no {path}",
        hint=f"did you mean `{near}`?" if near else f"at its top it has: {', '.join(top) or 'nothing'}",
    )


def _require_safe(name: str) -> None:
    parts = name.split("/")
    bad = any(part in {"", ".", ".."} or _GIT_FOLDER.fullmatch(part) or len(part.encode()) > 255 for part in parts)
    if bad or not name.isprintable() or "\ufffd" in name or "\\" in name:
        raise unsafe(name)


def unsafe(name: str) -> FetchError:
    """Return the error for a file that some tool would not take by its name."""
    return FetchError(
        code="source-path-unsafe",
        message=f"{name!r} has a name that does not survive every tool",
        hint="leave it out of the source paths",
    )
