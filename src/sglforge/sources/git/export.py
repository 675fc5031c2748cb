"""Export what a build sees of a locked commit, and prove that it is what was locked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from sglforge.base.download import redact
from sglforge.base.treeid import Blob, blobs, tree_id_of
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit
from sglforge.errors import FetchError, LockError
from sglforge.sources.git import trees
from sglforge.sources.git.mirror import Mirror, mirror_of
from sglforge.sources.git.worktree import Worktree

_MODES = {"100644": 0o644, "100755": 0o755}


def export(locked: LockedGit, into: Path, *, workspace: Workspace, command: str = "nox -s fetch") -> Path:
    """Write the locked paths of a commit, with their submodules, into a new folder laid out as the repository is.

    Nothing is asked over a network. Every file is hashed as it lies on the disk, and the trees of the locked paths
    are put together from that.

    Args:
        locked: The commit, its paths and their ids.
        into: The new folder.
        workspace: Where the mirrors are.
        command: What brings what is not there, for a hint.

    Returns the folder.

    Raises LockError ``lock-invalid`` where the lock contradicts itself; FetchError ``offline-missing`` for what was
    never fetched, ``mirror-damaged`` for what is not what was locked, ``source-path-unsafe`` for links that lead out.
    """
    paths = [entry.path for entry in locked.paths]
    mirror = _mirror(locked.url, locked.commit, workspace, command)
    if trees.locked_paths(mirror, locked.commit, paths) != locked.paths:
        raise _contradiction(locked, "trees")
    entries = trees.files(mirror, locked.commit, paths)
    modules = []
    linked = _modules(entries)
    for module in locked.submodules:
        own = _mirror(module.url, module.commit, workspace, command)
        modules.append((module, own, trees.files(own, module.commit)))
        linked |= _modules(modules[-1][2], inside=module.path)
    if linked != {module.path: module.commit for module in locked.submodules}:
        raise _contradiction(locked, "submodules")
    tree = _written(mirror, locked.commit, entries, into, command)
    links = _links(tree)
    for entry in locked.paths:
        _require(mirror, entry.path, entry.id, _id_of(trees.within(tree, entry.path), entry.path, tree))
    for module, own, its_entries in modules:
        its_tree = _written(own, module.commit, its_entries, into / module.path, command)
        links += [f"{module.path}/{name}" for name in _links(its_tree)]
        expected = own.read("rev-parse", "--verify", f"{module.commit}^{{tree}}").strip()
        _require(own, module.path, expected, tree_id_of(its_tree))
    _require_inside(into, links)
    return into


def _mirror(url: str, commit: str, workspace: Workspace, command: str) -> Mirror:
    mirror = mirror_of(url, workspace)
    if not mirror.has_commit(commit):
        raise _absent(f"commit {commit[:12]} of {redact(url)} was never fetched", command)
    return mirror


def _written(mirror: Mirror, commit: str, entries: Mapping[str, Blob], into: Path, command: str) -> dict[str, Blob]:
    """Write files and return what is on the disk, submodules as the commit has them."""
    if absent := trees.missing_blobs(mirror, commit, entries):
        raise _absent(
            f"{len(absent)} files of commit {commit[:12]} of {redact(mirror.url)} were never fetched", command
        )
    index = into.with_name(f".{into.name}.index")
    try:
        Worktree(into, index=index).move(mirror, entries)
    finally:
        index.unlink(missing_ok=True)
    modules = {name: entry for name, entry in entries.items() if entry.mode == trees.SUBMODULE}
    for name, entry in entries.items():
        if mode := _MODES.get(entry.mode):
            os.chmod(f"{into}/{name}", mode)  # noqa: PTH101 - whatever the umask is; thousands: no Path for each
    return {**blobs(into), **modules}


def _modules(entries: Mapping[str, Blob], *, inside: str = "") -> dict[str, str]:
    """Return the commits of submodules by their paths in the outermost repository."""
    prefix = f"{inside}/" if inside else ""
    return {f"{prefix}{name}": entry.id for name, entry in entries.items() if entry.mode == trees.SUBMODULE}


def _links(tree: Mapping[str, Blob]) -> list[str]:
    return [name for name, entry in tree.items() if entry.mode == "120000"]


def _id_of(below: Mapping[str, Blob], path: str, tree: Mapping[str, Blob]) -> str:
    return tree[path].id if path in tree else tree_id_of(below)


def _require(mirror: Mirror, path: str, expected: str, found: str) -> None:
    if found != expected:
        raise FetchError(
            code="mirror-damaged",
            message=f"{path} of {redact(mirror.url)} is not what was locked",
            where=str(mirror.path),
            context={"locked": expected, "found": found},
            hint="nox -s fetch makes the mirror again",
        )


def _require_inside(root: Path, names: Iterable[str]) -> None:
    """Refuse links that lead out of the folder: what is behind them is not in the build key."""
    real = root.resolve()
    for name in names:
        if not _leads_inside(root / name, real):
            raise FetchError(
                code="source-path-unsafe",
                message=f"{name} points out of the source, at what the build key does not see",
                hint="leave it out of `source-paths`, or add what it points to",
            )


def _leads_inside(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a circle
        return False


def _contradiction(locked: LockedGit, what: str) -> LockError:
    return LockError(
        code="lock-invalid",
        message=f"the lock names other {what} than commit {locked.commit[:12]} of {redact(locked.url)} has",
        hint="locks are generated: restore it from version control, or make it again: nox -s lock -- --update",
    )


def _absent(what: str, command: str) -> FetchError:
    return FetchError(code="offline-missing", message=what, hint=f"run it once with a network: {command}")
