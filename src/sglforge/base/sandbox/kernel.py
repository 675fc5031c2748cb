"""The system calls that Python 3.11 has no functions for."""

from __future__ import annotations

import ctypes
import os

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)

PDEATHSIG, CAPBSET_DROP, CHILD_SUBREAPER, NO_NEW_PRIVS = 1, 24, 36, 38

# The module `signal` has them too, and takes longer to import than all of the rest.
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ = 1, 2, 9, 13, 15, 25

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18

# The same numbers on every architecture: they are younger than the common table (since 5.1).
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446

_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def prctl(option: int, value: int) -> bool:
    """Call prctl(2) with one argument and return whether the kernel took it."""
    return int(_libc.prctl(option, *(ctypes.c_ulong(word) for word in (value, 0, 0, 0)))) >= 0


def ignore(number: int) -> None:
    """Let a signal do nothing."""
    _libc.signal(number, ctypes.c_void_p(1))


def obey(number: int) -> None:
    """Let a signal do what it does by default."""
    _libc.signal(number, None)


def unshare(flags: int) -> None:
    """Enter new namespaces; a new pid namespace takes the next child."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Call mount(2)."""
    words = [text.encode() if text is not None else None for text in (source, target, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


def set_read_only(target: str, *, read_only: bool) -> None:
    """Make a mount and what is mounted below it read-only, or writable."""
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY if read_only else 0, 0 if read_only else _ATTR_RDONLY, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    call(SYS_MOUNT_SETATTR, ctypes.c_int(_AT_FDCWD), target.encode(), _AT_RECURSIVE, attributes, size)


def set_host_name(name: str) -> None:
    """Call sethostname(2)."""
    _checked(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def datagram_socket() -> int:
    """Return a descriptor to ask the kernel about interfaces with."""
    return _checked(_libc.socket(2, 2 | 0o2000000, 0), "socket")


def call(number: int, *arguments: object) -> int:
    """Call a system call by its number."""
    return _checked(int(_libc.syscall(ctypes.c_long(number), *arguments)), f"syscall {number}")


def pack(*words: int) -> ctypes.Array[ctypes.c_uint64]:
    """Return a structure of 64-bit words."""
    return (ctypes.c_uint64 * len(words))(*words)


def path_rule(access: int, descriptor: int) -> ctypes.Array[ctypes.c_char]:
    """Return ``struct landlock_path_beneath_attr``, which is packed: 64 and 32 bits."""
    return ctypes.create_string_buffer(bytes(ctypes.c_uint64(access)) + bytes(ctypes.c_int32(descriptor)), 12)
