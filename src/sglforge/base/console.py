"""What a person sees while a verb runs: one line per step, a bar where a total is known.

Everything goes to stderr; stdout belongs to results. On a terminal a step shows a live bar; elsewhere (CI, a
pipe) only whole lines are written, and a long step says now and then that it is alive.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TextIO

from sglforge.errors import Finding

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ALIVE_EVERY_S = 15.0


class Verbosity(IntEnum):
    """How much is said: errors only, one line per step, details too."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


@dataclass(slots=True)
class Step:
    """A step that runs now; see :meth:`Console.step`. One that ends without an exception may still have ``failed``."""

    name: str
    console: Console
    summary: str = ""
    failed: bool = False
    started: float = field(default_factory=time.monotonic)
    _last: float = 0.0
    bar: tuple[Progress, TaskID] | None = None

    def say(self, summary: str) -> None:
        """Set the words that the finished line ends with."""
        self.summary = summary

    def progress(self, done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
        """Show how far the step is, in any unit; ``total`` None when it is not known."""
        if self.bar:
            bar, task = self.bar
            bar.update(task, completed=done, total=total, note=note)
            return
        now = time.monotonic()
        if now - max(self._last, self.started) >= ALIVE_EVERY_S:
            self._last = now
            share = f" {done / total:.0%}" if total else ""
            self.console.line(f"  ..  {self.name}{share} {note}".rstrip() + f"  ({now - self.started:.0f} s)")


@dataclass(slots=True, kw_only=True)
class Console:
    """Write talk to one stream."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    verbosity: Verbosity = Verbosity.NORMAL
    live: bool = False

    def line(self, text: str = "") -> None:
        """Print a line unless quiet."""
        if self.verbosity > Verbosity.QUIET:
            self._write(text)

    def detail(self, text: str) -> None:
        """Print a line that only ``-v`` shows."""
        if self.verbosity >= Verbosity.VERBOSE:
            self._write(text)

    def error(self, text: str) -> None:
        """Print a line, however quiet."""
        self._write(text)

    def finding(self, finding: Finding) -> None:
        """Print a finding: what, where, and what to do; however quiet."""
        place = f"{finding.where}: " if finding.where else ""
        self._write(f"{finding.severity.value}: {place}{finding.message} [{finding.code}]")
        for detail in finding.detail:
            for line in detail.splitlines():
                self._write(f"    {line}")
        if finding.hint:
            self._write(f"  next: {finding.hint}")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a header, columns aligned."""
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        for row in (header, *rows):
            self.line("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Run a block as a step: one line with its outcome, its summary and the time it took."""
        step = Step(name, self)
        outcome = "FAIL"
        try:
            with self._bar(step):
                yield step
            outcome = "FAIL" if step.failed else "ok"
        finally:
            seconds = time.monotonic() - step.started
            self.line(f"  {outcome:<4}  {name:<28} {step.summary}".rstrip() + f"  ({seconds:.1f} s)")

    @contextmanager
    def _bar(self, step: Step) -> Iterator[None]:
        if not self.live or self.verbosity == Verbosity.QUIET:
            yield
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=RichConsole(file=self.stream), transient=True) as bar:
            step.bar = (bar, bar.add_task(step.name, total=None, note=""))
            try:
                yield
            finally:
                step.bar = None

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text + "\n")
            self.stream.flush()
        except BrokenPipeError:
            raise
        except OSError:
            pass  # a log that is full loses what is said, not what is done


def for_terminal(verbosity: Verbosity) -> Console:
    """Return a console on stderr: live on a terminal, unless ``NO_COLOR`` or ``CI`` is set."""
    if sys.stderr is None:  # closed by the caller
        return Console(stream=io.StringIO(), verbosity=verbosity)
    live = sys.stderr.isatty() and not os.environ.keys() & {"NO_COLOR", "CI"}
    return Console(verbosity=verbosity, live=live and os.environ.get("TERM") != "dumb")
