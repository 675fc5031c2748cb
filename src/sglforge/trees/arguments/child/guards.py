"""What a tree's code may not do while its parser is asked: write, reach the network, start or end processes.

These are guard rails for code that was not written with us in mind, not a prison: a tree that is to be served is
trusted with more than this.
"""

from __future__ import annotations

import os
import posix
import resource
import sys
from typing import Final

MEMORY_BYTES: Final = 4 * 1024**3
OUTPUT_BYTES: Final = 64 * 1024**2
OPEN_FILES: Final = 128

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN: Final = {
    "socket.": "reach the network",
    "subprocess.": "start a process",
    "os.exec": "start a process",
    "os.posix_spawn": "start a process",
    "os.spawn": "start a process",
    "os.system": "start a process",
    "os.fork": "start a process",
    "pty.spawn": "start a process",
    "os.kill": "end a process",
    "os.chmod": "write",
    "os.chown": "write",
    "os.lockf": "write",
    "os.link": "write",
    "os.mkdir": "write",
    "os.remove": "write",
    "os.rename": "write",
    "os.rmdir": "write",
    "os.setxattr": "write",
    "os.removexattr": "write",
    "os.symlink": "write",
    "os.truncate": "write",
    "os.utime": "write",
    "shutil.": "write",
    "sqlite3.": "write",
    "ctypes.dlsym": "call the C library",
}
_NOT_AUDITED: Final = ("mkfifo", "mknod")
_HARMLESS: Final = frozenset({"socket.gethostname"})


class Forbidden(BaseException):
    """The tree's code tried something that reading a schema does not need; no `except Exception` hides it."""


def limit(seconds: int) -> None:
    """Bound processor time, memory, open files and the size of any file."""
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))


def guard(tries: list[str]) -> None:
    """Refuse from now on what is forbidden, for good, and note in ``tries`` what was tried."""

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and bool(flags & _WRITING)
            if writes and path != os.devnull:
                raise refused(f"write {path!r}", tries)
            return
        for prefix, what in _FORBIDDEN.items():
            if event.startswith(prefix) and event not in _HARMLESS:
                raise refused(f"{what} ({event})", tries)

    def special(*_: object, **__: object) -> None:
        raise refused("write", tries)

    sys.addaudithook(watch)
    for name in _NOT_AUDITED:
        setattr(os, name, special)
        setattr(posix, name, special)


def refused(what: str, tries: list[str]) -> Forbidden:
    """Note what was tried and return the exception for it."""
    tries.append(what)
    return Forbidden(f"it tried to {what}")
