"""Walk back from the tip of a branch to the newest commit on which patch series apply; nothing is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.console import Console, Step
from sglforge.base.download import redact
from sglforge.base.scratch import working_folder
from sglforge.config.lockfile import LockedGit
from sglforge.config.model import GitSource
from sglforge.errors import Finding, LockError, Severity
from sglforge.patches.apply import apply_series
from sglforge.patches.drift import FAULTS
from sglforge.patches.result import PatchResult
from sglforge.patches.series import Series
from sglforge.pipeline.request import Request
from sglforge.sources.git import history, pin, trees
from sglforge.sources.git.bring import bring_files
from sglforge.sources.git.describe import describe, version_of
from sglforge.sources.git.export import export
from sglforge.sources.git.fetch import fetch
from sglforge.sources.git.mirror import Mirror, Waiting
from sglforge.sources.git.worktree import Worktree

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Commits next to each other that were passed over for the same reasons; ``tried`` of them were looked at, the
    others have the same source.
    """

    newest: str
    oldest: str
    commits: int
    tried: int
    why: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the group for a document."""
        return {
            "newest": self.newest,
            "oldest": self.oldest,
            "commits": self.commits,
            "tried": self.tried,
            "why": list(self.why),
        }

    def lines(self) -> Iterator[str]:
        """Yield the group for people."""
        span = self.newest[:_SHOWN] + (f"..{self.oldest[:_SHOWN]} ({self.commits} commits)" if self.commits > 1 else "")
        yield f"skipped {span}:"
        yield from (f"  {reason}" for reason in self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Where a walk ended: what is locked for each package, and what was passed over, the newest first."""

    pinned: Mapping[str, LockedGit]
    skipped: tuple[Skipped, ...]


def walk_back(
    sources: Mapping[str, GitSource],
    series: Mapping[str, Series],
    *,
    limit: int,
    request: Request,
    console: Console,
    step: Step,
) -> Walk:
    """Return the newest commit on which the whole series of every package applies and all contracts hold.

    Only commits of the branch itself are tried (first parents), and of those with the same source only the newest.
    The series are applied in memory, to a tree that is moved from commit to commit.

    Args:
        sources: The packages of one repository and ref.
        series: The series of those that have one.
        limit: How many commits are looked at, at most.
        request: What was asked for.
        console: Told for whom it waits.
        step: Told how far it is.

    Raises LockError ``no-commit-applies`` with a finding for every group of commits that was passed over; FetchError.
    """
    first = next(iter(sources.values()))

    def waiting(words: str) -> None:
        console.line(f"  ..  {words}")

    tip = pin.newest(first.url, first.ref, workspace=request.workspace, waiting=waiting)
    mirror = bring_files(first.url, tip, (), workspace=request.workspace, waiting=waiting)
    commits = history.first_parents(mirror, tip, limit)
    known: dict[object, tuple[str, ...]] = {}
    skipped: list[Skipped] = []
    with working_folder(request.workspace, "walk") as folder:
        trial = _Trial(
            sources=sources, series=series, mirror=mirror, folder=folder, request=request, waiting=waiting, trees={}
        )
        for number, commit in enumerate(commits):
            step.progress(number, len(commits), note=f"{commit[:_SHOWN]}")
            try:
                seen = trial.seen(commit)
                fresh = seen not in known
                if fresh:
                    pinned = trial.pinned(commit)
                    known[seen] = tuple(trial.faults(pinned))
                    if not known[seen]:
                        return Walk(pinned=pinned, skipped=tuple(skipped))
                _note(skipped, commit, known[seen], fresh=fresh)
            except LockError as error:
                why = error.message.replace(f"commit {commit[:_SHOWN]}", "it")
                _note(skipped, commit, (f"{error.code}: {why}",), fresh=True)
    raise _none(first, skipped, len(commits))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The trees that series are tried on, one for each package."""

    sources: Mapping[str, GitSource]
    series: Mapping[str, Series]
    mirror: Mirror
    folder: Path
    request: Request
    waiting: Waiting
    trees: dict[str, Worktree]

    def seen(self, commit: str) -> object:
        """Return what decides how a commit fares: what the packages with a series see of it, and their version."""
        paths = {
            name: trees.locked_paths(self.mirror, commit, trees.seen_paths(source))
            for name, source in self.sources.items()
        }
        version = version_of(describe(self.mirror, commit))
        return tuple(
            (name, self.sources[name].version or version, *((entry.path, entry.id) for entry in paths[name]))
            for name in self.series
        )

    def pinned(self, commit: str) -> dict[str, LockedGit]:
        """Return what would be locked for each package at a commit."""
        workspace = self.request.workspace
        return {
            name: pin.pin_commit(source, commit, package=name, workspace=workspace, waiting=self.waiting)
            for name, source in self.sources.items()
        }

    def faults(self, pinned: Mapping[str, LockedGit]) -> Iterator[str]:
        """Yield what keeps the series from a commit."""
        for name, series in self.series.items():
            yield from _reasons(name, self._apply(series, pinned[name], self.folder / name))

    def _apply(self, series: Series, locked: LockedGit, folder: Path) -> PatchResult:
        workspace = self.request.workspace
        paths = tuple(entry.path for entry in locked.paths)
        if locked.submodules:
            fetch(locked, package=series.package, workspace=workspace, offline=False, waiting=self.waiting)
            tree = export(locked, folder.with_name(f"{folder.name}-{locked.commit}"), workspace=workspace)
            return apply_series(series, tree, version=locked.version, write=False)
        mirror = bring_files(locked.url, locked.commit, paths, workspace=workspace, waiting=self.waiting)
        moving = self.trees.setdefault(series.package, Worktree(folder, index=folder.with_name(f"{folder.name}.index")))
        moving.move(mirror, trees.files(mirror, locked.commit, paths))
        return apply_series(series, folder, version=locked.version, write=False, known=moving.files)


def _reasons(package: str, result: PatchResult) -> Iterator[str]:
    told = set()
    for topic in result.topics:
        if topic.state in FAULTS:
            told.add(f"{package}/{topic.name}")
            yield f"{package}/{topic.name}: {topic.state.value}: {topic.message}"
    for finding in result.findings:
        if finding.severity is Severity.ERROR and finding.subject not in told:
            yield f"{finding.subject or package}: {finding.code}: {finding.message}"


def _note(skipped: list[Skipped], commit: str, why: tuple[str, ...], *, fresh: bool) -> None:
    """Add a commit that was passed over to the last group, or begin another one."""
    if skipped and skipped[-1].why == why:
        last = skipped[-1]
        skipped[-1] = Skipped(
            newest=last.newest, oldest=commit, commits=last.commits + 1, tried=last.tried + fresh, why=why
        )
    else:
        skipped.append(Skipped(newest=commit, oldest=commit, commits=1, tried=int(fresh), why=why))


def _none(source: GitSource, skipped: Sequence[Skipped], limit: int) -> LockError:
    hint = "adapt the topics (docs/how-to/carry-a-patch.md), or look further back: --walk-back N"
    findings = tuple(
        Finding(
            code="no-commit-applies",
            severity=Severity.ERROR,
            subject=f"{group.newest[:_SHOWN]}..{group.oldest[:_SHOWN]}" if group.commits > 1 else group.newest[:_SHOWN],
            message=f"{group.commits} commits of {source.ref}: {'; '.join(group.why)}",
            hint=hint,
        )
        for group in skipped
    )
    return LockError(
        code="no-commit-applies",
        message=f"the series apply to none of the {limit} newest commits of {redact(source.url)} at {source.ref}; "
        "the lock is as it was",
        hint=hint,
        findings=findings,
    )
