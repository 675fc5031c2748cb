"""Hold a profile to the rules of its target: what they add to it, and where it contradicts them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from sglforge.config.model import Profile
from sglforge.config.suggest import hint
from sglforge.errors import Finding, RenderError, Severity
from sglforge.launch.rules import Rule, RulesFile
from sglforge.patches.versions import holds

_WIDTH = 110
_TENSOR_PARALLEL = ("tp-size", "tp", "tensor-parallel-size")
"""SGLang's names of one option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRule:
    """A rule that holds for a version of SGLang; ``overridden`` is the profile's reason not to keep to it."""

    name: str
    rule: Rule
    overridden: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the rule for a document."""
        return {
            "name": self.name,
            "applied": not self.overridden,
            "settings": self.rule.settings(),
            "reason": self.overridden or self.rule.reason,
            "reference": self.rule.reference,
        }

    def lines(self) -> list[str]:
        """Return the rule in words, each line fit for a comment."""
        if self.overridden:
            return _wrapped(f"{self.name} does not apply, the profile says: {self.overridden}")
        return [
            *_wrapped(f"{self.name}: {self.rule.settings()}"),
            *(f"  {line}" for text in (self.rule.reason, self.rule.reference) for line in _wrapped(text)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A profile with what the rules add to it, and the rules that hold for it."""

    profile: Profile
    version: str | None = None
    held: tuple[HeldRule, ...] = ()

    def comments(self) -> list[str]:
        """Return what the rules set, and which are overridden, as lines of a script's comment."""
        shown = [one for one in self.held if one.overridden or one.rule.environment or one.rule.flags]
        if not shown:
            return []
        head = f"Set by the rules of target {self.profile.target} for SGLang {self.version}:"
        return [head, *(f"  {line}" for one in shown for line in one.lines())]


def hold_to(rules: RulesFile | None, profile: Profile, version: str | None) -> Ruling:
    """Return the profile with what the rules of its target set for a version of SGLang.

    Args:
        rules: The rules of the profile's target; None when it has none.
        profile: What somebody wrote.
        version: The version of the SGLang that will run, without a local part; None when nothing says it.

    Raises RenderError ``rules-not-for-version``, or with a finding for each contradiction ``rule-contradicted``
    and each overridden rule that is none ``unknown-rule``.
    """
    if rules is None:
        return Ruling(profile=profile)
    if version is None or not holds(rules.read_for, version):
        raise RenderError(
            code="rules-not-for-version",
            message=f"the rules of target {rules.target} were read for SGLang {rules.read_for}, "
            f"the environment holds {version or 'none that it names'}",
            hint="build the environment from a stack with a version that they were read for",
        )
    held = tuple(
        HeldRule(name=name, rule=rule, overridden=profile.overridden_rules.get(name, ""))
        for name, rule in rules.rules.items()
        if holds(rule.versions, version)
        and (not rule.tensor_parallel or _tensor_parallel(profile) in rule.tensor_parallel)
    )
    applied = [one for one in held if not one.overridden]
    findings = [*_unknown(rules, profile), *(fault for one in applied for fault in _contradictions(one, profile))]
    if findings:
        raise RenderError(
            code=findings[0].code,
            message=findings[0].message if len(findings) == 1 else f"{len(findings)} faults in what the profile says",
            hint=findings[0].hint if len(findings) == 1 else "correct each of them; all faults are listed",
            findings=tuple(findings),
        )
    flags, environment = dict(profile.flags), dict(profile.environment)
    for one in applied:
        flags |= one.rule.flags
        environment |= one.rule.environment
    changed = profile.model_copy(update={"flags": flags, "environment": environment})
    return Ruling(profile=changed, version=version, held=held)


def _unknown(rules: RulesFile, profile: Profile) -> Iterator[Finding]:
    for name in profile.overridden_rules:
        if name not in rules.rules:
            yield Finding(
                code="unknown-rule",
                severity=Severity.ERROR,
                subject=profile.name,
                message=f"profile {profile.name} overrides the rule `{name}`, which target {rules.target} has not",
                hint=hint(name, rules.rules),
            )


def _contradictions(one: HeldRule, profile: Profile) -> Iterator[Finding]:
    for name, value in one.rule.environment.items():
        if profile.environment.get(name, value) != value:
            yield _contradiction(one, profile, f"sets {name}={profile.environment[name]}")
    for flag, value in one.rule.flags.items():
        for name in _written(profile, flag):
            if str(profile.flags[name]) != value:
                yield _contradiction(one, profile, f"says {name} = {profile.flags[name]!r}")
    for refusal in one.rule.refuses:
        for name in _written(profile, refusal.flag):
            value_set = profile.flags[name]
            values = value_set if isinstance(value_set, list) else [str(value_set)]
            if value_set is not False and (not refusal.values or not set(values).isdisjoint(refusal.values)):
                yield _contradiction(one, profile, f"says {name} = {value_set!r}")


def _contradiction(one: HeldRule, profile: Profile, what: str) -> Finding:
    return Finding(
        code="rule-contradicted",
        severity=Severity.ERROR,
        subject=one.name,
        message=f"profile {profile.name} {what} against the rule {one.name} ({one.rule.settings()}): {one.rule.reason}",
        hint=f'take it out; or, if you know better, say why under [overridden-rules]: {one.name} = "..."',
        detail=(f"reference: {one.rule.reference}",),
    )


def _written(profile: Profile, option: str) -> list[str]:
    """Return the names under which a profile sets an option: SGLang's parser takes beginnings of names too."""
    return [name for name in profile.flags if option.startswith(name)]


def _tensor_parallel(profile: Profile) -> int:
    for name in _TENSOR_PARALLEL:
        value = str(profile.flags.get(name, ""))
        if value.isdecimal():
            return int(value)
    return 1


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
