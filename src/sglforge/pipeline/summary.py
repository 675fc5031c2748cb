"""What a run's steps came to: a table on the console, and a page for GitHub's step summary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sglforge.base.console import Console, Ended, Verbosity
from sglforge.base.dialects import markdown

HEADER = ("step", "state", "why", "seconds", "CPU s", "peak MiB")
FINDINGS_SHOWN = 100
_WHY_SHOWN = 60


def say_summary(console: Console) -> None:
    """Print the table of steps where something was built, and always with ``-v``."""
    built = any(name.startswith("build ") and ended.state == "ok" for name, ended in console.ended.items())
    if built or console.verbosity is Verbosity.VERBOSE:
        console.table(HEADER, [[*row[:2], _cut(row[2]), *row[3:]] for row in _rows(console)])


def append_github_summary(
    console: Console, document: Mapping[str, object], *, verb: str, again: str, environment: Mapping[str, str]
) -> None:
    """Append verdict, steps, findings and environment to the file that ``GITHUB_STEP_SUMMARY`` names, if it does.

    A file that cannot be written does no harm.
    """
    if not (name := environment.get("GITHUB_STEP_SUMMARY")):
        return
    text = "\n".join(_page(console, document, verb, again)) + "\n"
    with suppress(OSError):
        descriptor = os.open(Path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
        try:
            os.write(descriptor, text.encode(errors="replace"))
        finally:
            os.close(descriptor)


def _page(console: Console, document: Mapping[str, object], verb: str, again: str) -> Iterator[str]:
    yield f"### sglforge {markdown(verb)}: {markdown(str(document.get('verdict', 'done')))}"
    yield ""
    if rows := [
        *_rows(console),
        *([name, "left", "", "", "", ""] for name in console.left if name not in console.ended),
    ]:
        yield from _table(HEADER, rows)
    found = document.get("findings")
    findings = [finding for finding in found if isinstance(finding, dict)] if isinstance(found, list) else []
    if findings:
        words = ("severity", "code", "where", "message", "hint")
        yield from _table(words, [[str(one.get(word) or "") for word in words] for one in findings[:FINDINGS_SHOWN]])
    if len(findings) > FINDINGS_SHOWN:
        yield f"and {len(findings) - FINDINGS_SHOWN} more findings"
        yield ""
    made = document.get("environment")
    if isinstance(made, dict):
        yield f"environment {markdown(str(made.get('path')))}"
        yield ""
    if console.left:
        yield f"go on with {markdown(again)}"
        yield ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(map(markdown, row))} |"
    yield ""


def _rows(console: Console) -> list[list[str]]:
    """Return a row for each step that ended, those that were expected in their order."""
    order = {name: place for place, name in enumerate(console.expected)}
    names = sorted(console.ended, key=lambda name: order.get(name, -1))
    return [_row(name, console.ended[name]) for name in names]


def _row(name: str, ended: Ended) -> list[str]:
    state = "built" if ended.state == "ok" and name.startswith("build ") else ended.state
    return [
        name,
        state,
        ended.why,
        f"{ended.seconds:.1f}",
        "" if ended.cpu_s is None else f"{ended.cpu_s:.1f}",
        "" if ended.peak_mib is None else f"{ended.peak_mib:.0f}",
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _WHY_SHOWN else f"{text[: _WHY_SHOWN - 1]}…"
