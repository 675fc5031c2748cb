"""Whether an environment is still what its receipt says."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sglforge.base.files import sha256_file
from sglforge.errors import Finding, Severity
from sglforge.provision.receipt import RECEIPT, BuiltFile, Environment, RecordFile
from sglforge.provision.stamps import BYTE_CODE, recorded_paths, row, stamp

AGAIN = "nox -s install"
DIST_INFO = ".dist-info"
SHOWN_FILES = 20


def quick(environment: Environment, *, again: str = AGAIN) -> tuple[Finding, ...]:
    """Compare size, time and inode of every file that was installed, and look for what came later at the top.

    Nothing is hashed: this is the check of a run that has nothing to do. Files that somebody added inside a package,
    and edits that kept size, time and inode, are left to :func:`full`. ``again`` is the command that makes the
    environment again, for the hints.
    """
    receipt, site = environment.receipt, environment.site_packages
    findings = _interpreter(environment, again)
    known = _tops(receipt.loose)
    for built in receipt.built:
        findings += _differing(built.name, *_stamps(site, built.files), again)
        known |= _tops(built.files)
    ours = {built.name for built in receipt.built}
    for folder, record in receipt.records.items():
        if (name := _distribution(folder)) in ours:
            continue
        paths = recorded_paths(site / folder / "RECORD")
        known |= _tops(paths)
        changed, missing = _stamps(site, {f"{folder}/RECORD": record})
        if not (changed or missing):
            changed, missing = _moved(environment, paths, record)
        findings += _differing(name, changed, missing, again)
    findings += _added(site, receipt.records, again)
    if loose := [name for name in _top_level(site) if name not in known and not name.endswith(DIST_INFO)]:
        findings.append(_came_later(sorted(loose), again))
    return tuple(findings)


def full(environment: Environment, *, again: str = AGAIN) -> tuple[Finding, ...]:
    """Hash everything: built files against the receipt, every other file against its RECORD.

    Also found: distributions and files that came later, a torch that was replaced, files with two owners,
    requirements of built packages that do not hold. Byte code (``__pycache__``) is not looked at.
    """
    from sglforge.provision.distributions import loose_files, owned_twice, read_distributions
    from sglforge.provision.requirements import judge_requirements

    receipt, site = environment.receipt, environment.site_packages
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
        findings += _differing(name, *unlike(site, expected), again)
    findings += _added(site, receipt.records, again)
    findings += duplicates(owned_twice(installed.values()))
    if loose := [path for path in loose_files(site, installed.values()) if path not in set(receipt.loose)]:
        findings.append(_came_later(loose, again))
    declaring = [installed[name] for name in (*built, "torch") if name in installed]
    held = (*receipt.omitted, *receipt.relaxed)
    reasons = {_requirement_name(entry.requirement): entry.reason for entry in held}
    findings += judge_requirements(declaring, installed, relaxed=reasons, python=receipt.python).unmet
    return tuple(findings)


def thorough(environment: Environment) -> tuple[Finding, ...]:
    """Return what :func:`quick` finds, else what :func:`full` does."""
    return quick(environment) or full(environment)


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


def _interpreter(environment: Environment, hint: str) -> list[Finding]:
    """Look whether the environment's Python is there and is the one that it was made from."""
    python, made_from = environment.python, environment.receipt.python
    if not os.access(python, os.X_OK):
        said = f"the environment's Python is gone or not for this user; it was made from {made_from.base}"
        return [_changed("python", said, [], hint)]
    findings = []
    if os.path.realpath(python) != os.path.realpath(made_from.base):
        said = f"the environment's Python is {os.path.realpath(python)}; it was made from {made_from.base}"
        findings.append(_changed("python", said, [], hint))
    config = environment.python_config
    if unlike(config.parent, {config.name: made_from.config_sha256}) != ([], []):
        said = f"{config.name}, which tells the environment's Python where it belongs, was changed or removed"
        findings.append(_changed("python", said, [str(config)], hint))
    return findings


def _stamps(site: Path, expected: Mapping[str, BuiltFile | RecordFile]) -> tuple[list[str], list[str]]:
    """Return the paths whose size, time or inode is another, and those that are missing."""
    changed: list[str] = []
    missing: list[str] = []
    try:
        folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return changed, list(expected)
    try:
        seen = row(folder, list(expected))
        if seen and seen.tolist() == [number for file in expected.values() for number in file[-3:]]:
            return changed, missing
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


def unlike(site: Path, expected: Mapping[str, str | None]) -> tuple[list[str], list[str]]:
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


def _moved(environment: Environment, paths: Sequence[str], record: RecordFile) -> tuple[list[str], list[str]]:
    """Return what is wrong with the files of a RECORD: those changed since the receipt, and those missing.

    The receipt has one digest for all of them; where no file is newer than the receipt, the RECORD stands for them.
    """
    stamps = stamp(environment.site_packages, paths)
    if stamps.digest == record.stamps:
        return [], []
    finished = (environment.path / RECEIPT).stat().st_mtime_ns
    changed = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            if (environment.site_packages / path).stat().st_mtime_ns > finished:
                changed.append(path)
    unnamed = [] if changed or stamps.missing else ["files of another size, time or inode: nox -s verify hashes them"]
    return changed or unnamed, list(stamps.missing)


def _added(site: Path, records: Iterable[str], hint: str) -> list[Finding]:
    present = {name for name in _top_level(site) if name.endswith(DIST_INFO)}
    return [
        _changed(_distribution(folder), f"{_distribution(folder)} was installed later", [folder], hint)
        for folder in sorted(present - set(records))
    ]


def _tops(paths: Iterable[str]) -> set[str]:
    return {path.partition("/")[0] for path in paths}


def _top_level(site: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(site)} - {BYTE_CODE}
    except OSError:
        return set()  # every file is missing, and that is said already


def _came_later(paths: list[str], hint: str) -> Finding:
    return _changed("site-packages", f"{len(paths)} files came later and belong to no distribution", paths, hint)


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
