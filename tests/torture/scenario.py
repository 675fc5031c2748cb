"""What happens in a round: fault, phase, verbs, start; drawn from seed and number alone."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

INSIDE = ("kill", "stop", "int", "term", "full", "denied", "broken", "clock")
"""Faults at one operation of one run: signals to itself, ENOSPC (lasting), EACCES, EIO, a clock that moves."""
ERRNOS = {"full": errno.ENOSPC, "denied": errno.EACCES, "broken": errno.EIO}
INSIDE_PHASES = (
    "catalog", "spawn", "record", "scratch", "fetch", "mirror", "unpack", "pack", "build", "store", "locks", "history",
    "environment", "receipt", "resolve", "lock-file", "collect",
)  # fmt: skip
OUTSIDE = {
    "kill-all": ("collect", "mirror", "build", "environment", "resolve"),
    "kill-child": ("mirror", "build", "environment", "resolve"),
    "stop-all": ("collect", "build", "environment", "resolve"),
    "small-disk": ("fetch", "mirror", "build", "environment"),
    "closed-folder": ("fetch", "build", "store", "record", "locks", "environment"),
}
"""Faults from outside, at a random part of the time that the verb takes."""
DAMAGE_PHASES = ("fetch", "mirror", "store", "history", "environment", "receipt", "lock-file")
DAMAGE = {
    "flip": DAMAGE_PHASES,
    "truncate": DAMAGE_PHASES,
    "delete": DAMAGE_PHASES,
    "link": ("fetch", "mirror", "store", "environment", "scratch"),
    "touch": ("fetch", "store", "environment", "scratch"),
    "dead-holder": ("locks", "environment"),
    "litter": ("collect", "fetch", "mirror", "store", "environment", "scratch", "record"),
}
"""What is wrong before the runs begin: a byte, a size, a file, a folder, times, the things of a dead run."""
SHIFTS_S = (-10 * 365 * 86400.0, -3 * 86400.0, -7200.0, 7200.0, 3 * 86400.0, 10 * 365 * 86400.0)

BUILDS = ("toy-wheel", "toy-sdist", "toy-folder", "toy-git")
PROCESSES = {1: 50, 2: 32, 3: 10, 4: 4, 5: 2, 8: 2}
"""How many runs a round has, and how often in a hundred."""
Words = tuple[str, ...]
COLLECT: Words = ("store", "gc", "--keep-days", "0")
CHECK: Words = ("store", "verify")
Counts = Mapping[str, Mapping[str, int]]
"""Operations by verb (its words) and phase, counted in an undisturbed run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One round, completely: the first verb is the victim's."""

    number: int
    seed: str
    fault: str
    phase: str
    start: str
    verbs: tuple[Words, ...]
    operation: int
    part: float
    shift_s: float

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that the verbs build."""
        return tuple(dict.fromkeys(word for verb in self.verbs if verb[0] == "build" for word in verb[1:]))

    @property
    def kind(self) -> str:
        return "inside" if self.fault in INSIDE else "outside" if self.fault in OUTSIDE else "damage"

    @property
    def shared(self) -> bool:
        """Whether every run of the round may suffer from the fault, not the victim alone."""
        return self.fault not in {"kill", "stop", "int", "term", "full", "denied", "broken", "clock", "stop-all"}

    def plan(self) -> dict[str, object]:
        """Return what the victim is told; the round adds its paths."""
        act = "errno" if self.fault in ERRNOS else self.fault
        return {
            "phase": self.phase,
            "number": self.operation,
            "act": act,
            "errno": ERRNOS.get(self.fault, 0),
            "writes_only": self.fault == "full",
            "lasting": self.fault == "full",
            "shift_s": self.shift_s,
        }


def cells() -> list[tuple[str, str]]:
    """Return every fault with every phase that it is for; those that this machine cannot make left out."""
    found = [
        (fault, phase)
        for fault in INSIDE
        for phase in INSIDE_PHASES
        if not (fault == "full" and phase in {"catalog", "spawn"})  # nothing is written there
    ]
    for fault, phases in {**OUTSIDE, **DAMAGE}.items():
        if fault not in skipped():
            found += [(fault, phase) for phase in phases]
    return found


def skipped() -> dict[str, str]:
    """Return the faults that cannot be made here, each with the reason."""
    reasons = {}
    root = os.geteuid() == 0
    if not (root and shutil.which("mount")):
        reasons["small-disk"] = "needs root and mount"
    if root and not shutil.which("setpriv"):
        reasons["closed-folder"] = "root needs setpriv to be refused anything"
    return reasons


def draw(seed: int, number: int, counts: Counts) -> Scenario:
    """Return a round: all cells come in a random order, then again in another one, so that they are hit evenly."""
    every = cells()
    turn, place = divmod(number, len(every))
    random.Random(f"{seed}:{turn}").shuffle(every)
    fault, phase = every[place]
    chance = random.Random(f"{seed}:{number}:{fault}:{phase}")
    first = _verb(fault, phase, chance)
    others = range(chance.choices(list(PROCESSES), list(PROCESSES.values()))[0] - 1)
    verbs = [first, *(first if chance.random() < 0.6 else _bystander(first, chance) for _ in others)]
    inside = counts.get(" ".join(first), {}).get(f"{phase} writes" if fault == "full" else phase, 1)
    return Scenario(
        number=number,
        seed=f"{seed}:{number}",
        fault=fault,
        phase=phase,
        start=_start(fault, phase, first, chance),
        verbs=tuple(verbs),
        operation=chance.randint(1, max(1, inside)),
        part=chance.random(),
        shift_s=chance.choice(SHIFTS_S),
    )


def verbs_counted() -> list[tuple[str, Words]]:
    """Return what is counted and timed without a fault: how it starts, and the verb."""
    return [*(("empty", ("build", name)) for name in BUILDS), ("empty", ("fetch",)), ("built", ("install",)),
            ("environment", ("verify",)), ("empty", ("lock",)), ("built", COLLECT)]  # fmt: skip


def _verb(fault: str, phase: str, chance: random.Random) -> Words:
    damage = fault in DAMAGE
    if phase == "collect":
        return COLLECT
    if phase in {"resolve", "lock-file"} and not damage:
        return ("lock",)
    if phase in {"environment", "receipt"}:
        return ("verify",) if damage and chance.random() < 0.5 else ("install",)
    if phase == "fetch":
        return ("build", chance.choice(BUILDS[:2])) if chance.random() < 0.5 else ("fetch",)
    if phase == "mirror":
        return ("build", "toy-git") if chance.random() < 0.6 else ("fetch",)
    if phase == "build":
        return ("build", chance.choice(BUILDS[1:]))
    return ("build", chance.choice(BUILDS))


def _bystander(first: Words, chance: random.Random) -> Words:
    if first[0] in {"install", "verify"}:
        return (chance.choice(("install", "verify")),) if first[0] == "verify" else ("install",)
    if chance.random() < 0.2:
        return chance.choice((COLLECT, CHECK))
    return ("build", chance.choice(BUILDS))


def _start(fault: str, phase: str, first: Words, chance: random.Random) -> str:
    if fault in DAMAGE:
        if phase in {"environment", "receipt"}:
            return "environment"
        return "fetched" if phase in {"fetch", "mirror", "scratch", "locks"} else "built"
    if first in {("install",), COLLECT}:
        return "built"
    if phase in {"fetch", "mirror"} or first[0] in {"lock", "fetch"}:
        return "empty"
    return chance.choice(("empty", "fetched"))
