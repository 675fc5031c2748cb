"""When a unit may run: a pure decision, and the waiting until it is yes. Light."""

from __future__ import annotations

import os
import time

from sglforge.build.compiling import ledger, room
from sglforge.build.compiling.ledger import Entry, Own
from sglforge.build.compiling.room import Room

TYPE_CHECKING = False  # `typing` and `collections.abc` take long to import
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 20.0
"""So long may younger units pass one that waits for memory; after that they wait for its turn."""
TIGHT_S = 30.0
"""So long does a unit wait for memory when none of ours runs: what others took may never come back."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.4
PAUSE_FOR_EACH_S, VERY_LONGEST_PAUSE_S = 0.1, 2.0
"""A waiting unit looks less often, the more wait before it: looking costs time that compilers could use."""

GO = ""
_PLENTY = Room(free_kib=2**60, capacity_kib=2**60)


class Admitted:
    """A unit that may run. ``own`` is None where the ledger could not be used; ``waited_s`` and ``why`` it waited.

    ``tight``: it runs although there is less memory than it needs, because nothing of ours could give any back.
    """

    __slots__ = ("own", "tight", "waited_s", "why")

    def __init__(self, own: Own | None, *, waited_s: float = 0.0, why: str = "", tight: bool = False) -> None:
        self.own = own
        self.waited_s = waited_s
        self.why = why
        self.tight = tight


def decide(mine: Entry, others: list[Entry], space: Room, *, jobs: int, now: float) -> str:
    """Return an empty text where a unit may run now, else what it waits for: alone, slots, turn, memory, pressure."""
    running = [entry for entry in others if entry.running]
    waiting = [entry for entry in others if not entry.running and now - entry.seen < ledger.FRESH_S]
    elders = [entry for entry in waiting if entry.name < mine.name]
    if mine.alone:
        return "alone" if running or any(entry.alone for entry in elders) else GO
    if any(entry.alone for entry in running) or any(entry.alone for entry in waiting):
        return "alone"
    if len(running) >= jobs:
        return "slots"
    if any(now - entry.since > PATIENCE_S for entry in elders):
        return "turn"
    owed = sum(max(entry.need_kib - entry.live_kib, 0) for entry in running)
    if space.free_kib - owed < mine.need_kib:
        return "memory"
    return "pressure" if space.pressed and running else GO


def admit(
    folder: str,
    need_kib: int,
    look: Callable[[], Room],
    *,
    jobs: int,
    alone: bool = False,
    own: Own | None = None,
    waiting: Callable[[str, int], None] = lambda _why, _others: None,
) -> Admitted:
    """Wait until a unit may run, and write down that it does.

    Args:
        folder: The ledger.
        need_kib: What the unit is expected to take.
        look: Says what room there is.
        jobs: How many units run at most.
        alone: Whether it wants nobody beside it.
        own: Its entry, where it has one from before.
        waiting: Told what it waits for and how many others wait, each time it has looked.
    """
    begin = time.monotonic()
    try:
        own = own or ledger.enter(folder, need_kib)
    except OSError:
        return Admitted(None, waited_s=_wait_for_room(need_kib, look, begin), why="no ledger")
    own.write(running=False, alone=alone)
    why, pause_s = GO, FIRST_PAUSE_S
    while True:
        found = _look(folder, own, look, jobs=jobs, patient=time.monotonic() - begin < TIGHT_S)
        if found.why == GO:
            return Admitted(own, waited_s=time.monotonic() - begin if why else 0.0, why=why, tight=found.tight)
        why = found.why
        waiting(why, found.others)
        time.sleep(pause_s)
        longest_s = min(LONGEST_PAUSE_S + PAUSE_FOR_EACH_S * found.elders, VERY_LONGEST_PAUSE_S)
        pause_s = min(pause_s * 1.5, longest_s)


class _Found:
    __slots__ = ("elders", "others", "tight", "why")

    def __init__(self, why: str, *, others: int = 0, elders: int = 0, tight: bool = False) -> None:
        self.why = why
        self.others = others
        self.elders = elders
        self.tight = tight


def _look(folder: str, own: Own, look: Callable[[], Room], *, jobs: int, patient: bool) -> _Found:
    """Look once, and take the room if there is some; or if nothing of ours runs and no patience is left."""
    try:
        with ledger.Turn(folder):
            others = ledger.others(folder, own.entry.name)
            now = time.monotonic()
            why = decide(own.entry, others, _PLENTY, jobs=jobs, now=now)
            why = why or decide(own.entry, others, look(), jobs=jobs, now=now)  # the memory is looked at last
            tight = why == "memory" and not patient and not any(entry.running for entry in others)
            why = GO if tight else why
            own.write(running=why == GO)
            waiting = [entry for entry in others if not entry.running]
            elders = sum(entry.name < own.entry.name for entry in waiting)
            return _Found(why, others=len(waiting), elders=elders, tight=tight)
    except OSError:  # the ledger is gone or out of reach: what is left is to look at the memory
        enough = not patient or look().free_kib >= own.entry.need_kib
        return _Found(GO if enough else "memory", tight=not patient)


def _wait_for_room(need_kib: int, look: Callable[[], Room], begin: float) -> float:
    """Wait for free memory without a ledger, not for ever; return for how long."""
    while look().free_kib < need_kib and time.monotonic() - begin < TIGHT_S:
        time.sleep(LONGEST_PAUSE_S)
    return time.monotonic() - begin


def read_room(groups: tuple[tuple[int, str], ...], proc: str) -> Callable[[], Room]:
    """Return a function that looks at this machine, or at a recorded one."""
    return lambda: room.look(groups, proc)


class Token:
    """A jobserver's token that a waiting unit lends to others, so that light units go on meanwhile."""

    __slots__ = ("_descriptor", "_lent")

    def __init__(self, fifo: str) -> None:
        self._lent = False
        try:
            self._descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) if fifo else -1
        except OSError:
            self._descriptor = -1

    def lend(self) -> None:
        """Let somebody else have our slot, once."""
        if self._descriptor < 0 or self._lent:
            return
        try:
            os.write(self._descriptor, b"+")
            self._lent = True
        except OSError:
            pass

    def take_back(self, longest_s: float) -> None:
        """Take a slot again if there is one within some seconds: a build must not hang for one."""
        deadline = time.monotonic() + longest_s
        while self._lent:
            try:
                self._lent = not os.read(self._descriptor, 1)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return
                time.sleep(0.02)
            except OSError:
                return
