"""The part of the verb ``lock`` that is about git: which commit each repository is locked at, and what that changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sglforge.base.console import Console
from sglforge.base.download import redact
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedGit, LockedSource
from sglforge.config.model import GitSource
from sglforge.patches.series import load_series
from sglforge.pipeline import walking
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Selection
from sglforge.pipeline.walking import Skipped
from sglforge.sources.git import history, pin

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A repository whose commit is another one than before (``old`` None: it is locked for the first time).

    ``commits`` is by how many commits it moved on, None where that cannot be told; ``changed`` names the packages
    that see another source now.
    """

    url: str
    ref: str
    packages: tuple[str, ...]
    old: str | None
    new: str
    described: str
    commits: int | None
    changed: tuple[str, ...]
    skipped: tuple[Skipped, ...]

    def to_json(self) -> dict[str, object]:
        """Return the move for the verb's document."""
        return {
            "url": redact(self.url),
            "ref": self.ref,
            "packages": list(self.packages),
            "old": self.old,
            "new": self.new,
            "described": self.described,
            "commits": self.commits,
            "changed": list(self.changed),
            "skipped": [group.to_json() for group in self.skipped],
        }

    def lines(self) -> Iterator[str]:
        """Yield the move for people."""
        for group in self.skipped:
            yield from group.lines()
        span = f"{self.old[:_SHOWN]}..{self.new[:_SHOWN]}" if self.old else self.new[:_SHOWN]
        count = f", {self.commits} commits" if self.commits is not None and self.old else ""
        what = f"changed for {', '.join(self.changed)}" if self.changed else "what the packages see is the same"
        yield f"{', '.join(self.packages)}: {self.ref} is {self.described} ({span}{count}; {what})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What the git sources of a stack are locked at, what of that is new, and the packages that have no commit."""

    sources: Mapping[str, LockedGit]
    moves: tuple[Move, ...]
    left_out: tuple[str, ...]


def lock_git(
    sources: Mapping[str, GitSource],
    previous: Mapping[str, LockedSource],
    *,
    request: Request,
    selection: Selection,
    console: Console,
) -> Moved:
    """Return the commit of each git source: the one that the lock has, unless another is asked for.

    Packages of one repository and ref are locked at one commit. Those that have none are left out where others are
    asked for by name: what cannot be reached now must not keep those from being locked.

    Raises LockError, ``no-commit-applies`` among others; PatchError for a series that is corrupt; FetchError.
    """
    found: dict[str, LockedGit] = {}
    moves: list[Move] = []
    left_out: list[str] = []
    for (url, ref), packages in pin.groups(sources).items():
        own = {name: sources[name] for name in packages}
        if request.words("update") and not _updates(request, packages) and not set(packages) & set(previous):
            left_out += packages
            continue
        kept = None if _updates(request, packages) else pin.kept_commit(packages, own, previous)
        with console.step(f"pin {', '.join(packages)}") as step:
            skipped: tuple[Skipped, ...] = ()
            pinned: Mapping[str, LockedGit]
            if kept and (same := _unchanged(own, previous, request.workspace)):
                pinned = same
            elif not kept and (limit := request.option("walk_back", int)):
                series = {name: one for name in packages if (one := load_series(selection.catalog.root, name))}
                walk = walking.walk_back(own, series, limit=limit, request=request, console=console, step=step)
                pinned, skipped = walk.pinned, walk.skipped
            else:
                pinned = _pinned(own, kept, request, console)
            first = pinned[packages[0]]
            step.say(f"{ref} is {first.described}{'' if kept is None else ', as before'}")
        found.update(pinned)
        old = pin.kept_commit(packages, own, previous)
        if skipped or old != first.commit:
            moves.append(
                Move(
                    url=url,
                    ref=ref,
                    packages=packages,
                    old=old,
                    new=first.commit,
                    described=first.described,
                    commits=history.distance(url, old, first.commit, request.workspace) if old else None,
                    changed=tuple(name for name in packages if _differs(pinned[name], previous.get(name))),
                    skipped=skipped,
                )
            )
    return Moved(sources=found, moves=tuple(moves), left_out=tuple(left_out))


def updates_all(request: Request) -> bool:
    """Tell whether every pin is to be made anew."""
    return request.options.get("update") == []


def _updates(request: Request, packages: Sequence[str]) -> bool:
    from packaging.utils import canonicalize_name

    named = {canonicalize_name(name) for name in request.words("update")}
    return updates_all(request) or bool(named & {canonicalize_name(name) for name in packages})


def _unchanged(
    sources: Mapping[str, GitSource], previous: Mapping[str, LockedSource], workspace: Workspace
) -> dict[str, LockedGit] | None:
    """Return what the lock has for all of some packages, None where one of them asks for something else now, or where
    the lock contradicts itself.
    """
    found = {}
    for name, source in sources.items():
        locked = previous.get(name)
        if not isinstance(locked, LockedGit) or not pin.still_holds(locked, source):
            return None
        if pin.contradicted(locked, workspace):
            return None
        found[name] = locked
    return found


def _pinned(
    sources: Mapping[str, GitSource], kept: str | None, request: Request, console: Console
) -> dict[str, LockedGit]:
    """Pin packages at the commit that is kept, else at the newest one."""

    def waiting(words: str) -> None:
        console.line(f"  ..  {words}")

    first = next(iter(sources.values()))
    commit = kept or pin.newest(first.url, first.ref, workspace=request.workspace, waiting=waiting)
    return {
        name: pin.pin_commit(source, commit, package=name, workspace=request.workspace, waiting=waiting)
        for name, source in sources.items()
    }


def _differs(pinned: LockedGit, before: LockedSource | None) -> bool:
    """Tell whether a package sees another source than before."""
    return not isinstance(before, LockedGit) or before.seen_by_build(None) != pinned.seen_by_build(None)
