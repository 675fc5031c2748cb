"""Tell from what ninja and compilers said which module failed, where, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.errors import BuildError

TAIL_LINES = 30
_FAILED = re.compile(r"^FAILED: (?:\[code=(?P<status>-?\d+)\] )?(?P<output>\S+).*\n(?P<command>.*\n)?", re.MULTILINE)
_NEXT = re.compile(r"^(?:\[\d+/\d+\] |ninja: |FAILED: )", re.MULTILINE)
"""What ends the words of a unit: ninja's own."""
_PLACED = (
    re.compile(r"^(?P<file>[^\s():]+)\((?P<line>\d+)\): (?:catastrophic )?error(?:\s*#[\w-]+)?: (?P<text>.+)$"),
    re.compile(r"^(?P<file>[^\s():]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.+)$"),
)
_UNPLACED = re.compile(
    r"^(?:nvcc|ptxas|cicc|nvlink|collect2|ld|/usr/bin/ld)\b.*?(?:fatal|error)\s*:\s*(?P<text>.+)$|"
    r"^(?P<ld>.*(?:undefined reference to|cannot find -l).*)$|^(?P<killed>.*\b(?:Killed|Compilation terminated)\b.*)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    text: str
    where: str | None = None


def named(
    package: str, output: str, libraries: Mapping[str, str], *, shown: Callable[[str], str], log: Path
) -> BuildError:
    """Return the error for a compilation that failed, by the first unit that did.

    Args:
        package: Whose modules were compiled.
        output: What ninja and the compilers said.
        libraries: The library of each module that was to be compiled, by its name, as the step saw it.
        shown: Returns what a person is shown of a path that the step saw.
        log: The file with all that was said.
    """
    failed = _FAILED.search(output)
    said = _NEXT.split(output[failed.end() :], 1)[0] if failed else output
    silent = f"the compiler ended with status {failed['status'] or 'unknown'}" if failed else "nobody said why"
    cause, module = _cause(said, shown, silent=silent), _module(failed["output"] if failed else "", libraries)
    what = f"module {module} of {package}" if module else f"a module of {package}"
    lines = [line for line in (output[failed.start() :] if failed else output).splitlines() if line.strip()]
    return BuildError(
        code="module-compile-failed",
        message=f"{what} does not compile: {f'{cause.where}: ' if cause.where else ''}{cause.text}",
        where=cause.where,
        context={"output": "\n".join(lines[:TAIL_LINES])},
        hint=f"modules that were finished are kept: the next build goes on with them; all is in {log}",
        log=str(log),
    )


def _module(output: str, libraries: Mapping[str, str]) -> str | None:
    """Return the module in whose folder an output lies."""
    folder = output.rpartition("/")[0]
    return next((name for name, library in libraries.items() if library.rpartition("/")[0] == folder), None)


def _cause(said: str, shown: Callable[[str], str], *, silent: str) -> _Cause:
    """Return the first error that is told with its place, else the first one, else the last line, else ``silent``."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in lines:
        for form in _PLACED:
            if found := form.match(line):
                return _Cause(text=found["text"], where=f"{shown(found['file'])}:{found['line']}")
    for line in lines:
        if found := _UNPLACED.match(line):
            return _Cause(text=next(filter(None, found.groups())))
    return _Cause(text=lines[-1] if lines else silent)
