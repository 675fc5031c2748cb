"""Run a compiler and measure it. Light.

What it says is kept until it has ended: when it is killed and runs again, ccache must not store the first one's words
with the second one's object.
"""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False  # `typing` and `collections.abc` take long to import
if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_LOOK_S, LONGEST_LOOK_S = 0.1, 0.5
FALLEN = 0.6
"""A compiler that takes less than this share of its peak has left it behind."""
SEEN = 1.15
"""A peak that was up to so many times what was seen counts as seen."""
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
SIGKILL = 9


class Ran:
    """A compiler that has ended: its wait status, wall seconds, the peak of all its processes in KiB, what it said.

    ``tail_kib`` is the most that they took after the peak, once they had given back a good part of it; the peak itself
    where they did not, or where the peak was too short to be seen.
    """

    __slots__ = ("_said", "cpu_s", "peak_kib", "seconds", "status", "tail_kib")

    def __init__(
        self, status: int, *, seconds: float, cpu_s: float, peak_kib: int, tail_kib: int, said: dict[int, int]
    ) -> None:
        self.status = status
        self.seconds = seconds
        self.cpu_s = cpu_s
        self.peak_kib = peak_kib
        self.tail_kib = tail_kib
        self._said = said

    def say(self) -> None:
        """Pass on what it said."""
        for kept, descriptor in {kept: descriptor for descriptor, kept in self._said.items()}.items():
            os.lseek(kept, 0, os.SEEK_SET)
            while part := os.read(kept, 1 << 20):
                while part:
                    part = part[os.write(descriptor, part) :]
        self.forget()

    def forget(self) -> None:
        """Drop what it said."""
        for kept in set(self._said.values()):
            os.close(kept)
        self._said = {}


def run(words: list[str], hold: int, live: Callable[[int], None]) -> Ran:
    """Run a compiler to its end.

    Args:
        words: The call.
        hold: A descriptor that its processes inherit, or -1.
        live: Told what all of them take together, in KiB, every half second.

    Raises OSError where it cannot be started.
    """
    said = _kept_outputs()
    if hold >= 0:
        os.set_inheritable(hold, True)
    actions = [(os.POSIX_SPAWN_DUP2, kept, descriptor) for descriptor, kept in said.items()]
    begin = time.monotonic()
    child = os.posix_spawnp(words[0], words, os.environ, file_actions=actions)
    if hold >= 0:
        os.set_inheritable(hold, False)
    course = Course()
    _watch(child, course, live)
    _, status, used = _waited(child)
    return Ran(
        status,
        seconds=time.monotonic() - begin,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_kib=max(course.peak_kib, used.ru_maxrss),
        tail_kib=course.tail_kib if course.peak_kib * SEEN > used.ru_maxrss else max(course.peak_kib, used.ru_maxrss),
        said=said,
    )


def was_killed(status: int) -> bool:
    """Say whether a process was killed, or a shell says so of its child."""
    return (os.WIFSIGNALED(status) and os.WTERMSIG(status) == SIGKILL) or (
        os.WIFEXITED(status) and os.WEXITSTATUS(status) == 128 + SIGKILL
    )


def _kept_outputs() -> dict[int, int]:
    """Return files in memory for standard output and error: one for both, where both go to the same place."""
    out = os.memfd_create("said")
    return {1: out, 2: out if os.path.sameopenfile(1, 2) else os.memfd_create("said")}


class Course:
    """How the memory of a compiler went: its peak so far, and the most after it, once it had fallen."""

    __slots__ = ("_after_kib", "_fallen", "peak_kib")

    def __init__(self) -> None:
        self.peak_kib = 0
        self._after_kib = 0
        self._fallen = False

    @property
    def tail_kib(self) -> int:
        """The most after the peak, once it had fallen; else the peak."""
        return self._after_kib if self._fallen else self.peak_kib

    def add(self, taken_kib: int) -> None:
        """Take note of what is taken now."""
        if taken_kib >= self.peak_kib:
            self.peak_kib, self._after_kib, self._fallen = taken_kib, 0, False
        self._fallen = self._fallen or taken_kib < self.peak_kib * FALLEN
        if self._fallen:
            self._after_kib = max(self._after_kib, taken_kib)


def _watch(child: int, course: Course, live: Callable[[int], None]) -> None:
    """Look at a process and its children until it has ended."""
    try:
        descriptor = os.pidfd_open(child)
    except OSError:
        descriptor = -1
    ended = select.poll()
    if descriptor >= 0:
        ended.register(descriptor, select.POLLIN)
    pause_s = FIRST_LOOK_S
    while not _pause(ended, pause_s, child if descriptor < 0 else -1):
        taken_kib = tree_kib(child)
        course.add(taken_kib)
        live(taken_kib)
        pause_s = min(pause_s * 1.5, LONGEST_LOOK_S)
    if descriptor >= 0:
        os.close(descriptor)


def _pause(ended: select.poll, pause_s: float, child: int) -> bool:
    """Wait a while; say whether the child has ended."""
    try:
        if child < 0:
            return bool(ended.poll(pause_s * 1000))
        time.sleep(pause_s)
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except KeyboardInterrupt:  # the compiler gets it as well, and how it ends is passed on
        return False


def _waited(child: int) -> tuple[int, int, os.struct_rusage]:  # type: ignore[name-defined]
    while True:
        try:
            return os.wait4(child, 0)
        except KeyboardInterrupt:
            continue


def tree_kib(process: int, proc: str = "/proc") -> int:
    """Return the resident memory of a process and of all below it, in KiB."""
    total, left = 0, [process]
    while left:
        pid = left.pop()
        try:
            with open(f"{proc}/{pid}/statm", encoding="ascii") as file:
                total += int(file.read().split()[1]) * _PAGE_KIB
            for thread in os.listdir(f"{proc}/{pid}/task"):
                with open(f"{proc}/{pid}/task/{thread}/children", encoding="ascii") as file:
                    left += map(int, file.read().split())
        except (OSError, ValueError, IndexError):
            continue
    return total
