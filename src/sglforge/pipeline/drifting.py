"""The verb about drift: a series of patches on many upstream versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sglforge.base.console import Console, Step
from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.config.lockfile import write_lock
from sglforge.config.model import NAME, PATTERNS, VERSION
from sglforge.config.releases import Release, Releases, dump_releases, merged, read_releases, releases_path
from sglforge.errors import ConfigError, Finding, PatchError, verdict_of
from sglforge.host import package_index
from sglforge.patches import drift as matrices
from sglforge.patches.apply import apply_series
from sglforge.patches.drift import Column, Expectation, Matrix
from sglforge.patches.heatmap import svg
from sglforge.patches.series import Series, load_series
from sglforge.patches.upstream import kept_tree, upstream_tree
from sglforge.pipeline.outputs import require_place, write_output
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.sources.fetch import fetch_file
from sglforge.sources.model import SourceArchive
from sglforge.sources.pin import pin_release


def drift(request: Request, console: Console) -> Outcome:
    """Apply a package's series to the trees of many versions, in memory, and compare with what is expected.

    Each version's archive is fetched by its locked hash and unpacked once; the trees are never written.

    Raises ConfigError ``nothing-to-patch``, ``unknown-release`` and ``unknown-topic``; PatchError for a series that
    is corrupt and ``drift-file-invalid``; LockError, FetchError.
    """
    package = request.option("package", str) or "sglang"
    series = load_series(request.catalog_root, package) if re.fullmatch(NAME, package) else None
    if series is None:
        raise ConfigError(
            code="nothing-to-patch",
            message=f"there is no patch series for {package}",
            hint="name the package with --package",
        )
    if versions := _words(request, "lock"):
        others = ("versions", "topic", "svg", "expect", "update", "offline")
        request.apart("--lock", others, "--lock asks the package index for releases, and tries nothing")
        return _lock(request, console, package, versions)
    topic = request.option("topic", str)
    topics = (series.named(topic).name,) if topic else tuple(entry.name for entry in series.topics)
    locked = read_releases(releases_path(request.catalog_root, package))
    chosen = locked.chosen(_words(request, "versions"))
    record = _record(request, package)
    locations = cache(package_index.read)  # it asks pip, which takes longer than a version: only where one is fetched
    columns = tuple(_column(release, locked, series, request, console, locations) for release in chosen)
    matrix = Matrix(package=package, topics=topics, columns=columns)
    findings, recorded = _judged(request, matrix, series, record, whole=topic is None)
    document = {
        **opening(findings, console),
        **matrix.to_json(),
        "expected": str(recorded) if recorded else None,
    }
    if picture := request.option("svg", Path):
        write_output(picture, svg(matrix))
    return Outcome(
        document=document,
        text=matrices.text_of(matrix),
        exit_code=PatchError.exit_code if verdict_of(findings) == "fail" else 0,
    )


def _column(
    release: Release,
    locked: Releases,
    series: Series,
    request: Request,
    console: Console,
    locations: Callable[[], IndexLocations],
) -> Column:
    """Return what the series does to one version."""
    with console.step(f"drift {release.version}") as shown:
        sha256 = Sha256(release.file.sha256)
        tree = kept_tree(sha256, request.workspace)
        if tree is None:
            archive = _fetched(release, locked, series.package, request, shown, locations())
            tree = upstream_tree(archive, request.workspace)
        result = apply_series(
            series,
            tree.root,
            version=release.version,
            topic=request.option("topic", str),
            write=False,
            known=tree.blobs,
        )
        states = [entry.state.value for entry in result.topics]
        shown.say(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
        return matrices.column(
            result, package=series.package, version=release.version, file=release.file.name, sha256=sha256
        )


def _fetched(
    release: Release, locked: Releases, package: str, request: Request, shown: Step, locations: IndexLocations
) -> SourceArchive:
    def progress(done: int, total: int | None) -> None:
        shown.progress(done, total, note=f"{done / 1e6:.1f} MB")

    return fetch_file(
        release.file,
        locked.source(release),
        package=package,
        locations=locations,
        workspace=request.workspace,
        offline=request.offline,
        progress=progress,
        lock=releases_path(request.catalog_root, package),
        command=request.command("drift", release.version),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """Where states are recorded, and those that are; None where there is no such file."""

    path: Path
    states: Expectation | None


def _record(request: Request, package: str) -> _Record:
    """Read what is expected and refuse files that cannot be written, before anything is fetched or tried.

    Raises ConfigError ``output-not-written`` and, for the file of ``--expect``, ``drift-file-invalid``; PatchError
    ``drift-file-invalid``.
    """
    named = request.option("expect", Path)
    path = named or request.catalog_root / "patches" / package / matrices.EXPECTATION_FILE
    update = request.flag("update")
    for output in (request.option("svg", Path), path if update else None):
        if output:
            require_place(output)
    if not path.exists() and (named is None or update):
        return _Record(path=path, states=None)
    try:
        return _Record(path=path, states=matrices.read_expectation(path))
    except PatchError as error:
        if named is None:
            raise
        hint = "name a file that --update wrote, or add --update to write it" if not path.exists() else error.hint
        raise ConfigError(code=error.code, message=error.message, where=error.where, hint=hint) from error


def _judged(
    request: Request, matrix: Matrix, series: Series, record: _Record, *, whole: bool
) -> tuple[tuple[Finding, ...], Path | None]:
    """Compare with what is recorded, or record it; without a record every fault counts. Return the record's path."""
    path, expectation = record.path, record.states
    if request.flag("update"):
        topics = [topic.name for topic in series.topics]
        write_output(path, matrices.updated(matrix, expectation, topics=topics))
        expectation = matrices.read_expectation(path)
    if expectation is None:
        return tuple(matrices.faults(matrix)), None
    named = request.option("expect", Path)
    command = request.command("drift", *(["--expect", str(named)] if named else []), "--update")
    return tuple(matrices.unexpected(matrix, expectation, where=path, whole=whole, command=command)), path


def _lock(request: Request, console: Console, package: str, versions: Sequence[str]) -> Outcome:
    """Pin the file of each version, beside those that are locked already."""
    for version in versions:
        if not re.fullmatch(VERSION, version):
            raise ConfigError(
                code="usage",
                message=f"{version!r} is not {PATTERNS[VERSION]}",
                hint="name what is on the package index",
            )
    path = releases_path(request.catalog_root, package)
    before = read_releases(path) if path.is_file() else None
    project = before.project if before else package
    locations = package_index.read()
    new = []
    for version in versions:
        with console.step(f"pin {project} {version}") as shown:
            new.append(Release(version=version, file=pin_release(project, version, locations)))
            shown.say(new[-1].file.name)
    changed = write_lock(path, dump_releases(merged(project, before.releases if before else (), new)))
    document = {"schema": 1, "verdict": "pass", "findings": [], "lock": str(path), "changed": changed}
    return Outcome(document=document, text=f"{path} {'written' if changed else 'unchanged'}")


def _words(request: Request, name: str) -> tuple[str, ...]:
    """Return the words of an option that may hold several, with commas or spaces between them."""
    return tuple(word for words in request.words(name) for word in words.split(",") if word)
