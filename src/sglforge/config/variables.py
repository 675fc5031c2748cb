"""Variables of a build: which names are the engine's own, and what stands for something in their texts."""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter

PLACEHOLDERS = ("version",)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
OWN = frozenset(
    {
        *PROXIES,
        *(name.upper() for name in PROXIES),
        "CARGO_NET_OFFLINE",
        "GIT_ALLOW_PROTOCOL",
        "HOME",
        "LANG",
        "LD_LIBRARY_PATH",
        "PATH",
        "PIP_NO_INDEX",
        "PYTHONHASHSEED",
        "PYTHONNOUSERSITE",
        "PYTHONUNBUFFERED",
        "SOURCE_DATE_EPOCH",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "UV_OFFLINE",
    }
)
"""Names that the engine sets for every build, or passes on."""
JOBS = frozenset({"CMAKE_BUILD_PARALLEL_LEVEL", "MAKEFLAGS", "MAX_JOBS", "NINJAFLAGS"})
"""Names that say how many jobs run at once: a matter of the machine, and never of what is built."""


def filled(text: str, *, version: str | None) -> str:
    """Return a variable's text with ``{version}`` replaced (``{{`` and ``}}`` are braces); None leaves it there."""
    return text.format(version="{version}" if version is None else version)


def wrong_placeholders(text: str) -> Iterator[str]:
    """Yield what is wrong with the placeholders of a variable's text, for people."""
    try:
        pieces = list(Formatter().parse(text))
    except ValueError:
        yield "has a brace without its other half; `{{` and `}}` stand for braces"
        return
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        if name not in PLACEHOLDERS:
            yield f"has an unknown placeholder {{{name}}}"
        elif form or conversion:
            yield f"asks for a form of {{{name}}}, and there is only one"


def uses(text: str, name: str) -> bool:
    """Say whether a variable's text has a placeholder; one that is broken has none."""
    return not any(wrong_placeholders(text)) and any(found == name for _, found, _, _ in Formatter().parse(text))
