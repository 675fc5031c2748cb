"""Which tool makes a right tree of each release: our topics, or the same changes carried as diffs.

A topic's diff is made on the first release that it applies to, then given to `git apply`, `git apply --3way` (with the
blobs that it was made from) and `patch -F3` on every final release. What a tool leaves behind is judged like a tree of
ours: by the contracts, and by whether each edit that the topic has for that release is inside the object that it names.
On a release that the topic is not for, nothing may be changed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, ratio, summary
from benchmarks.setting import ROOT, Setting

from sglforge.base.git import plain_environment
from sglforge.base.ids import Sha256
from sglforge.config.releases import read_releases, releases_path
from sglforge.errors import PatchError, Severity
from sglforge.patches import kinds
from sglforge.patches.apply import apply_series
from sglforge.patches.checkout import File, open_checkout
from sglforge.patches.contracts.arrivals import arrivals
from sglforge.patches.contracts.judge import judge
from sglforge.patches.contracts.names import check
from sglforge.patches.draft import Draft
from sglforge.patches.result import TopicState
from sglforge.patches.series import Series, load_series
from sglforge.patches.topic import Topic
from sglforge.patches.upstream import UpstreamTree, kept_tree

PACKAGE = "sglang"
ROUNDS = 5
OURS = "sglforge"
TOOLS: Mapping[str, Sequence[str]] = {
    "git apply": ("git", "apply", "-p1"),
    "git apply --3way": ("git", "apply", "-p1", "--3way"),
    "patch -F3": ("patch", "-p1", "-F3", "--batch", "--forward", "--no-backup-if-mismatch"),
}
RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
CHANGED, NEEDLESS = "refused, and the tree is changed", "applied where it is not for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A topic as a diff: the files that it changes as they were and as they are, in the release it was made on."""

    topic: Topic
    version: str
    diff: bytes
    before: Mapping[str, bytes]


def measure(setting: Setting) -> dict[str, object]:
    """Judge every topic on every final release with every tool, and time one whole series against `git apply`.

    Needs the trees that `sglforge drift` keeps.
    """
    series, trees = _series(), _trees(setting)
    cells: dict[str, dict[str, dict[str, str]]] = {tool: {} for tool in (OURS, *TOOLS)}
    with setting.folder() as folder:
        carried = [entry for topic in series.topics if (entry := _carry(series, topic, trees, folder / "work"))]
        for entry in carried:
            for tool, rows in cells.items():
                rows[entry.topic.name] = {
                    version: _ours(series, entry, tree.root, version)
                    if tool == OURS
                    else _outcome(TOOLS[tool], entry, tree.root, version, folder / "work")
                    for version, tree in trees.items()
                }
        comparisons = [
            {
                OURS: lambda: _time_ours(series, trees),
                "git apply": lambda: _time_git(carried, trees, folder / "work"),
            }
        ]
        if quilt := shutil.which("quilt"):
            oldest = next(iter(trees))
            stacked = [entry for entry in carried if entry.version == oldest]
            comparisons.append(
                {
                    f"{OURS}, {oldest}": lambda: _time_ours(series, {oldest: trees[oldest]}),
                    f"quilt push -a, {oldest}": lambda: _time_quilt(
                        quilt, stacked, trees[oldest].root, folder / "quilt"
                    ),
                }
            )
        samples: dict[str, list[Sample]] = {}
        ratios: dict[str, object] = {}
        for cases in comparisons:
            interleave(cases, 1)
            taken = interleave(cases, setting.rounds or ROUNDS)
            ours, peer = taken
            ratios[f"{ours} / {peer}"] = ratio(taken[ours], taken[peer])
            samples |= taken
    return {
        "made_on": {entry.topic.name: entry.version for entry in carried},
        "outcomes": {
            tool: dict(Counter(cell for row in rows.values() for cell in row.values())) for tool, rows in cells.items()
        },
        "outcomes_where_the_topic_is_for": {tool: dict(_where_for(rows, carried)) for tool, rows in cells.items()},
        "cells": cells,
        "cases": {name: summary(values) for name, values in samples.items()},
        "ratios": ratios,
        "versions": list(trees),
        "notes": [
            "sglforge and git apply: all releases; only sglforge holds what it makes to contracts",
            "quilt: the topics of the oldest release, on that release; left out where it is not installed",
        ],
        "aims": {OURS: "0 wrong"},
    }


def _series() -> Series:
    series = load_series(ROOT, PACKAGE)
    if series is None:
        raise BenchError(f"{PACKAGE} has no series")
    return series


def _trees(setting: Setting) -> dict[str, UpstreamTree]:
    trees = {}
    for release in read_releases(releases_path(ROOT, PACKAGE)).chosen([]):
        tree = kept_tree(Sha256(release.file.sha256), setting.workspace)
        if tree is None:
            raise BenchError(f"the tree of {release.version} is not here: run `nox -s drift`")
        trees[release.version] = tree
    return trees


