"""Who runs and who waits, on all builds of a workspace: one locked file for each. Light.

A unit's file is held with flock by its launcher and by every process of its compiler, which inherit the descriptor: the
kernel lets go of it when the last of them ends, however they end, in whatever pid namespace they are. So a file whose
lock is free is one that a killed unit left, and is removed by whoever sees it. Times are of the monotonic clock, which
no one can set. A file says in its name when the unit came and what it needs, so that one that could not be written on
a full disk still counts.
"""

from __future__ import annotations

import fcntl
import os
import time

LOCK = "lock"
TURN_S = 10.0
"""How long the ledger's own lock is waited for: its holder may be stopped, and a build must not hang."""
FRESH_S = 30.0
"""A waiting unit that has not looked for so long is stopped or gone; nobody waits for its turn."""
_SIZE = 48
_LOOKS = 5
"""How often the ledger is read again when a file has got another name meanwhile."""
_STATES = {"w": (False, False), "wa": (False, True), "r": (True, False), "ra": (True, True)}
"""Whether a unit runs and whether it wants nobody beside it, by the end of its file's name."""


class Entry:
    """A unit in the ledger. ``need_kib``: what it is expected to take, ``live_kib``: what it takes now.

    ``alone``: it wants nobody beside it. ``since`` and ``seen``: when it came and last looked, in seconds.
    """

    __slots__ = ("alone", "live_kib", "name", "need_kib", "running", "seen", "since")

    def __init__(
        self,
        *,
        name: str,
        need_kib: int,
        running: bool = False,
        alone: bool = False,
        live_kib: int = 0,
        since: float = 0.0,
        seen: float = 0.0,
    ) -> None:
        self.name = name
        self.need_kib = need_kib
        self.running = running
        self.alone = alone
        self.live_kib = live_kib
        self.since = since
        self.seen = seen


class Own:
    """The entry of a unit that we launch, and the descriptor that holds its lock."""

    __slots__ = ("_folder", "descriptor", "entry")

    def __init__(self, folder: str, descriptor: int, entry: Entry) -> None:
        self._folder = folder
        self.descriptor = descriptor
        self.entry = entry

    def write(
        self,
        *,
        running: bool | None = None,
        alone: bool | None = None,
        live_kib: int | None = None,
        need_kib: int | None = None,
    ) -> None:
        """Tell the others, as far as the disk takes it."""
        entry = self.entry
        entry.running = entry.running if running is None else running
        entry.alone = entry.alone if alone is None else alone
        entry.live_kib = entry.live_kib if live_kib is None else live_kib
        entry.need_kib = entry.need_kib if need_kib is None else need_kib
        entry.seen = time.monotonic()
        name = _name(entry)
        try:
            if name != entry.name:
                os.rename(f"{self._folder}/{entry.name}", f"{self._folder}/{name}")
                entry.name = name
            os.pwrite(self.descriptor, f"{entry.live_kib} {entry.seen:.3f}".ljust(_SIZE).encode(), 0)
        except OSError:
            pass

    def leave(self) -> None:
        """Take the entry away."""
        try:
            os.unlink(f"{self._folder}/{self.entry.name}")
        except OSError:
            pass
        os.close(self.descriptor)


class Turn:
    """Hold the ledger's lock in a ``with`` block, so that looking and entering are one step.

    ``held`` is False where the lock could not be had in time.
    """

    __slots__ = ("_descriptor", "_folder", "held")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._descriptor = -1
        self.held = False

    def __enter__(self) -> Turn:  # noqa: PYI034 - `typing` takes long to import
        """Take the lock, or go on without after TURN_S."""
        self._descriptor = os.open(f"{self._folder}/{LOCK}", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline, pause_s = time.monotonic() + TURN_S, 0.001
        self.held = _locked(self._descriptor)
        while not self.held and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)
            self.held = _locked(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        os.close(self._descriptor)


def enter(folder: str, need_kib: int) -> Own:
    """Put a unit that waits into the ledger; its file appears under its name only once it is locked.

    Raises OSError.
    """
    while True:
        since = time.monotonic()
        name = f"{since:020.6f}-{need_kib}-{os.urandom(4).hex()}.w"
        entry = Entry(name=name, need_kib=need_kib, since=since, seen=since)
        draft = f"{folder}/.{entry.name}"
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        own = Own(folder, descriptor, entry)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.rename(draft, f"{folder}/{entry.name}")
        except FileNotFoundError:  # somebody swept it before it was locked
            os.close(descriptor)
            continue
        except OSError:
            os.unlink(draft)
            os.close(descriptor)
            raise
        own.write()
        return own


def others(folder: str, own: str) -> list[Entry]:
    """Return the units that are there, in the order in which they came; files of dead ones are removed."""
    found, whole = _all_seen(folder, own)
    for _ in range(_LOOKS):
        if whole:
            break
        found, whole = _all_seen(folder, own)
    return found


def _all_seen(folder: str, own: str) -> tuple[list[Entry], bool]:
    """Look at each file once; say whether none of them went away meanwhile."""
    found, whole = [], True
    for name in sorted(os.listdir(folder)):
        if name not in {LOCK, own}:
            try:
                found.append(_seen(folder, name))
            except FileNotFoundError:  # it has ended, or has another name by now
                whole = False
    return [entry for entry in found if entry is not None], whole


def _seen(folder: str, name: str) -> Entry | None:
    """Return the living unit of a file; None, and the file removed, where nobody holds it.

    Raises FileNotFoundError.
    """
    try:
        descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    try:
        if _locked(descriptor):
            os.unlink(f"{folder}/{name}")
        elif not name.startswith("."):
            return _read(name, os.pread(descriptor, _SIZE, 0))
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name(entry: Entry) -> str:
    """Return the name of an entry's file in the state that it is in."""
    state = ("r" if entry.running else "w") + ("a" if entry.alone else "")
    since, _, rest = entry.name.partition("-")
    mark = rest.partition("-")[2].partition(".")[0]
    return f"{since}-{entry.need_kib}-{mark}.{state}"


def _read(name: str, content: bytes) -> Entry | None:
    """Return what a file says; None for one that is no unit's."""
    words, _, state = name.rpartition(".")
    since, _, rest = words.partition("-")
    need = rest.partition("-")[0]
    if state not in _STATES or not (_is_number(since) and need.isdigit() and need.isascii()):
        return None
    running, alone = _STATES[state]
    entry = Entry(name=name, need_kib=int(need), running=running, alone=alone, since=float(since))
    said = content.decode("ascii", errors="replace").split()
    if len(said) == 2 and said[0].isdigit() and said[0].isascii() and _is_number(said[1]):
        entry.live_kib, entry.seen = int(said[0]), float(said[1])
    return entry


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()
