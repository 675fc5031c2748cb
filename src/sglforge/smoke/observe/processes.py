"""The processes of a server: memory, ports, and the shared memory that they hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sglforge.base import proc
from sglforge.smoke import ports

_PROC = Path("/proc")
_SHM = "/dev/shm/"  # noqa: S108 - looked at, not written
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process; sizes are bytes.

    ``started`` is its start in clock ticks after boot: with the pid it names a process for good. ``pss`` counts a
    page shared by n processes as 1/n, so that a sum over processes is right; None where the kernel does not say.
    ``ports`` are the TCP ports that it listens on.
    """

    pid: int
    parent: int
    started: int
    command: str
    rss: int
    pss: int | None
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """A segment that outlives its processes: a file of /dev/shm, or a System V segment named by its id.

    ``pids`` have a file open or mapped; of a System V segment it is the process that made it. ``unlinked`` files
    go with their last process and cannot be left behind.
    """

    kind: Literal["file", "sysv"]
    name: str
    size: int
    pids: tuple[int, ...]
    unlinked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """What belonged to a server at one moment, in the order of pids."""

    processes: tuple[Process, ...]
    shared_memory: tuple[SharedMemory, ...]

    @property
    def rss(self) -> int:
        """Sum of RSS in bytes; counts shared pages once for each process."""
        return sum(process.rss for process in self.processes)

    @property
    def pss(self) -> int | None:
        """Sum of PSS in bytes, None when one process does not tell its own."""
        sizes = [process.pss for process in self.processes]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def to_json(self) -> dict[str, object]:
        """Return the group for a transcript."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ProcessGroup:
        """Return the group that a transcript holds."""
        return cls(
            processes=tuple(Process(**{**row, "ports": tuple(row["ports"])}) for row in document["processes"]),
            shared_memory=tuple(
                SharedMemory(**{**row, "pids": tuple(row["pids"])}) for row in document["shared_memory"]
            ),
        )


def observe_group(session: int) -> ProcessGroup:
    """Return the processes of a session with what they hold; one that ends meanwhile is left out."""
    processes = tuple(process for pid in members(session) if (process := observe_process(pid)))
    return ProcessGroup(processes=processes, shared_memory=tuple(shared_memory([process.pid for process in processes])))


def members(session: int) -> list[int]:
    """Return the live pids of a session and their descendants, also those that made a session of their own."""
    parents = {pid: int(fields[1]) for pid, fields in _stats()}
    found = set(proc.session_members(session))
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found)


def observe_process(pid: int) -> Process | None:
    """Return a process, None when there is none by now."""
    try:
        fields = _stat(pid)
        rss, pss = _memory(pid)
    except (OSError, ValueError, IndexError):
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        command=ports.command_of(pid),
        rss=rss,
        pss=pss,
        ports=ports.listening_ports(pid),
    )


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; nothing when it may not be read.

    It may hold secrets: take out what you need, store none of it. What a process sets itself is not seen, but what
    its children were given is theirs.
    """
    try:
        block = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in block.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def shared_memory(pids: Sequence[int]) -> Iterator[SharedMemory]:
    """Yield the shared memory that processes hold: files of /dev/shm, then System V segments."""
    holders: dict[str, set[int]] = {}
    sizes: dict[str, int] = {}
    for pid in pids:
        for name, size in _shm_files(pid):
            holders.setdefault(name, set()).add(pid)
            sizes[name] = max(size, sizes.get(name, 0))
    for name in sorted(holders):
        yield SharedMemory(
            kind="file",
            name=name.removesuffix(_DELETED),
            size=sizes[name],
            pids=tuple(sorted(holders[name])),
            unlinked=name.endswith(_DELETED),
        )
    yield from _sysv(pids)


def left_behind(group: ProcessGroup) -> tuple[SharedMemory, ...]:
    """Return the shared memory of a group that is still there; meant for a group whose processes have ended."""
    pids = [process.pid for process in group.processes]
    segments = {segment.name for segment in _sysv(pids)}
    return tuple(
        segment
        for segment in group.shared_memory
        if (
            segment.name in segments if segment.kind == "sysv" else not segment.unlinked and Path(segment.name).exists()
        )
    )


def _shm_files(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the files of /dev/shm that a process has mapped or open, with their sizes in bytes."""
    folder = _PROC / str(pid)
    with contextlib.suppress(OSError):
        for line in (folder / "maps").read_text(errors="replace").splitlines():
            extent, _, rest = line.partition(" ")
            if (at := rest.find(_SHM)) >= 0:
                start, _, end = extent.partition("-")
                # several mappings of one file are pieces of it: the largest is a lower bound, the file says more
                yield rest[at:], _size(rest[at:]) or int(end, 16) - int(start, 16)
    with contextlib.suppress(OSError):
        for link in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if target.startswith(_SHM):
                    yield target, link.stat().st_size


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _sysv(pids: Sequence[int]) -> Iterator[SharedMemory]:
    """Yield the System V segments that these processes made (proc_sysvipc(5): shmid, size, cpid)."""
    try:
        header, *rows = (line.split() for line in (_PROC / "sysvipc" / "shm").read_text().splitlines())
    except (OSError, ValueError):
        return
    at = {name: column for column, name in enumerate(header)}
    for row in rows:
        if (maker := int(row[at["cpid"]])) in pids:
            yield SharedMemory(kind="sysv", name=row[at["shmid"]], size=int(row[at["size"]]), pids=(maker,))


def _memory(pid: int) -> tuple[int, int | None]:
    """Return RSS and PSS in bytes (proc_pid_smaps(5)); without smaps_rollup RSS alone (proc_pid_statm(5))."""
    folder = _PROC / str(pid)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}
        return sizes["Rss"], sizes["Pss"]
    except (OSError, KeyError, ValueError):
        pages = int((folder / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc_pid_stat(5) from ``state`` on; the name before them may hold anything."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _stats() -> Iterator[tuple[int, list[str]]]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = _stat(int(entry.name))
                if fields[0] not in {"Z", "X"}:
                    yield int(entry.name), fields
