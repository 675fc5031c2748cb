"""Namespaces: a network without a way out, processes that end together, a file system that can only be read.

Root enters them directly. Anybody else goes through a user namespace with the same user and group, where the
kernel and the machine's rules allow that.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

from sglforge.base.sandbox import kernel

FLAGS = {
    "net": kernel.NEWNET,
    "pid": kernel.NEWPID,
    "mount": kernel.NEWNS,
    "ipc": kernel.NEWIPC,
    "uts": kernel.NEWUTS,
}
HOST_NAME = "localhost"
SHARED_MEMORY = "/dev/shm"
PLACE = f"{SHARED_MEMORY}/sglforge-build"
"""Where a step sees its folders, whoever runs it: in a mount of its own, so nothing of the host can be in the way."""
_SET_INTERFACE_FLAGS = 0x8914
_UP = (0x1 | 0x40).to_bytes(2, "little")


def enter(without: list[str]) -> tuple[set[str], list[str]]:
    """Enter what can be entered; return the names of :data:`FLAGS` that were, and why others were not."""
    wanted = [name for name in FLAGS if name not in without]
    entered: set[str] = set()
    refused: dict[str, str] = {name: "left out" for name in without if name in FLAGS}
    for name in wanted:
        try:
            kernel.unshare(FLAGS[name])
            entered.add(name)
        except OSError as error:
            refused[name] = os.strerror(error.errno or 0)
    if wanted and not entered:
        fault = "left out" if "user" in without else _enter_as_user(wanted)
        if not fault:
            entered = set(wanted)
            refused = {name: why for name, why in refused.items() if name not in entered}
        else:
            refused["user"] = fault
    reasons = dict.fromkeys(refused.values())
    why = [
        f"namespaces ({', '.join(name for name in refused if refused[name] == reason)}): {reason}" for reason in reasons
    ]
    if "net" in entered:
        why += _attempt("loopback", _loopback_up)
    if "uts" in entered:
        _attempt("host name", lambda: kernel.set_host_name(HOST_NAME))
    return entered, why


def make_read_only(folders: list[str]) -> list[str]:
    """Leave only some folders writable in this mount namespace; return why not, if not."""

    def mounts() -> None:
        for folder in folders:
            kernel.mount(folder, folder, None, kernel.MS_BIND | kernel.MS_REC)
        kernel.set_read_only("/", read_only=True)
        try:
            for folder in folders:
                kernel.set_read_only(folder, read_only=False)
        except OSError:
            kernel.set_read_only("/", read_only=False)
            raise

    return _attempt("read-only file systems", mounts)


def keep_mounts_private() -> list[str]:
    """Let no mount of ours be seen outside."""
    return _attempt("private mounts", lambda: kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE))


def mount_shared_memory(needed: list[str]) -> list[str]:
    """Mount a /dev/shm of the step's own; return why not, if not.

    What is needed of the old one (a workspace may lie there) stays where it is, as writable as it was.
    """

    def mounts() -> None:
        kept = {}
        for top in sorted({"/".join(path.split("/")[:4]) for path in needed if lies_in_shared_memory(path)}):
            if os.path.isdir(top):
                kept[top] = os.open(top, os.O_PATH | os.O_CLOEXEC)
        kernel.mount("tmpfs", SHARED_MEMORY, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
        for top, descriptor in kept.items():
            os.mkdir(top)
            kernel.mount(f"/proc/self/fd/{descriptor}", top, None, kernel.MS_BIND | kernel.MS_REC)
            os.close(descriptor)

    return _attempt("own /dev/shm", mounts)


def mount_place(fixed: dict[str, str], writable: list[str]) -> list[str]:
    """Let folders be seen below :data:`PLACE` too, in the /dev/shm of the step's own; return why not, if not.

    Args:
        fixed: The folders by the names that they get there.
        writable: Where the step may write; a folder that lies in none of them is read-only at its place.
    """

    def mounts() -> None:
        os.mkdir(PLACE)
        for name, folder in fixed.items():
            there = f"{PLACE}/{name}"
            os.mkdir(there)
            kernel.mount(folder, there, None, kernel.MS_BIND | kernel.MS_REC)
            own = any(f"{folder}/".startswith(f"{outer.rstrip('/')}/") for outer in writable)
            kernel.set_read_only(there, read_only=not own)

    return _attempt("fixed place", mounts)


def lies_in_shared_memory(path: str) -> bool:
    """Say whether a path is below /dev/shm."""
    return path.startswith(f"{SHARED_MEMORY}/")


def mount_processes() -> list[str]:
    """Mount a /proc that shows the processes of the new pid namespace; return why not, if not."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    return _attempt("own /proc", lambda: kernel.mount("proc", "/proc", "proc", flags))


def _enter_as_user(names: list[str]) -> str:
    """Enter a user namespace and the others with it, if a child shows that all of it works; return why not."""
    flags = kernel.NEWUSER
    for name in names:
        flags |= FLAGS[name]
    child = os.fork()
    if child == 0:
        fault = 0
        try:
            _become_user(flags)
        except OSError as error:
            fault = (error.errno or 1) & 0xFF
        os._exit(fault)
    status = os.waitpid(child, 0)[1]
    if status:
        return os.strerror(os.WEXITSTATUS(status)) if os.WIFEXITED(status) else "the kernel ends who asks for it"
    _become_user(flags)
    return ""


def _become_user(flags: int) -> None:
    """Enter a user namespace with the same ids: root keeps all that there are, anybody else only the own ones.

    Root without the ids of others could not read their files any more: then it is not done.
    """
    user, group = os.geteuid(), os.getegid()
    waiting, entered = os.pipe()
    helper = os.fork() if user == 0 else 0
    if user == 0 and helper == 0:
        os.close(entered)
        _map_everybody(os.getppid(), waiting)
    try:
        kernel.unshare(flags)
        os.write(entered, b"x")
    finally:
        os.close(waiting)
        os.close(entered)
        everybody = bool(helper) and os.waitpid(helper, 0)[1] == 0
    if helper and not everybody:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    if not helper:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def _map_everybody(process: int, waiting: int) -> None:
    """Give a process that has entered a user namespace all ids of this one; never returns.

    Only from outside of the namespace may more than one id be mapped.
    """
    status = 1
    try:
        if os.read(waiting, 1):
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/self/{name}", encoding="ascii") as file:
                    ranges = [line.split() for line in file]
                _write(f"/proc/{process}/{name}", "".join(f"{first} {first} {count}\n" for first, _, count in ranges))
            status = 0
    finally:
        os._exit(status)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _loopback_up() -> None:
    descriptor = kernel.datagram_socket()
    try:
        fcntl.ioctl(descriptor, _SET_INTERFACE_FLAGS, b"lo".ljust(16, b"\0") + _UP.ljust(24, b"\0"))
    finally:
        os.close(descriptor)


def _attempt(what: str, act: Callable[[], None]) -> list[str]:
    """Return nothing where an act succeeds, else why it did not."""
    try:
        act()
    except OSError as error:
        return [f"{what}: {error.strerror}"]
    return []
