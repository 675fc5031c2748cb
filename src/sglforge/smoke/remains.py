"""What a server leaves on the machine beside processes: shared memory and listening ports."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.smoke import ports

SHM = Path("/dev/shm")  # noqa: S108 - not a temporary folder of ours: it is looked at
_SYSV = Path("/proc/sysvipc/shm")
_IPC_RMID = 0

# What upstream leaves at a stop: SGLang 0.5.13 to 0.5.23 one file of 16 KiB for each rank; 0.5.9, now and then, a
# semaphore of Python's multiprocessing, because it kills the process that would have removed it.
_KNOWN_LEAKS = (re.compile(r"sglang_loads_.+\.shm"), re.compile(r"sem\.mp-[A-Za-z0-9_]+"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of shared memory: a file of /dev/shm, or a System V segment (``path`` is None)."""

    name: str
    number: int
    size: int
    path: Path | None

    def __str__(self) -> str:
        return f"{self.name} ({self.size} bytes)"

    @property
    def known_leak(self) -> bool:
        """Whether it is what servers of SGLang are known to leave."""
        return any(pattern.fullmatch(self.name) for pattern in _KNOWN_LEAKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What was left: removed because it was the server's, and what came meanwhile and is perhaps somebody else's."""

    removed: tuple[Segment, ...] = ()
    perhaps: tuple[Segment, ...] = ()
    ports: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class Watch:
    """Know what was there before a server, see what its processes use, and find what they leave.

    A segment is the server's when it came after the start, belongs to our user, and one of the server's processes was
    seen to have it open or mapped, or to have made it (System V). Only such a one is removed, and only while nobody
    uses it.
    """

    shm: Path = SHM
    _before: frozenset[tuple[str, int]] = field(init=False)
    # by inode: a semaphore is mapped under the name that it had before it got its own (sem_open(3))
    _inodes: set[int] = field(default_factory=set)
    _sockets: dict[str, int] = field(default_factory=dict)
    _pids: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Note what is there."""
        self._before = frozenset((segment.name, segment.number) for segment in self._segments())

    def look(self, members: Sequence[int]) -> None:
        """See what the processes of the server use now."""
        self._pids.update(members)
        listening = ports.listening()
        for pid in members:
            self._inodes.update(_used(pid, self.shm))
            self._sockets.update({inode: listening[inode] for inode in _sockets(pid) if inode in listening})

    def listening(self) -> tuple[int, ...]:
        """Return the ports that sockets of the server's processes listen on still, whoever holds them now."""
        now = ports.listening()
        return tuple(sorted({port for inode, port in self._sockets.items() if inode in now}))

    def clear(self) -> Remains:
        """Remove what is left and the server's, once its processes are gone, and say what was left."""
        left = [segment for segment in self._segments() if (segment.name, segment.number) not in self._before]
        if not left:
            return Remains(ports=self.listening())
        used = {inode for pid in _processes() for inode in _used(pid, self.shm)}
        attached = {segment.number for segment in left if segment.path is None and _attached(segment.number)}
        removed, perhaps = [], []
        for segment in left:
            is_used = segment.number in (used if segment.path else attached)
            ours = segment.number in self._inodes if segment.path else _creator(segment.number) in self._pids
            if ours and not is_used and _remove(segment):
                removed.append(segment)
            else:
                perhaps.append(segment)
        return Remains(removed=tuple(removed), perhaps=tuple(perhaps), ports=self.listening())

    def _segments(self) -> Iterator[Segment]:
        """Yield the segments of our user."""
        uid = os.geteuid()
        with contextlib.suppress(OSError):
            for path in sorted(self.shm.iterdir()):
                with contextlib.suppress(OSError):
                    status = path.lstat()
                    if status.st_uid == uid and stat.S_ISREG(status.st_mode):
                        yield Segment(name=path.name, number=status.st_ino, size=status.st_size, path=path)
        for row in _sysv():
            if int(row[7]) == uid:
                yield Segment(name=f"System V segment {row[1]}", number=int(row[1]), size=int(row[3]), path=None)


def _used(pid: int, shm: Path) -> Iterator[int]:
    """Yield the inodes of the files of /dev/shm that a process has mapped or open (proc_pid_maps(5))."""
    folder = f"{shm}/"
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            if folder in line:
                yield int(line.split()[4])
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith(folder):
                    yield link.stat().st_ino


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _sysv() -> list[list[str]]:
    """Return the rows of the System V segments (proc_sysvipc(5): key shmid perms size cpid lpid nattch uid ...)."""
    try:
        return [line.split() for line in _SYSV.read_text().splitlines()[1:]]
    except OSError:
        return []


def _attached(number: int) -> bool:
    return any(int(row[1]) == number and int(row[6]) for row in _sysv())


def _creator(number: int) -> int | None:
    return next((int(row[4]) for row in _sysv() if int(row[1]) == number), None)


def _remove(segment: Segment) -> bool:
    if segment.path is None:
        return bool(ctypes.CDLL(None).shmctl(segment.number, _IPC_RMID, None) == 0)
    try:
        if segment.path.lstat().st_ino != segment.number:
            return False  # somebody was faster, and it is another one now
        segment.path.unlink()
    except OSError:
        return False
    return True
