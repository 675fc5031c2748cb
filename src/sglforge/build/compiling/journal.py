"""What became of every unit, a line each, written by launchers and read by the build. Light."""

from __future__ import annotations

import os

DONE, FAILED, KILLED, REFUSED = "done", "failed", "killed", "refused"

_SPECIAL = "%\t\n\r"
_MOST_S = 1e9


class Line:
    """A unit that ran, or was refused: wall seconds, CPU seconds, peak in MiB, how long and for what it waited.

    ``tail_mib``: the most that it took after the peak, see `running.Ran`. ``outcome``: done, failed, killed (also
    alone), refused. ``attempts``: 2 where it was killed and ran again alone. ``tight``: less memory was free than it
    needed.
    """

    __slots__ = (
        "attempts", "cpu_s", "outcome", "peak_mib", "seconds", "tail_mib", "tight", "unit",
        "waited_for", "waited_s",
    )  # fmt: skip

    def __init__(
        self,
        *,
        unit: str,
        outcome: str,
        seconds: float = 0.0,
        cpu_s: float = 0.0,
        peak_mib: int = 0,
        tail_mib: int = 0,
        waited_s: float = 0.0,
        waited_for: str = "",
        attempts: int = 1,
        tight: bool = False,
    ) -> None:
        self.unit = unit
        self.outcome = outcome
        self.seconds = seconds
        self.cpu_s = cpu_s
        self.peak_mib = peak_mib
        self.tail_mib = tail_mib
        self.waited_s = waited_s
        self.waited_for = waited_for
        self.attempts = attempts
        self.tight = tight


def append(path: str, line: Line) -> None:
    """Add a line in one write; a full disk loses the line, not the unit."""
    words = (
        line.outcome,
        f"{line.seconds:.3f}",
        f"{line.cpu_s:.3f}",
        str(line.peak_mib),
        str(line.tail_mib),
        f"{line.waited_s:.3f}",
        line.waited_for or "-",
        str(line.attempts),
        str(int(line.tight)),
        _escaped(line.unit),
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        os.write(descriptor, os.fsencode("\t".join(words) + "\n"))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def parse(text: str) -> list[Line]:
    """Return the lines that are whole; a build step may have written anything else there."""
    found = []
    for row in text.split("\n"):
        words = row.split("\t")
        try:
            outcome, seconds, cpu_s, peak, tail, waited_s, waited_for, attempts, tight, unit = words
            found.append(
                Line(
                    unit=_plain(unit),
                    outcome=outcome,
                    seconds=float(seconds),
                    cpu_s=float(cpu_s),
                    peak_mib=int(peak),
                    tail_mib=int(tail),
                    waited_s=float(waited_s),
                    waited_for="" if waited_for == "-" else waited_for,
                    attempts=int(attempts),
                    tight=tight == "1",
                )
            )
        except ValueError:
            continue
    return [line for line in found if _can_be(line)]


def _can_be(line: Line) -> bool:
    known = line.outcome in {DONE, FAILED, KILLED, REFUSED}
    return known and all(0 <= number < _MOST_S for number in (line.seconds, line.cpu_s, line.waited_s))


def _escaped(name: str) -> str:
    for character in _SPECIAL:
        name = name.replace(character, f"%{ord(character):02X}")
    return name


def _plain(name: str) -> str:
    for character in reversed(_SPECIAL):
        name = name.replace(f"%{ord(character):02X}", character)
    return name
