"""Other repositories inside the paths that a build sees."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

from sglforge.base.download import redact
from sglforge.config.lockfile import LockedSubmodule
from sglforge.errors import LockError
from sglforge.sources.git import trees
from sglforge.sources.git.mirror import Mirror

_FILE = ".gitmodules"
DEEPEST = 8
"""How many repositories may lie in one another."""
_SCP = re.compile(r"(?P<host>(?:[^/@:\s]+@)?[^/:\s]{2,}):(?P<path>[^\s]*)")
_SECTION = re.compile(r"submodule\.(?P<name>.*)\.(?P<key>path|url)", re.DOTALL)

Bring = Callable[[str, str, Sequence[str]], Mirror]
"""Returns the mirror of a URL that holds a commit, with the files below some paths of it."""


def submodules(
    mirror: Mirror, commit: str, paths: Iterable[str], *, bring: Bring, inside: str = "", depth: int = 0
) -> Iterator[LockedSubmodule]:
    """Yield the submodules below some paths of a commit, and those in them, with their URLs made absolute.

    Args:
        mirror: The repository.
        commit: The commit.
        paths: What of it is seen.
        bring: How to get a submodule's mirror.
        inside: Where the repository lies in the outermost one.
        depth: How many repositories it lies in.

    Raises LockError ``submodule-unknown``, ``submodule-unsafe`` and ``git-ref-missing``; FetchError.
    """
    links = {
        name: entry.id for name, entry in trees.files(mirror, commit, paths).items() if entry.mode == trees.SUBMODULE
    }
    if not links:
        return
    if depth == DEEPEST:
        raise _unsafe(f"{inside}: more than {DEEPEST} repositories lie in one another")
    urls = _urls(bring(mirror.url, commit, (_FILE,)), commit)
    for name, its_commit in sorted(links.items()):
        path = f"{inside}{name}"
        if name not in urls:
            raise LockError(
                code="submodule-unknown",
                message=f"{path} is a commit of another repository, and .gitmodules of {redact(mirror.url)} "
                f"at {commit[:12]} does not say of which",
                hint="leave the folder out of `source-paths`, or lock a commit that says it",
            )
        url = absolute(urls[name], mirror.url)
        yield LockedSubmodule(path=path, url=url, commit=its_commit)
        own = bring(url, its_commit, ())
        yield from submodules(own, its_commit, (trees.WHOLE,), bring=bring, inside=f"{path}/", depth=depth + 1)


def absolute(url: str, parent: str) -> str:
    """Return a URL of ``.gitmodules`` as what git clones: one that begins with ``./`` or ``../`` is beside the parent.

    Raises LockError ``submodule-unsafe`` for folders of this machine, if the parent is none, and for programs.
    """
    relative = url.startswith(("./", "../"))
    odd = not url or "::" in url or url.startswith("-") or not url.isprintable() or " " in url
    if odd or (not relative and _is_local(url) and not (_is_local(parent) and url.startswith(("/", "file:")))):
        raise _unsafe(f"{redact(parent)} names {redact(url)!r} as a submodule")
    return _beside(url, parent) if relative else url


def _beside(url: str, parent: str) -> str:
    base = parent.rstrip("/")
    if "://" in base:
        parts = urlsplit(base)
        path = _joined(parts.path, url, parent)
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    if match := _SCP.fullmatch(base):
        return f"{match['host']}:{_joined(match['path'], url, parent)}"
    return _joined(base, url, parent)


def _joined(path: str, relative: str, parent: str) -> str:
    above = len([part for part in path.split("/") if part])
    if relative.split("/").count("..") > above:
        raise _unsafe(f"{redact(parent)} names {relative!r} as a submodule, which leads out of its host")
    return posixpath.normpath(posixpath.join(path, relative))


def _is_local(url: str) -> bool:
    return url.startswith("file:") or ("://" not in url and not _SCP.fullmatch(url))


def _urls(mirror: Mirror, commit: str) -> Mapping[str, str]:
    """Return the URL of each path that ``.gitmodules`` names."""
    entry = trees.files(mirror, commit, (_FILE,)).get(_FILE)
    if entry is None or entry.mode not in {"100644", "100755"}:
        return {}
    said = mirror.read("config", f"--blob={entry.id}", "--list", "-z")
    found: dict[str, dict[str, str]] = {}
    for line in said.split("\0"):
        key, _, value = line.partition("\n")
        if match := _SECTION.fullmatch(key):
            found.setdefault(match["name"], {})[match["key"]] = value
    return {one["path"].rstrip("/"): one["url"] for one in found.values() if "path" in one and "url" in one}


def _unsafe(what: str) -> LockError:
    return LockError(
        code="submodule-unsafe",
        message=what,
        hint="leave the folder out of `source-paths`, or lock a commit that does not",
    )
