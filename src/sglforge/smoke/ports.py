"""TCP ports of the loopback: a free one, whether one is open, and who holds it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from sglforge.errors import SmokeError
from sglforge.smoke.serverlog import shorten

LOOPBACK = "127.0.0.1"
# SGLang 0.5.11 to 0.5.15 derive a second port, 10000 above, and refuse to start when there is none.
HIGHEST_PORT = 55_535
_OFFERS = 64
_LISTEN = "0A"  # include/net/tcp_states.h


def free_port() -> int:
    """Return a port that nobody listens on now, up to 55535 if possible; somebody else may still be faster."""
    port = 0
    with contextlib.ExitStack() as probes:  # open until the end, so that no port is offered twice
        for _ in range(_OFFERS):
            probe = probes.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.bind((LOOPBACK, 0))
            port = probe.getsockname()[1]
            if port <= HIGHEST_PORT:
                break
    return port


def is_open(port: int) -> bool:
    """Say whether somebody accepts connections on a port of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def holder(port: int) -> int | None:
    """Return the pid of a process that listens on a port, None when /proc does not tell."""
    return next(holders(port), None)


def holders(port: int) -> Iterator[int]:
    """Yield the pids of the processes that listen on a port, as far as /proc tells."""
    inodes = {f"socket:[{inode}]" for inode, its_port in listening().items() if its_port == port}
    for process in Path("/proc").iterdir():
        if not (inodes and process.name.isdigit()):
            continue
        with contextlib.suppress(OSError):
            if any(str(link.readlink()) in inodes for link in (process / "fd").iterdir()):
                yield int(process.name)


def listening() -> dict[str, int]:
    """Return the port of every listening TCP socket by the socket's inode.

    proc_pid_net(5): local_address, st, inode.
    """
    found = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in map(str.split, Path("/proc/net", table).read_text().splitlines()[1:]):
                if row[3] == _LISTEN:
                    found[row[9]] = int(row[1].rpartition(":")[2], 16)
    return found


def taken(port: int) -> SmokeError:
    """Return the error for a port that somebody else listens on."""
    pid = holder(port)
    return SmokeError(
        code="port-taken",
        message=f"port {port} is taken by {process(pid) if pid else 'a process that /proc does not show'}",
        hint="stop that process, or take `port` out of the profile: smoke then finds a free one",
    )


def process(pid: int) -> str:
    """Return a process with its command line, as people name it."""
    return f"pid {pid} ({shorten(command_of(pid))})"


def command_of(pid: int) -> str:
    """Return the command line of a process, in one line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "gone meanwhile"
    return " ".join(words.replace(b"\0", b" ").decode(errors="replace").split())
