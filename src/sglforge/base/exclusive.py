"""One at a time: a lock whose holder is known by name, so that those who wait can say for whom.

``<path>.lock`` is held with flock, which the system frees when its holder ends, however it ends; ``<path>.holder`` only
says who that is. A holder file that a killed run left behind is not believed: process ids are used again, so the start
of the process is compared too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sglforge.base import files
from sglforge.base.arguments import shown
from sglforge.errors import BuildError, InstallError, SglforgeError

TIMEOUT_S = 1800.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
NAMELESS_FOR_S = 1.0
LONGEST_WORDS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a lock is held for: what its holder does, and the error of those who wait in vain."""

    doing: str
    code: str
    error: type[SglforgeError]


ENVIRONMENT = Use(doing="makes or proves this environment", code="environment-busy", error=InstallError)
WHEEL = Use(doing="makes this wheel", code="workspace-busy", error=BuildError)
TOOLKIT = Use(doing="installs this CUDA toolkit", code="workspace-busy", error=InstallError)
STORE = Use(doing="writes to the store", code="workspace-busy", error=BuildError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a lock.

    ``started`` is when it began, in clock ticks since ``boot``, the id of the boot; ``since`` is when it took the
    lock, in seconds since the epoch. ``words`` are its verb and arguments.
    """

    pid: int
    started: int | None
    boot: str
    host: str
    words: tuple[str, ...]
    since: float

    def is_here(self) -> bool:
        """Say whether it is a process of this machine that still runs."""
        return self.host == os.uname().nodename and self.boot == _boot() and _stat(self.pid)[1] == self.started

    def could_hold(self) -> bool:
        """Say whether it may hold anything: one of another machine is believed, it cannot be looked at."""
        return self.host != os.uname().nodename or self.is_here()

    def is_stopped(self) -> bool:
        """Say whether it is stopped (SIGSTOP, a debugger, Ctrl-Z) and will not go on by itself."""
        return self.is_here() and _stat(self.pid)[0] in {"T", "t"}

    def describe(self, doing: str) -> str:
        """Return its process, what it does, its command, since when, and what keeps it."""
        where = "" if self.host == os.uname().nodename else f" on {self.host}"
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        words = shlex.join(("sglforge", *self.words))
        words = words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}..."
        stopped = f"; it is stopped (kill -CONT {self.pid} lets it go on)" if self.is_stopped() else ""
        return f"process {self.pid}{where}, which {doing} since {since} ({words}){stopped}"


@contextlib.contextmanager
def exclusive(
    path: Path,
    *,
    waiting: Callable[[str], None],
    timeout_s: float = TIMEOUT_S,
    use: Use = ENVIRONMENT,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold ``<path>.lock`` while the block runs: nobody else does, on this machine or another that shares the folder.

    Args:
        path: Names the lock; its folder is made.
        waiting: Told for whom it waits, if the lock is not free, and again when that changes.
        timeout_s: How long it waits.
        use: What it is held for, in words, and the error of waiting in vain.
        pause: Waits some seconds; what it raises ends the waiting.

    Raises the error of ``use`` after ``timeout_s`` seconds of waiting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    note = path.with_name(f"{path.name}.holder")
    lock = _acquire(path, note, waiting=waiting, timeout_s=timeout_s, use=use, pause=pause)
    try:
        with _named(note):
            yield
    finally:
        os.close(lock)


def holder(path: Path) -> Holder | None:
    """Return who holds ``<path>.lock``, as far as that is known."""
    return _read(path.with_name(f"{path.name}.holder"))


def take(lock: Path) -> int | None:
    """Return an open file that holds a lock file's lock, None when somebody else does.

    A file that was removed before it was locked holds nothing: then it is made again.

    Raises OSError where files cannot be made or locked.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _acquire(
    path: Path,
    note: Path,
    *,
    waiting: Callable[[str], None],
    timeout_s: float,
    use: Use,
    pause: Callable[[float], None],
) -> int:
    lock = path.with_name(f"{path.name}.lock")
    start = time.monotonic()
    pause_s, said = FIRST_PAUSE_S, ""
    while (descriptor := _taken(lock)) is None:
        waited = time.monotonic() - start
        found = _read(note)
        if found or waited >= min(NAMELESS_FOR_S, timeout_s):
            words = found.describe(use.doing) if found else f"process unknown, which {use.doing}"
            if words != said:
                waiting(f"waiting for {words}")
                said = words
        if waited >= timeout_s:
            raise use.error(
                code=use.code,
                message=f"waited {timeout_s:.0f} s in vain for {said}",
                context={"lock": str(lock)},
                hint="wait for it, or end that process and repeat",
            )
        pause(min(pause_s, max(timeout_s - waited, 0.001)))
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
    return descriptor


def _taken(lock: Path) -> int | None:
    try:
        return take(lock)
    except OSError as error:
        if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
        raise InstallError(
            code="workspace-unusable",
            message=f"its file system has no file locks ({error.strerror}): two runs could not be kept apart",
            where=str(lock.parent),
            hint="put the workspace on a local disk: --workspace DIR or SGLFORGE_HOME",
        ) from error


@contextlib.contextmanager
def _named(note: Path) -> Iterator[None]:
    """Say who holds the lock; on a full disk it is held all the same, without a name."""
    own = Holder(
        pid=os.getpid(),
        started=_stat(os.getpid())[1],
        boot=_boot(),
        host=os.uname().nodename,
        words=_words(sys.argv[1:]),
        since=time.time(),
    )
    draft = note.with_name(f".{note.name}.{secrets.token_hex(4)}.tmp")
    try:
        draft.write_text(files.canonical_json(asdict(own)) + "\n", encoding="utf-8")
        draft.replace(note)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            note.unlink()


def _read(note: Path) -> Holder | None:
    """Return the holder that a file names; None for one that no longer runs, or a file that says nothing."""
    try:
        document = json.loads(note.read_text(encoding="utf-8"))
        found = Holder(
            pid=int(document["pid"]),
            started=document["started"],
            boot=str(document["boot"]),
            host=_printable(str(document["host"])),
            words=tuple(_printable(str(word)) for word in document["words"]),
            since=float(document["since"]),
        )
        return found if found.could_hold() else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _words(arguments: list[str]) -> tuple[str, ...]:
    """Return arguments without what may be secret: passwords in URLs, values that were set."""
    words = [
        re.sub(r"(?s)^(--set=)?([^=]*)=.*", r"\1\2=...", word) if "--set" in {before, word[:5]} else word
        for before, word in zip(["", *arguments], arguments, strict=False)
    ]
    return shown(words)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _stat(pid: int) -> tuple[str, int | None]:
    """Return the state letter and the start (clock ticks since boot) of a process; start None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return ("X", None) if fields[0] in {"Z", "X"} else (fields[0], int(fields[19]))
    except (OSError, ValueError, IndexError):
        return "X", None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
