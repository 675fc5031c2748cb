"""Working folders: the run that made one holds a lock on it, so what a killed run left is known at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sglforge.base.files import remove
from sglforge.base.workspace import Workspace

ABANDONED_AFTER_S = 48 * 3600.0
_LOCKED = ".work"


@contextmanager
def working_folder(workspace: Workspace, name: str, *, keep: bool = False) -> Iterator[Path]:
    """Yield an empty folder in the workspace's scratch that is gone afterwards, however the block ends.

    What killed runs left there is removed first. With ``keep`` the folder stays, until it is two days old.
    """
    sweep(workspace)
    folder, lock = _make(workspace.scratch, name, suffix="" if keep else _LOCKED)
    try:
        yield folder
    finally:
        try:
            if not keep:
                remove(folder)
        finally:
            os.close(lock)


def sweep(workspace: Workspace, *, older_than_s: float = ABANDONED_AFTER_S) -> tuple[Path, ...]:
    """Remove the working folders that nobody works in any more and return them.

    A folder with a lock is abandoned when its lock is free: the system frees it when its holder ends, however it
    ends. Anything else (kept on purpose, or on a file system without locks) is when it is old.
    """
    swept = []
    try:
        found = sorted(workspace.scratch.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    for path in found:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            free = _is_free(path, stack) if path.name.endswith(_LOCKED) else None
            if free or (free is None and time.time() - path.lstat().st_mtime > older_than_s):
                remove(path)
                swept.append(path)
    return tuple(swept)


def is_abandoned(folder: Path, *, older_than_s: float = ABANDONED_AFTER_S, now: float) -> bool:
    """Say whether nobody works in a folder of the scratch any more, as :func:`sweep` does; nothing is removed."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        free = _is_free(folder, stack) if folder.name.endswith(_LOCKED) else None
        return free or (free is None and now - folder.lstat().st_mtime > older_than_s)
    return False


def _make(scratch: Path, name: str, *, suffix: str) -> tuple[Path, int]:
    while True:
        folder = scratch / f"{name}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"
        folder.mkdir(parents=True)
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)  # another run swept it before it was locked


def _is_free(folder: Path, stack: contextlib.ExitStack) -> bool | None:
    """Say whether nobody holds a folder's lock, which is then held by us; None where that cannot be told."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