def _carry(series: Series, topic: Topic, trees: Mapping[str, UpstreamTree], work: Path) -> Carried | None:
    """Return a topic as git's diff, which names blobs, made on the first release that it applies to by itself."""
    for version, tree in trees.items():
        result = apply_series(series, tree.root, version=version, topic=topic.name, write=False, known=tree.blobs)
        if result.topics[0].state is TopicState.APPLIED and result.tree_id:
            before = {file: (tree.root / file).read_bytes() for file in result.topics[0].files}
            _fill(work, before, before)
            _git(work, "apply", "-p1", stdin=result.diff.encode())
            diff = _git(work, "diff", "--full-index")
            return Carried(topic=topic, version=version, diff=diff, before=before)
    return None


def _ours(series: Series, entry: Carried, tree: Path, version: str) -> str:
    result = apply_series(series, tree, version=version, topic=entry.topic.name, write=False)
    if result.topics[0].state is TopicState.APPLIED and result.tree_id:
        return RIGHT
    return REFUSED if entry.topic.standing(version) is None else RIGHT


def _outcome(argv: Sequence[str], entry: Carried, tree: Path, version: str, work: Path) -> str:
    """Return what becomes of a release's files when a tool is given the diff."""
    _fill(work, {file: (tree / file).read_bytes() for file in entry.before if (tree / file).is_file()}, entry.before)
    done = subprocess.run(
        argv, input=entry.diff, cwd=work, env=plain_environment(work), capture_output=True, check=False
    )
    files = {file: (work / file).read_bytes() for file in entry.before if (work / file).is_file()}
    changed = {file for file, raw in files.items() if not (tree / file).is_file() or raw != (tree / file).read_bytes()}
    wanted = entry.topic.standing(version) is None
    if done.returncode:
        return CHANGED if changed else REFUSED if wanted else RIGHT
    if not wanted:
        return NEEDLESS if changed else RIGHT
    return RIGHT if _is_right(entry.topic, tree, files, version) else WRONG


def _fill(work: Path, now: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    """Make a repository with the files of a release, which knows the blobs that the diff was made from."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for contents in (before, now):
        for file in before:
            (work / file).unlink(missing_ok=True)
        for file, raw in contents.items():
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            (work / file).write_bytes(raw)
        if not (work / ".git").exists():
            _git(work, "init", "--quiet")
        _git(work, "add", "--force", "--all")


def _git(work: Path, *words: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ("git", *words), cwd=work, env=plain_environment(work), input=stdin, check=True, capture_output=True
    )
    return done.stdout


def _is_right(topic: Topic, tree: Path, files: Mapping[str, bytes], version: str) -> bool:
    draft = upstream = Draft(checkout=open_checkout(tree))
    for file, raw in files.items():
        draft = draft.with_files({file: File(raw=raw, executable=False)})
    try:
        for file in draft.modules(upstream):
            check(file, upstream.python(file), draft.python(file), partial(arrivals, [topic], draft, version))
        if not all(kinds.is_made(draft, topic, edit) for edit, _ in topic.edits(version)):
            return False
        findings = judge([topic], draft, version)[topic.name]
        return all(finding.severity is not Severity.ERROR for finding in findings)
    except PatchError:
        return False


def _where_for(rows: Mapping[str, Mapping[str, str]], carried: Sequence[Carried]) -> Iterator[tuple[str, int]]:
    cells = [
        cell
        for entry in carried
        for version, cell in rows[entry.topic.name].items()
        if entry.topic.standing(version) is None
    ]
    yield from Counter(cells).items()


def _time_ours(series: Series, trees: Mapping[str, UpstreamTree]) -> Sample:
    start = time.perf_counter()
    for version, tree in trees.items():
        apply_series(series, tree.root, version=version, write=False, known=tree.blobs)
    return Sample(wall_s=time.perf_counter() - start)


def _time_quilt(quilt: str, stacked: Sequence[Carried], tree: Path, work: Path) -> Sample:
    """Time `quilt push -a` on files that are already laid out."""
    _fill(work, {file: (tree / file).read_bytes() for entry in stacked for file in entry.before}, {})
    (work / "patches").mkdir()
    for entry in stacked:
        (work / "patches" / f"{entry.topic.name}.patch").write_bytes(entry.diff)
    (work / "patches" / "series").write_text("".join(f"{entry.topic.name}.patch\n" for entry in stacked))
    start = time.perf_counter()
    subprocess.run(
        (quilt, "--quiltrc", "-", "push", "-a"), cwd=work, env=plain_environment(work), capture_output=True, check=True
    )
    return Sample(wall_s=time.perf_counter() - start)


def _time_git(carried: Sequence[Carried], trees: Mapping[str, UpstreamTree], work: Path) -> Sample:
    """Time git alone, on the files that are already laid out; it gets as many diffs as we have topics."""
    taken = 0.0
    for tree in trees.values():
        for entry in carried:
            now = {file: (tree.root / file).read_bytes() for file in entry.before if (tree.root / file).is_file()}
            _fill(work, now, entry.before)
            start = time.perf_counter()
            subprocess.run(
                TOOLS["git apply"],
                input=entry.diff,
                cwd=work,
                env=plain_environment(work),
                capture_output=True,
                check=False,
            )
            taken += time.perf_counter() - start
    return Sample(wall_s=taken)
