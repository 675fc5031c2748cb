"""The checks after an installation, and the receipt that they end in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import sglforge
from sglforge.base import files
from sglforge.config.lockfile import LockedPython, LockedRequirement
from sglforge.errors import Finding, InstallError, Severity
from sglforge.plan import BuildPlan
from sglforge.provision.distributions import (
    Distribution,
    loose_files,
    owned_twice,
    parse_record,
    read_distributions,
)
from sglforge.provision.receipt import (
    BuiltFile,
    BuiltReceipt,
    PythonReceipt,
    Receipt,
    RecordFile,
    RequirementReceipt,
    TorchReceipt,
)
from sglforge.provision.requirements import judge_requirements
from sglforge.provision.verify import duplicates

if TYPE_CHECKING:
    from sglforge.provision.install import Wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledWheel:
    """A built wheel with its installed files, and the paths whose content is not the wheel's."""

    wheel: Wheel
    receipt: BuiltReceipt
    differing: tuple[str, ...]


def look_at(wheel: Wheel, installed: Mapping[str, Distribution]) -> InstalledWheel:
    """Hash the installed files of a built wheel and compare them with the wheel's RECORD."""
    from packaging.utils import parse_wheel_filename

    name, version, *_ = parse_wheel_filename(wheel.path.name)
    found: dict[str, BuiltFile] = {}
    site = installed[name].info.parent
    for path in installed[name].files:
        status = (site / path).stat()
        found[path] = BuiltFile(
            sha256=files.sha256_file(site / path),
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            inode=status.st_ino,
        )
    with ZipFile(wheel.path) as archive:
        record = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/RECORD"))
        expected = parse_record(archive.read(record).decode().splitlines())
    return InstalledWheel(
        wheel=wheel,
        receipt=BuiltReceipt(
            name=name,
            version=str(version),
            build_key=wheel.key,
            wheel=wheel.path.name,
            wheel_sha256=wheel.sha256,
            files=found,
        ),
        differing=tuple(
            path
            for path, sha256 in expected.items()
            if sha256 and ".data/" not in path and (path not in found or found[path].sha256 != sha256)
        ),
    )


def inspect(
    plan: BuildPlan,
    wheels: Sequence[InstalledWheel],
    *,
    name: str,
    folder: Path,
    site: Path,
    python: PythonReceipt,
    torch: TorchReceipt,
    torch_record: RecordFile,
) -> Receipt:
    """Check an environment that was just installed, completely, and return its receipt.

    ``site`` is its site-packages folder; ``torch_record`` is the RECORD of torch as it was before anything else
    came.

    Raises InstallError with every fault: ``file-owned-twice``, ``torch-replaced``, ``environment-changed``,
    ``built-file-differs``, ``requirement-unmet``.
    """
    relaxed = plan.stack.environments[plan.target.name].relaxed
    installed = read_distributions(site)
    findings = duplicates(owned_twice(installed.values()))
    if installed["torch"].record != torch_record:
        findings.append(_fault("torch-replaced", "torch", "something replaced torch while it was installed"))
    findings += _missing(plan.python, installed)
    findings += [_differs(entry) for entry in wheels if entry.differing]
    built = tuple(entry.receipt for entry in wheels)
    declaring = [installed[entry.name] for entry in built] + [installed["torch"]]
    declared = judge_requirements(declaring, installed, relaxed=relaxed, python=python)
    findings += declared.unmet
    if findings:
        raise InstallError(
            code=findings[0].code,
            message=findings[0].message if len(findings) == 1 else f"{len(findings)} faults in the new environment",
            hint=findings[0].hint,
            findings=tuple(findings),
        )
    return Receipt(
        environment_key=plan.environment_key,
        name=name,
        created=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        engine=sglforge.__version__,
        site_packages=str(site.relative_to(folder)),
        python=python,
        torch=torch,
        requirements=tuple(_requirement(entry, installed) for entry in plan.python.requirements),
        built=built,
        omitted=declared.omitted,
        relaxed=declared.relaxed,
        records={entry.info.name: entry.record for entry in installed.values()},
        loose=loose_files(site, installed.values()),
    )


def _missing(locked: LockedPython, installed: Mapping[str, Distribution]) -> list[Finding]:
    return [
        _fault(
            "environment-changed",
            entry.name,
            f"{entry.name} {entry.version} is not there after its installation",
        )
        for entry in locked.requirements
        if entry.name not in installed or installed[entry.name].version != entry.version
    ]


def _requirement(requirement: LockedRequirement, installed: Mapping[str, Distribution]) -> RequirementReceipt:
    """Tell which of the locked files was taken, by the tags that its WHEEL states."""
    from packaging.tags import parse_tag
    from packaging.utils import parse_wheel_filename

    tags = {tag for line in installed[requirement.name].wheel_tags for tag in parse_tag(line)}
    taken = [file.sha256 for file in requirement.files if parse_wheel_filename(file.name)[3] == tags]
    sha256 = taken[0] if len(taken) == 1 else None
    return RequirementReceipt(name=requirement.name, version=requirement.version, sha256=sha256)


def _differs(entry: InstalledWheel) -> Finding:
    name = entry.receipt.name
    return Finding(
        code="built-file-differs",
        severity=Severity.ERROR,
        subject=name,
        message=f"{len(entry.differing)} installed files of {name} are not those of its wheel",
        hint="something else writes into the new environment, or the disk is damaged: find it, then install again",
        detail=entry.differing[:20],
    )


def _fault(code: str, subject: str, message: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message=message)
