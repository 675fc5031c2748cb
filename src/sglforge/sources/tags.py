"""Which wheels fit a Python minor on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename


def supported_tags(minor: str) -> tuple[Tag, ...]:
    """Return the tags that CPython ``minor`` (``3.11``) accepts here, the best first."""
    major, _, rest = minor.partition(".")
    version = (int(major), int(rest))
    platforms = list(platform_tags())
    return (
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=f"cp{major}{rest}", platforms=platforms),
    )


def rank(file_name: str, supported: Sequence[Tag]) -> int | None:
    """Return the place of a wheel's best tag among the supported ones (0: best), None if it does not fit."""
    try:
        tags = parse_wheel_filename(file_name)[3]
    except InvalidWheelFilename:
        return None
    return next((place for place, tag in enumerate(supported) if tag in tags), None)
