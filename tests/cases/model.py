"""Case files: a public failure report as a small input, what must be said of it, and how that is judged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglforge.errors import Finding, Severity

_COMMENT = re.compile(r"\([^)]*\)")


class CaseError(Exception):
    """A case file that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case file: its kinds (log, env, launch, tree, so, smoke), its input and what is expected."""

    path: Path
    id: str
    title: str
    kinds: tuple[str, ...]
    input: Mapping[str, Any]
    expect: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the product says of a case's input."""

    verdict: str
    findings: tuple[Finding, ...]


def load(path: Path) -> Case:
    """Read a case file.

    Raises CaseError when it is no case.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise CaseError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise CaseError(f"{path}: not JSON: {error}") from error
    if wrong := list(_wrong(document)):
        raise CaseError(f"{path} is no case file: {'; '.join(wrong)}")
    kinds = document["kinds"]
    return Case(
        path=path,
        id=str(document["id"]),
        title=str(document["title"]),
        kinds=tuple([kinds] if isinstance(kinds, str) else kinds),
        input=document["input"],
        expect=document["expect"],
    )


def _wrong(document: object) -> Iterator[str]:
    """Yield which fields are missing, or are something else than a case has."""
    if not isinstance(document, dict):
        yield "it must be an object"
        return
    for field in ("id", "title", "kinds", "input", "expect"):
        if field not in document:
            yield f"the field `{field}` is missing"
    kinds = document.get("kinds", "")
    if not isinstance(kinds, str) and not _are_words(kinds):
        yield "`kinds` must be a text or a list of texts"
    for field in ("input", "expect"):
        if not isinstance(document.get(field, {}), dict):
            yield f"`{field}` must be an object"
    expect = document.get("expect")
    for field, value in expect.items() if isinstance(expect, dict) else ():
        if field in {"must_not_rule", "must_say", "must_not_say"} and value is not None and not _are_words(value):
            yield f"`expect.{field}` must be a list of texts"
        if field in {"rule", "verdict"} and value is not None and not isinstance(value, str):
            yield f"`expect.{field}` must be a text"


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def faults(case: Case, judgement: Judgement) -> Iterator[str]:
    """Yield in what a judgement is not the expected one; codes first, then the verdict, then words."""
    loud = [finding for finding in judgement.findings if finding.severity is not Severity.INFO]
    rule = case.expect.get("rule")
    codes = [finding.code for finding in judgement.findings]
    if rule and rule not in codes:
        yield f"wanted {rule}, got {', '.join(codes) or 'no finding'}"
    for code in case.expect.get("must_not_rule") or ():
        if code in {finding.code for finding in loud}:
            yield f"{code} must not be found"
    wanted = case.expect.get("verdict") or ""
    if wanted and not any(_is_verdict(one, judgement, rule) for one in _alternatives(wanted)):
        yield f"wanted {wanted}, got {judgement.verdict}"
    about = [finding for finding in judgement.findings if not rule or finding.code == rule]
    said = _words(about).casefold()
    for word in case.expect.get("must_say") or ():
        if str(word).casefold() not in said:
            yield f"does not say {word!r}"
    for word in case.expect.get("must_not_say") or ():
        if str(word).casefold() in said:
            yield f"says {word!r}"


def _alternatives(verdict: str) -> list[str]:
    bare = _COMMENT.sub("", verdict).replace("PASS+NOTE", "PASS")
    return [one.strip().upper() for one in bare.split("/") if one.strip()]


def _is_verdict(wanted: str, judgement: Judgement, rule: str | None) -> bool:
    severities = {finding.severity for finding in judgement.findings}
    match wanted:
        case "PASS":
            return not severities & {Severity.ERROR, Severity.WARNING}
        case "REJECT" | "FAIL":
            return Severity.ERROR in severities
        case "WARN":
            return Severity.WARNING in severities
        case "DIAGNOSE":
            return bool(rule) and rule in {finding.code for finding in judgement.findings}
        case _:
            return judgement.verdict.upper() == wanted


def _words(findings: Sequence[Finding]) -> str:
    return "\n".join(
        text for finding in findings for text in (finding.subject, finding.message, finding.hint, *finding.detail)
    )
