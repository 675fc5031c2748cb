"""Editing a topic in a tree, and turning what was edited back into the topic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglforge.base import files
from sglforge.base.console import Console
from sglforge.base.scratch import working_folder
from sglforge.errors import ConfigError, Finding, PatchError, Severity, verdict_of
from sglforge.host import package_index
from sglforge.patches import worktree
from sglforge.patches.refresh import refresh as refresh_topic
from sglforge.patches.remake import as_diff
from sglforge.patches.series import Series, load_series
from sglforge.pipeline.request import Outcome, Request
from sglforge.pipeline.select import plan, select
from sglforge.pipeline.sources import bring, unpacked
from sglforge.pipeline.trees import given_version
from sglforge.sources.paths import copy_folder


def edit(request: Request, console: Console, topic: str) -> Outcome:
    """Make a tree with a topic applied, as a git repository whose HEAD is the tree before it."""
    package, series = _series(request, topic)
    folder = _folder(request, package, topic)
    _make_room(request, folder, topic)
    with files.publish_directory(folder) as draft:
        version = _bring(request, console, package, draft / "tree")
        if fate := series.named(topic).standing(version):
            raise ConfigError(
                code="nothing-to-patch",
                message=f"{package} {version} is not patched with `{topic}`: {fate.message}",
                hint="name a tree of a version that it is for, with --tree DIR",
            )
        with console.step(f"apply {package}/{topic}") as shown:
            faults = worktree.make(draft / "tree", series, topic, version)
            shown.say(f"{len(faults)} faults" if faults else "applied")
    tree = folder / "tree"
    findings = tuple(
        dataclasses.replace(finding, severity=Severity.WARNING, subject=f"{package}/{topic}")
        for fault in faults
        for finding in fault.as_findings()
    )
    for finding in findings:
        console.finding(finding)
    refreshing = request.command("patch", "--refresh", topic)
    hint = f"edit the files there; `git diff` shows the topic; then: {refreshing}"
    return _outcome(findings, tree, (), f"{tree}\n{hint}")


def refresh(request: Request, console: Console, topic: str) -> Outcome:
    """Write a topic anew from the tree that it was edited in; an unedited tree changes nothing."""
    package, series = _series(request, topic)
    folder = _folder(request, package, topic) / "tree"
    editing, refreshing = (request.command("patch", option, topic) for option in ("--edit", "--refresh"))
    if not _has_files(folder):
        removed = folder.parent.is_dir()
        raise ConfigError(
            code="nothing-to-refresh",
            message=f"the tree in which `{topic}` was edited was removed"
            if removed
            else f"there is no tree in which `{topic}` was edited",
            where=str(folder),
            hint=f"make one: {editing}",
        )
    tree = worktree.require_whole(folder, command=editing)
    with working_folder(request.workspace, "edit") as working:
        base, goal = worktree.drafts(tree, working / "base")
        worktree.require_python(base, goal, tree, command=refreshing)
        try:
            written = refresh_topic(series.named(topic), base, goal, tree.version)
        except PatchError as error:
            if error.code != "patch-not-expressible":
                raise
            carried = folder.with_name("edited.patch")
            carried.write_bytes(as_diff(base, goal))
            hint = f"{error.hint}: all of what was edited is in {carried}"
            raise dataclasses.replace(error, hint=hint) from error
    for path, content in written.items():
        files.write_bytes(path, content)
    worktree.remember(worktree.taken_over(tree))
    console.detail(f"{package}/{topic}: {len(written)} files written")
    text = "\n".join(f"written {path}" for path in written) if written else f"nothing to do: {topic} gives that tree"
    return _outcome((), folder, tuple(written), text)


def _series(request: Request, topic: str) -> tuple[str, Series]:
    """Return the package and series that have a topic: the named package's, or the only one with it."""
    root = request.catalog_root
    named = request.option("package", str)
    packages = [named] if named else sorted(path.name for path in (root / "patches").iterdir() if path.is_dir())
    found = {package: series for package in packages if (series := load_series(root, package))}
    having = [package for package, series in found.items() if topic in {entry.name for entry in series.topics}]
    if len(having) == 1:
        return having[0], found[having[0]]
    if not having:
        for series in found.values():
            series.named(topic)
    raise ConfigError(
        code="unknown-topic",
        message=f"`{topic}` is a topic of {' and '.join(having)}" if having else f"no series has a topic `{topic}`",
        hint="name the package with --package",
    )


def _folder(request: Request, package: str, topic: str) -> Path:
    return request.workspace.edits / package / topic


def _make_room(request: Request, folder: Path, topic: str) -> None:
    """Remove a tree in which nothing was edited since, or what is left of one that was removed.

    Raises ConfigError ``edit-in-progress`` and ``edit-tree-broken`` for any other.
    """
    if not folder.exists():
        return
    if _has_files(folder / "tree"):
        tree = worktree.read(folder / "tree")
        if tree is None or tree.is_edited():
            worktree.require_whole(folder / "tree", command=request.command("patch", "--edit", topic))
            raise _in_progress(
                folder,
                "there is a tree already, and what was edited in it is not in the topic",
                f"take it over ({request.command('patch', '--refresh', topic)}), or remove the folder",
            )
    elif _has_files(folder):
        left = ", ".join(sorted(path.name for path in folder.iterdir()))
        raise _in_progress(
            folder, f"the tree in it was removed, and there is still {left}", "save what you need, remove the folder"
        )
    files.remove(folder)


def _has_files(folder: Path) -> bool:
    return any(not path.is_dir() for path in folder.rglob("*"))


def _in_progress(folder: Path, message: str, hint: str) -> ConfigError:
    return ConfigError(code="edit-in-progress", message=message, where=str(folder), hint=hint)


def _bring(request: Request, console: Console, package: str, into: Path) -> str:
    """Put the source tree into a new folder and return its version."""
    if given := request.option("tree", Path):
        version = given_version(request, package, given)
        copy_folder(given, into)
        return version
    planned = plan(request, select(request, console))
    step = next((step for step in planned.plan.steps if step.package == package), None)
    archive = bring(step, planned, request, console, package_index.read()) if step else None
    if step is None or step.locked is None or archive is None:
        raise ConfigError(
            code="nothing-to-patch",
            message=f"the stack has no source of {package} that can be patched",
            hint="name a stack that has it, or a tree with --tree DIR",
        )
    folder = into.with_name("unpacked")
    unpacked(archive, folder, workspace=request.workspace, command=request.command("fetch")).rename(into)
    return step.locked.version


def _outcome(findings: Sequence[Finding], tree: Path, written: Sequence[Path], text: str) -> Outcome:
    document: Mapping[str, object] = {
        "schema": 1,
        "verdict": verdict_of(findings),
        "findings": [finding.to_json() for finding in findings],
        "tree": str(tree),
        "written": [str(path) for path in written],
    }
    return Outcome(document=document, text=text)
