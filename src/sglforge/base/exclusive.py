"""One run at a time: a lock whose holder is known by name, so that those who wait can say for whom."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sglforge.base import files
from sglforge.errors import InstallError

TIMEOUT_S = 1800.0


@contextlib.contextmanager
def exclusive(path: Path, *, waiting: Callable[[str], None], timeout_s: float = TIMEOUT_S) -> Iterator[None]:
    """Hold ``<path>.lock``: one run at a time makes or proves an environment.

    ``waiting`` is told for whom, if it is not free. The system frees it when its holder ends, however it ends.

    Raises InstallError ``environment-busy`` after ``timeout_s`` seconds of waiting.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{path}.lock")
    holder = path.with_name(f"{path.name}.holder")
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting(f"waiting for process {_holder(holder)}, which makes or proves this environment")
            lock.acquire(timeout=timeout_s)
    except Timeout as error:
        raise InstallError(
            code="environment-busy",
            message=f"process {_holder(holder)} still makes or proves this environment after {timeout_s:.0f} s",
            context={"lock": f"{path}.lock"},
            hint="wait for it, or end that process and repeat",
        ) from error
    try:
        files.write_text(holder, f"{os.getpid()}\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        return path.read_text().strip() or "unknown"
    except FileNotFoundError:
        return "unknown"
