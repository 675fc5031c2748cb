"""Landlock: a process gives up rights for itself and all that it starts, without any privilege.

Facts from the kernel's Documentation/userspace-api/landlock.rst; the ABI grows: 2 renames between folders (in ABI 1
they are always refused), 3 truncation, 4 TCP, 5 device ioctls, 6 signals and abstract Unix sockets.
"""

from __future__ import annotations

import os

from sglforge.base.sandbox import kernel

LEAST_ABI = 2
TCP_ABI = 4
SCOPE_ABI = 6

_WRITE_FILE, _REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 1, 1 << 13, 1 << 14, 1 << 15
# remove folder and file; make character device, folder, file, socket, fifo, block device, link
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
_BIND_AND_CONNECT = 0b11
_SIGNALS_AND_ABSTRACT_SOCKETS = 0b11
_ASK_VERSION = 1
_PATH_BENEATH = 1


def abi() -> int:
    """Return the version of Landlock that the kernel has, 0 for none."""
    try:
        return kernel.call(kernel.SYS_LANDLOCK_CREATE, None, 0, _ASK_VERSION)
    except OSError:  # ENOSYS: not built in; EOPNOTSUPP: not switched on; EPERM: forbidden by seccomp
        return 0


def restrict(version: int, folders: list[str], files: list[str], *, tcp: bool) -> None:
    """Allow writing below some folders and to some files only, for this process and what it starts.

    Args:
        version: The kernel's ABI, at least :data:`LEAST_ABI`.
        folders: Where everything may be written; a missing one counts for nothing.
        files: Files and devices that may be written to.
        tcp: Whether TCP stays allowed; without it needs :data:`TCP_ABI`.
    """
    on_file = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0) | (_IOCTL_DEVICE if version >= 5 else 0)
    below = on_file | _CHANGE_FOLDER | _REFER
    words = [below]
    if version >= TCP_ABI:
        words.append(0 if tcp else _BIND_AND_CONNECT)
    if version >= SCOPE_ABI:
        words.append(_SIGNALS_AND_ABSTRACT_SOCKETS)
    attributes = kernel.pack(*words)
    rules = kernel.call(kernel.SYS_LANDLOCK_CREATE, attributes, len(words) * 8, 0)
    try:
        for access, paths in ((below, folders), (on_file, files)):
            for path in paths:
                _allow(rules, access, path)
        kernel.call(kernel.SYS_LANDLOCK_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, access: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        kernel.call(kernel.SYS_LANDLOCK_ADD, rules, _PATH_BENEATH, kernel.path_rule(access, descriptor), 0)
    finally:
        os.close(descriptor)
