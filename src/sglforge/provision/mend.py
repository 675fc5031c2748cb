"""Distributions that came changed out of uv's cache, taken out of it and installed again.

uv links files from its cache: an edit in place, in any environment, is in the cache too and would come again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sglforge.errors import InstallError
from sglforge.provision.distributions import read_distributions
from sglforge.provision.uv import Uv
from sglforge.provision.verify import SHOWN_FILES, unlike

_NOT_INSTALLED = re.compile(r"Failed to install:\s+\S+\s+\((\S+?)==")  # uv breaks long lines


def mend(
    lines: Mapping[str, str], *, site: Path, uv: Uv, log: Path | None, install: Callable[[Sequence[str]], None]
) -> None:
    """Install again those distributions that are not what their RECORD says, which uv does not link but writes.

    Args:
        lines: The requirement line of each distribution that may have been changed, by name.
        site: The site-packages folder that they were installed into.
        uv: Forgets what it has cached of them.
        log: File for its output.
        install: Installs lines in place of what is there.

    Raises InstallError ``built-file-differs`` for what differs after that too, and what ``install`` raises: without
    a network it may find no original.
    """
    damaged = _damaged(lines, site) if lines else {}
    if not damaged:
        return
    uv("cache", "clean", *damaged, log=log)
    install([lines[name] for name in damaged])
    if still := _damaged(damaged, site):
        raise InstallError(
            code="built-file-differs",
            message=f"installed files of {', '.join(still)} are not those of the wheel, although it was unpacked anew",
            context=still,
            hint="something else writes into the new environment, or the disk is damaged: find it, then install again",
        )


def unusable(error: InstallError) -> tuple[str, ...]:
    """Return the distributions that uv does not install because what its cache holds of them is damaged."""
    return tuple(dict.fromkeys(_NOT_INSTALLED.findall(error.context.get("uv said", ""))))


def _damaged(names: Iterable[str], site: Path) -> dict[str, str]:
    """Return the distributions that are not what their RECORD says, each with a few of the files that tell."""
    found = {}
    installed = read_distributions(site)
    for name in names:
        changed, missing = unlike(site, installed[name].files)
        if changed or missing:
            found[name] = ", ".join([*changed, *missing][:SHOWN_FILES])
    return found
