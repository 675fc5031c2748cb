"""Whether an environment is still what its receipt says."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from sglforge.base.files import sha256_file
from sglforge.errors import Finding, Severity
from sglforge.provision.receipt import BuiltFile, Environment, RecordFile

DIST_INFO = ".dist-info"
SHOWN_FILES = 20


def quick(environment: Environment) -> tuple[Finding, ...]:
    """Compare size, time and inode of every built file, and the RECORD of every other distribution.

    Nothing is hashed: this is the check of a run that has nothing to do.
    """
    receipt, site = environment.receipt, environment.site_packages
    again = _again(environment)
    findings = _interpreter(environment, again)
    for built in receipt.built:
        findings += _differing(built.name, *_stamps(site, built.files), again)
    ours = {built.name for built in receipt.built}
    for folder, record in receipt.records.items():
        if (name := _distribution(folder)) not in ours:
            findings += _differing(name, *_stamps(site, {f"{folder}/RECORD": record}), again)
    findings += _added(site, receipt.records, again)
    return tuple(findings)


def full(environment: Environment) -> tuple[Finding, ...]:
    """Hash everything: built files against the receipt, every other file against its RECORD.

    Also found: distributions and files that came later, a torch that was replaced, files with two owners,
    requirements of built packages that do not hold.
    """
    from sglforge.provision.distributions import loose_files, owned_twice, read_distributions
    from sglforge.provision.requirements import judge_requirements

    receipt, site = environment.receipt, environment.site_packages
    again = _again(environment)
    findings = _interpreter(environment, again)
    installed = read_distributions(site)
    built = {entry.name: entry for entry in receipt.built}
    for folder, record in receipt.records.items():
        name = _distribution(folder)
        distribution = installed.get(name)
        if not distribution or distribution.info.name != folder:
            findings += _differing(name, [], [folder], again)
            continue
        if name in built:
            expected: Mapping[str, str | None] = {path: file.sha256 for path, file in built[name].files.items()}
        else:
            expected = {**distribution.files, f"{folder}/RECORD": record.sha256}
        # an edit in place is in uv's cache too, from which our own wheels are healed and others are not
        way_out = again if name in built else f"uv cache clean {name} && {again}"
        findings += _differing(name, *_hashes(site, expected), way_out)
    findings += _added(site, receipt.records, again)
    findings += duplicates(owned_twice(installed.values()))
    if loose := [path for path in loose_files(site, installed.values()) if path not in set(receipt.loose)]:
        findings.append(
            _changed("site-packages", f"{len(loose)} files came later and belong to no distribution", loose, again)
        )
    declaring = [installed[name] for name in (*built, "torch") if name in installed]
    held = (*receipt.omitted, *receipt.relaxed)
    reasons = {_requirement_name(entry.requirement): entry.reason for entry in held}
    findings += judge_requirements(declaring, installed, relaxed=reasons, python=receipt.python).unmet
    return tuple(findings)


def duplicates(owners: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    """Return one finding for each group of distributions that own the same files."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for path, names in owners.items():
        groups.setdefault(names, []).append(path)
    return [
        Finding(
            code="file-owned-twice",
            severity=Severity.ERROR,
            subject=", ".join(names),
            message=f"{len(paths)} files belong to {' and '.join(names)}: the one installed last has won",
            hint="leave one of them out of the stack",
            detail=_shown(paths),
        )
        for names, paths in groups.items()
    ]


def _again(environment: Environment) -> str:
    """Return the command that makes the environment again, whatever the quick check thinks of it."""
    return f"rm -r {shlex.quote(str(environment.path))} && nox -s install"


def _interpreter(environment: Environment, hint: str) -> list[Finding]:
    if os.access(environment.python, os.X_OK):
        return []
    base = environment.receipt.python.base
    return [_changed("python", f"the environment's Python is gone; it was made from {base}", [], hint)]


def _stamps(site: Path, expected: Mapping[str, BuiltFile | RecordFile]) -> tuple[list[str], list[str]]:
    """Return the paths whose size, time or inode is another, and those that are missing."""
    changed: list[str] = []
    missing: list[str] = []
    try:
        folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return changed, list(expected)
    try:
        for path, file in expected.items():
            try:
                status = os.stat(path, dir_fd=folder)
            except OSError:
                missing.append(path)
                continue
            if (status.st_size, status.st_mtime_ns, status.st_ino) != file[-3:]:
                changed.append(path)
    finally:
        os.close(folder)
    return changed, missing


def _hashes(site: Path, expected: Mapping[str, str | None]) -> tuple[list[str], list[str]]:
    """Return the paths that have another hash than expected, and those that are missing."""
    changed: list[str] = []
    missing: list[str] = []
    for path, sha256 in expected.items():
        try:
            if sha256 and sha256_file(site / path) != sha256:
                changed.append(path)
        except OSError:
            missing.append(path)
    return changed, missing


def _added(site: Path, records: Iterable[str], hint: str) -> list[Finding]:
    try:
        present = {entry.name for entry in os.scandir(site) if entry.name.endswith(DIST_INFO)}
    except OSError:
        return []  # every file is missing, and that is said already
    return [
        _changed(_distribution(folder), f"{_distribution(folder)} was installed later", [folder], hint)
        for folder in sorted(present - set(records))
    ]


def _differing(name: str, changed: list[str], missing: list[str], hint: str) -> list[Finding]:
    """Return the finding about the files of one distribution, if there is one."""
    if not changed and not missing:
        return []
    counts = [f"{len(paths)} {word}" for paths, word in ((changed, "changed"), (missing, "missing")) if paths]
    detail = [*(f"changed: {path}" for path in changed), *(f"missing: {path}" for path in missing)]
    message = f"{name} is not what was installed: files {', '.join(counts)}"
    code = "torch-replaced" if name == "torch" else "environment-changed"
    return [_changed(name, message, detail, hint, code=code)]


def _changed(subject: str, message: str, paths: list[str], hint: str, *, code: str = "environment-changed") -> Finding:
    return Finding(
        code=code, severity=Severity.ERROR, subject=subject, message=message, hint=hint, detail=_shown(paths)
    )


def _shown(paths: list[str]) -> tuple[str, ...]:
    more = len(paths) - SHOWN_FILES
    return (*paths[:SHOWN_FILES], *([f"and {more} more"] if more > 0 else []))


def _distribution(path: str) -> str:
    """Return the normalised name of the distribution that a dist-info path belongs to."""
    folder = Path(path).parts[0]
    return re.sub(r"[-_.]+", "-", folder.removesuffix(DIST_INFO).rpartition("-")[0]).lower()


def _requirement_name(line: str) -> str:
    from packaging.requirements import Requirement

    return Requirement(line).name
