"""The contract `evidence-exists`: what a topic names as its evidence is logged, printed or raised by its own code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sglforge.config.suggest import nearest
from sglforge.errors import Finding, Severity
from sglforge.patches.contracts.subject import Patched
from sglforge.patches.contracts.texts import GAP, literal

_LOGGING = {
    "log",
    "logger",
    "logging",
    "print",
    "warn",
    "warning",
    "warnings",
    "info",
    "error",
    "critical",
    "exception",
}


def evidence_exists(patched: Patched, topic: str, evidence: str, where: str) -> Iterator[Finding]:
    """Yield a finding when no call of a topic's code shows its evidence; whether the call is reached is not judged."""
    if not evidence:
        return
    shown = list(_shown(patched, topic))
    if any(evidence in text for text in shown):
        return
    readable = [text.replace(GAP, "{}") for text in shown]
    near = nearest(evidence, readable)
    yield Finding(
        code="patch-evidence-missing",
        severity=Severity.ERROR,
        message=f"no logging call, `print` or `raise` of the topic's code has the text {evidence!r}",
        hint=f"did you mean {near!r}?" if near else "log it in a payload, or name a text that a payload logs",
        where=where,
        detail=tuple(f"shown: {text!r}" for text in readable),
    )


def _shown(patched: Patched, topic: str) -> Iterator[str]:
    """Yield the texts that a topic's code logs at `info` or above, prints or raises."""
    for file in patched.origins.files(topic):
        module = patched.tree.module(file)
        for node in patched.origins.nodes(file, module) if module else ():
            if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _logs(node)):
                inner = [own for own in ast.walk(node) if isinstance(own, ast.expr)]
                texts = [literal(own) for own in inner if patched.origins.is_from(topic, file, own.lineno)]
                yield from (text for text in texts if text)


def _logs(call: ast.Call) -> bool:
    """Tell whether a call shows its text in the log as a server is started; `debug` does not."""
    parts = [getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(call.func)]
    words = {word for part in parts for word in part.lower().split("_")}
    return bool(words & _LOGGING) and "debug" not in words
