"""Tell from what a build said what stopped it: the rules of build steps (no network, no write outside), a full disk."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from sglforge.errors import BuildError

LINES = 60
"""How much of the end of the output is looked at: what stopped a build stands near its end."""
TAIL_LINES = 20

_NETWORK = re.compile(
    r"""
    temporary\ failure\ in\ name\ resolution | name\ or\ service\ not\ known | could\ not\ resolve
    | failed\ to\ lookup\ address | no\ address\ associated\ with\ hostname | dns\ error
    | network\ is\ unreachable | connection\ refused | (failed|unable)\ to\ connect
    | network\ (connectivity\ is|was)\ disabled | (in|is)\ the\ offline\ mode | --offline\ was\ specified
    | transport\ '\w+'\ not\ allowed | could\ not\ connect | couldn't\ connect
    | (connect|urlopen|socket)\b.*permission\ denied
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FULL = re.compile(r"no space left on device|disk quota exceeded|\bENOSPC\b", re.IGNORECASE)
_REFUSED = r"(?:permission denied|read-only file system|operation not permitted)"
_WRITE = re.compile(
    rf"""{_REFUSED}:\s*['"\u2018](?P<after>/[^'"\u2019]+)|(?<![\w.~-])(?P<before>/[^\s'"\u2019:]+)['"\u2019]?:\s+{_REFUSED}""",
    re.IGNORECASE,
)


def named(output: str, package: str, *, own: Sequence[Path], log: Path) -> BuildError | None:
    """Return the error for a build that a rule or the disk stopped, by the last line that tells; None where none does.

    Args:
        output: What the failed call of the backend said.
        package: Its name.
        own: Where the step may write.
        log: The file with all that was said.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in reversed(lines[-LINES:]):
        if _FULL.search(line):
            return BuildError(
                code="disk-full",
                message=f"the build of {package} found no room on the disk: {line}",
                hint=f"free some space, or use another workspace (--workspace DIR, SGLFORGE_HOME); all is in {log}",
            )
        if _NETWORK.search(line):
            return _error(
                "build-needs-network",
                f"the build of {package} asked for the network, and build steps have none: {line}",
                "declare what it fetches: in the recipe's `build-requires`, or as a pinned source",
                lines,
                log,
            )
        if (found := _WRITE.search(line)) and _only_refused_here(path := found["after"] or found["before"], own):
            return _error(
                "build-writes-outside",
                f"the build of {package} writes to {path}, and build steps write to their own folder only",
                "let it write below its source folder, $HOME or $TMPDIR",
                lines,
                log,
            )
    return None


def _only_refused_here(path: str, own: Sequence[Path]) -> bool:
    """Say whether we may write to a path that is not the step's: then its sandbox has refused it."""
    place = Path(os.path.normpath(path))
    if any(place.is_relative_to(folder) or place.is_relative_to(folder.resolve()) for folder in own):
        return False
    nearest = next((there for there in (place, *place.parents) if there.exists()), place)
    return os.access(nearest, os.W_OK)


def _error(code: str, message: str, hint: str, lines: Sequence[str], log: Path) -> BuildError:
    output = "\n".join(lines[-TAIL_LINES:])
    return BuildError(
        code=code, message=message, context={"output": output}, hint=f"{hint}; all is in {log}", log=str(log)
    )
