"""Whether what distributions declare is what is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from sglforge.errors import Finding, Severity
from sglforge.provision.distributions import Distribution
from sglforge.provision.receipt import DeclaredRequirement, PythonReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """The outcome: not installed for a reason, another version for a reason, not held without one."""

    omitted: tuple[DeclaredRequirement, ...]
    relaxed: tuple[DeclaredRequirement, ...]
    unmet: tuple[Finding, ...]


def judge_requirements(
    declaring: Iterable[Distribution],
    installed: Mapping[str, Distribution],
    *,
    relaxed: Mapping[str, str],
    python: PythonReceipt,
) -> Declarations:
    """Compare the requirements of some distributions with what is installed.

    ``relaxed`` maps names that need not be held to the reason. Extras, and markers that do not apply, are
    passed over.
    """
    markers: dict[str, str | AbstractSet[str]] = {name: str(value) for name, value in default_environment().items()}
    markers |= {"python_version": python.minor, "python_full_version": python.version, "extra": ""}
    reasons = {canonicalize_name(name): reason for name, reason in relaxed.items()}
    omitted: list[DeclaredRequirement] = []
    loosened: list[DeclaredRequirement] = []
    unmet: list[Finding] = []
    for distribution in declaring:
        for line in distribution.requires:
            try:
                requirement = Requirement(line)
            except InvalidRequirement as error:
                unmet.append(_unmet(distribution, line, f"that is no requirement: {error}"))
                continue
            if requirement.marker and not requirement.marker.evaluate(markers):
                continue
            name = canonicalize_name(requirement.name)
            found = installed.get(name)
            if found and requirement.specifier.contains(found.version, prereleases=True):
                continue
            if name not in reasons:
                what = f"{found.version} is installed" if found else "it is not installed"
                unmet.append(_unmet(distribution, line, what))
                continue
            held = DeclaredRequirement(
                by=distribution.name,
                requirement=line,
                installed=found.version if found else None,
                reason=reasons[name],
            )
            (loosened if found else omitted).append(held)
    return Declarations(omitted=tuple(omitted), relaxed=tuple(loosened), unmet=tuple(unmet))


def _unmet(distribution: Distribution, requirement: str, what: str) -> Finding:
    return Finding(
        code="requirement-unmet",
        severity=Severity.ERROR,
        subject=distribution.name,
        message=f"{distribution.name} {distribution.version} declares {requirement!r}; {what}",
        hint="change the stack's requirements, or relax this one there with a reason",
    )
