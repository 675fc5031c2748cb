"""pip's configuration where no pip is installed: the same files and variables, in the same order."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from configparser import Error, RawConfigParser
from pathlib import Path

from sglforge.errors import ConfigError

IGNORED_VARIABLES = frozenset({"version", "help"})


def read_files() -> dict[str, str]:
    """Return pip's settings by full name, ``section.key``; variables are in section ``:env:``.

    Later files override earlier ones key by key: system, user, this Python's prefix, then ``PIP_CONFIG_FILE``
    (pip's documentation, "Configuration").

    Raises ConfigError ``pip-configuration-invalid``.
    """
    settings: dict[str, str] = {}
    for path in _files():
        parser = RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (Error, UnicodeDecodeError) as error:
            raise ConfigError(
                code="pip-configuration-invalid",
                message=f"pip's configuration cannot be read: {str(error).splitlines()[0]}",
                where=str(path),
                hint=f"correct {path}",
            ) from error
        for section in parser.sections():
            settings |= {f"{section}.{_normal(key)}": value for key, value in parser.items(section)}
    for name, value in os.environ.items():
        key = _normal(name.removeprefix("PIP_"))
        if name.startswith("PIP_") and key not in IGNORED_VARIABLES:
            settings[f":env:.{key}"] = value
    return settings


def _files() -> Iterator[Path]:
    chosen = os.environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return
    home = _home()
    for folder in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep):
        yield Path(folder) / "pip/pip.conf"
    yield Path("/etc/pip.conf")
    # a file that is named stands in for the user's own
    if not chosen or not Path(chosen).exists():
        yield home / ".pip/pip.conf"
        yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if chosen:
        yield Path(chosen)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without an entry, as in some containers
        return Path("/")


def _normal(key: str) -> str:
    name = key.lower().replace("_", "-")
    return name.removeprefix("--")
