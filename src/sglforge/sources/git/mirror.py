"""Mirrors: bare repositories in the workspace, one for each URL, with the blobs that were asked for."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglforge.base import proc
from sglforge.base.cancel import Cancellation
from sglforge.base.exclusive import Use, exclusive
from sglforge.base.files import digest, publish_directory, remove
from sglforge.base.workspace import Workspace
from sglforge.errors import FetchError
from sglforge.sources.git import commands, faults

Waiting = Callable[[str], None]
"""Told for whom a run waits."""

_ATTRIBUTES = "* -text -eol -crlf -filter -ident -working-tree-encoding\n"
_LOCKED = "refs/locked/"
# Not `origin`: what the user's own configuration says of that name would count here too.
_REMOTE = "mirrored"
_USE = Use(doing="writes to a mirror of a git repository", code="workspace-busy", error=FetchError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A mirror: where its origin is, its bare repository, whether only origins on this machine may be asked, and what
    ends that, which may take long.
    """

    url: str
    path: Path
    offline: bool = False
    cancellation: Cancellation | None = None

    def read(self, *words: str, stdin: str | None = None) -> str:
        """Return what git says about the mirror, which is asked alone.

        Raises FetchError ``mirror-damaged``, ``git-missing``.
        """
        return commands.read(self.path, *words, stdin=stdin)

    def has_commit(self, commit: str) -> bool:
        """Tell whether a commit is here.

        Raises FetchError ``mirror-damaged`` where it was and cannot be read any more, ``git-missing``.
        """
        if not self.path.is_dir():
            return False
        done = commands.attempt(self.path, "cat-file", "-e", f"{commit}^{{tree}}")
        if done.returncode and "error:" in done.stderr:  # what is merely not there is `fatal:`
            raise commands.damaged(self.path, done.stderr)
        return not done.returncode

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the newest commit that two commits descend from, None where there is none.

        Raises FetchError ``mirror-damaged``, ``git-missing``.
        """
        done = commands.attempt(self.path, "merge-base", one, other)
        if done.returncode > 1 or done.stderr.strip():
            raise commands.damaged(self.path, done.stderr)
        return done.stdout.strip() or None

    def keep(self, commit: str) -> None:
        """Hold a commit: whatever becomes of its branch, it stays."""
        self.read("update-ref", f"{_LOCKED}{commit}", commit)

    def fetch(self, *refspecs: str) -> None:
        """Bring refs with all tags, blob-less where the origin allows that.

        Raises FetchError, one code for each way to fail.
        """
        words = ("fetch", "--quiet", "--no-tags", "--prune", "--force", "--no-write-fetch-head", *_STEADY)
        asked = (_REMOTE, "+refs/tags/*:refs/tags/*", *refspecs)
        try:
            self._ask(*words, "--filter=blob:none", *asked)
        except FetchError as error:
            said = error.context.get("git says", "")
            if faults.lacks_a_base(said):
                # an origin that left files out once, and takes them for known now: everything comes again
                self._ask(*words, "--filter=blob:none", "--refetch", *asked)
            elif error.code == "git-failed" and "filter" in said:
                self._ask(*words, "--no-filter", *asked)
            else:
                if error.code == "git-incomplete":
                    put_aside(self)  # what came of it would be taken for whole when the origin is
                raise

    def fetch_objects(self, ids: Iterable[str]) -> None:
        """Bring objects by their ids."""
        words = ("--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin", *_STEADY)
        wanted = "".join(f"{one}\n" for one in ids)
        self._ask("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", _REMOTE, *words, stdin=wanted)

    def remote_refs(self, *names: str) -> dict[str, str]:
        """Return the origin's refs of these full names, all of them where none is named, with what they point to.

        An annotated tag is there twice, as ``refs/tags/x`` and, peeled, as ``refs/tags/x^{}``.
        """
        said = self._ask("ls-remote", "--quiet", _REMOTE, *names, timeout_s=commands.ASK_TIMEOUT_S)
        lines = [line.partition("\t") for line in said.splitlines() if "\t" in line]
        return {name: one for one, _, name in lines if not names or name in names}

    def _ask(self, *words: str, stdin: str | None = None, timeout_s: float = commands.TRANSFER_TIMEOUT_S) -> str:
        return commands.ask(
            self.path,
            *words,
            url=self.url,
            offline=self.offline,
            stdin=stdin,
            timeout_s=timeout_s,
            run=partial(proc.run, cancellation=self.cancellation),
            sleep=self.pause,
        )

    def pause(self, seconds: float) -> None:
        """Wait, unless it is cancelled."""
        if self.cancellation:
            self.cancellation.sleep(seconds)
        else:
            time.sleep(seconds)


_STEADY = ("--no-auto-maintenance", "--no-recurse-submodules")


def mirror_of(
    url: str, workspace: Workspace, *, offline: bool = False, cancellation: Cancellation | None = None
) -> Mirror:
    """Return the mirror of a URL; it need not be there."""
    path = workspace.sources / "git" / f"{digest(url)}.git"
    return Mirror(url=url, path=path, offline=offline, cancellation=cancellation)


@contextmanager
def opened(mirror: Mirror, workspace: Workspace, *, waiting: Waiting) -> Iterator[Mirror]:
    """Yield a mirror that this run alone may write to, made where it is not there or not usable.

    What a killed run left half done in it is removed first. A mirror that git does not recognise is put aside.

    Raises FetchError ``git-missing``, and ``workspace-busy`` where another run holds it for too long.
    """
    name = workspace.locks / f"git-{mirror.path.stem[:16]}"
    with exclusive(name, waiting=waiting, use=_USE, pause=mirror.pause):
        _sweep(mirror)
        if mirror.path.is_dir() and not _is_usable(mirror):
            put_aside(mirror)
        if not mirror.path.is_dir():
            _make(mirror)
        yield mirror


def put_aside(mirror: Mirror) -> Path:
    """Move a damaged mirror out of the way and return where it is; one that was put aside before goes."""
    aside = mirror.path.with_name(f"{mirror.path.name}.damaged")
    remove(aside)
    with contextlib.suppress(FileNotFoundError):
        mirror.path.rename(aside)
    return aside


def _make(mirror: Mirror) -> None:
    with publish_directory(mirror.path) as draft:
        commands.read(draft, "init", "--quiet", "--bare", "--template=", str(draft))
        for key, value in (("url", mirror.url), ("promisor", "true"), ("partialclonefilter", "blob:none")):
            commands.read(draft, "config", f"remote.{_REMOTE}.{key}", value)
        (draft / "info").mkdir(exist_ok=True)
        (draft / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8")


def _is_usable(mirror: Mirror) -> bool:
    """Tell whether git takes the folder for a repository with our origin."""
    done = commands.attempt(mirror.path, "config", "--local", f"remote.{_REMOTE}.url")
    bare = commands.attempt(mirror.path, "rev-parse", "--is-bare-repository")
    return done.stdout.strip() == mirror.url and bare.stdout.strip() == "true"


def _sweep(mirror: Mirror) -> None:
    """Remove what only a killed writer leaves behind: nobody writes while the caller holds the mirror."""
    for leftover in mirror.path.parent.glob(f".{mirror.path.name}.*.tmp"):
        remove(leftover)
    for folder, _, names in os.walk(mirror.path):
        for name in names:
            if name.endswith(".lock") or (name.startswith("tmp_") and "objects" in Path(folder).parts):
                Path(folder, name).unlink(missing_ok=True)
