"""Files that the command line names for results."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sglforge.base.files import write_text
from sglforge.errors import ConfigError


def write_output(path: Path, text: str) -> None:
    """Write a file that was asked for, whole or not at all.

    Raises ConfigError ``output-not-written``.
    """
    try:
        write_text(path, text)
    except OSError as error:
        raise _not_written(path, error.strerror) from error


def require_place(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result goes there.

    Raises ConfigError ``output-not-written``.
    """
    if path.is_dir():
        raise _not_written(path, os.strerror(errno.EISDIR))
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise _not_written(path, os.strerror(errno.ENOTDIR))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _not_written(path, os.strerror(errno.EACCES))


def _not_written(path: Path, why: str | None) -> ConfigError:
    return ConfigError(
        code="output-not-written",
        message=f"cannot write {path}: {why}",
        where=str(path),
        hint="name a file in a folder that you may write to",
    )
