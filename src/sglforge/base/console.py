"""What a person sees while a verb runs: one line per step that ended, and on a terminal the steps that run.

Everything goes to stderr; stdout belongs to results. Steps may run in several threads. On a terminal those that run
are shown below what was said; elsewhere (CI, a pipe) only whole lines are written, and a long step says now and then
that it is alive. CI systems that fold get the lines of a step as one group when it ends, so that groups never nest.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from sglforge.base.dialects import Dialect, Plain, dialect_of, without_control
from sglforge.errors import Finding, SglforgeError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ALIVE_EVERY_S = 15.0
PROGRESS_EVENT_EVERY_S = 1.0
TAIL_LINES = 20
NARROW = 72
"""Columns below which bars are shorter."""

_COUNTERS = re.compile(r"[\d.,]+")


class Verbosity(IntEnum):
    """How much is said: errors only, one line per step, details too."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


class Recorder(Protocol):
    """Keeps events: `base.runrecord.RunRecord`."""

    def event(self, event: str, /, **fields: object) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a step ended: ``ok``, ``hit`` (nothing to do), ``failed`` or ``interrupted``, and what it took.

    ``cpu_s`` and ``peak_mib`` are those of its processes, None where nobody measured.
    """

    state: str
    why: str
    seconds: float = 0.0
    cpu_s: float | None = None
    peak_mib: float | None = None


@dataclass(slots=True)
class Step:
    """A step that runs now; see :meth:`Console.step`. One that ends without an exception may still have ``failed``."""

    name: str
    console: Console
    summary: str = ""
    failed: bool = False
    started: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)
    cpu_s: float | None = None
    peak_mib: float | None = None
    _said: float = 0.0
    _told: float = 0.0
    _phase: str = ""

    def say(self, summary: str) -> None:
        """Set the words that the finished line ends with."""
        self.summary = summary

    def took(self, *, cpu_s: float | None, peak_mib: float | None) -> None:
        """Set what the step's processes took: CPU seconds, and the memory of the largest in MiB."""
        self.cpu_s, self.peak_mib = cpu_s, peak_mib

    def progress(self, done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
        """Show how far the step is, in any unit; ``total`` None when it is not known."""
        now = time.monotonic()
        if (phase := _COUNTERS.sub("", note)) and phase != self._phase:
            self._phase = phase
            self.notes.append(f"    {now - self.started:8.1f} s  {note}")
        if self.console.recorder and now - self._told >= PROGRESS_EVENT_EVERY_S:
            self._told = now
            self.console.record("step-progress", step=self.name, done=done, total=total, note=note)
        if self.console.show(self, done, total, note):
            return
        if now - max(self._said, self.started) >= ALIVE_EVERY_S:
            self._said = now
            share = f" {done / total:.0%}" if total else ""
            self.console.line(f"  ..  {self.name}{share} {note}".rstrip() + f"  ({now - self.started:.0f} s)")


@dataclass(slots=True, kw_only=True)
class Console:
    """Write talk to one stream, from any thread.

    ``recorder`` is told what begins and ends; ``expected`` are the names of the steps that a run is about to take,
    ``ended`` those that it has taken.
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    verbosity: Verbosity = Verbosity.NORMAL
    live: bool = False
    dialect: Dialect = field(default_factory=Plain)
    recorder: Recorder | None = None
    expected: tuple[str, ...] = ()
    ended: dict[str, Ended] = field(default_factory=dict)
    shown_logs: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _view: _View | None = None

    @property
    def left(self) -> tuple[str, ...]:
        """The steps that were expected and have not ended well."""
        return tuple(name for name in self.expected if name not in self.done)

    @property
    def done(self) -> tuple[str, ...]:
        """The steps that have ended well."""
        return tuple(name for name, ended in self.ended.items() if ended.state in {"ok", "hit"})

    def expect(self, names: Sequence[str]) -> None:
        """Say which steps a run is going to take."""
        self.expected = tuple(names)

    def line(self, text: str = "") -> None:
        """Print a line unless quiet."""
        if self.verbosity > Verbosity.QUIET:
            self._write(self.dialect.harmless(text))

    def detail(self, text: str) -> None:
        """Print a line that only ``-v`` shows."""
        if self.verbosity >= Verbosity.VERBOSE:
            self._write(self.dialect.harmless(text))

    def error(self, text: str) -> None:
        """Print a line, however quiet."""
        self._write(self.dialect.harmless(text))

    def finding(self, finding: Finding) -> None:
        """Print a finding: what, where, and what to do; however quiet."""
        self.record("finding", **finding.to_json())
        below = [f"    {line}" for detail in finding.detail for line in detail.splitlines()]
        below += [f"  next: {finding.hint}"] if finding.hint else []
        self._write("\n".join([self.dialect.headline(finding), *map(self.dialect.harmless, below)]))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a header, columns aligned."""
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines = (
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (header, *rows)
        )
        self.line("\n".join(lines))

    def record(self, event: str, /, **fields: object) -> None:
        """Tell the recorder, if there is one."""
        if self.recorder:
            self.recorder.event(event, **fields)

    def passed(self, name: str, why: str, *, shown: bool = False) -> None:
        """Take note of a step that had nothing to do; a line for ``-v``, or for all where it is ``shown``."""
        self.ended[name] = Ended(state="hit", why=why)
        self.record("step-finished", step=name, state="hit", seconds=0.0, why=why)
        (self.line if shown else self.detail)(f"  ok    {name:<28} {why}")

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Run a block as a step: one line with its outcome, its summary and the time it took.

        When it fails, the end of the log that the error names follows.
        """
        step, began = Step(name, self), time.time()
        outcome, log = "FAIL", None
        self.record("step-started", step=name)
        try:
            with self._viewed(step):
                yield step
            outcome = "FAIL" if step.failed else "ok"
        except SglforgeError as error:
            log = error.log
            raise
        except KeyboardInterrupt:
            outcome = "stop"
            raise
        finally:
            self._ended(step, outcome, log, began)

    def show(self, step: Step, done: float, total: float | None, note: str) -> bool:
        """Show how far a step is where steps are shown while they run; return whether they are."""
        view = self._view
        return view is not None and view.update(step, done, total, note)

    def _ended(self, step: Step, outcome: str, log: str | None, began: float) -> None:
        seconds = time.monotonic() - step.started
        state = {"ok": "ok", "stop": "interrupted"}.get(outcome, "failed")
        self.ended[step.name] = Ended(
            state=state, why=step.summary, seconds=seconds, cpu_s=step.cpu_s, peak_mib=step.peak_mib
        )
        self.record("step-finished", step=step.name, state=state, seconds=round(seconds, 3), why=step.summary)
        if self.verbosity == Verbosity.QUIET:
            return
        title = f"  {outcome:<4}  {step.name:<28} {step.summary}".rstrip() + f"  ({seconds:.1f} s)"
        lines = list(step.notes) if self.dialect.folds else []
        if log and (tail := tail_of(Path(log))):
            self.shown_logs.add(log)
            lines += [f"    | {line}" for line in tail]
        self._write(self.dialect.block(title, lines, started=began, ended=began + seconds))

    @contextmanager
    def _viewed(self, step: Step) -> Iterator[None]:
        """Show a step among those that run."""
        if not self.live or self.verbosity == Verbosity.QUIET:
            yield
            return
        with self._lock:
            view = self._view = self._view or _View(self.stream)
            view.add(step)
        try:
            yield
        finally:
            with self._lock:
                if not view.remove(step):
                    self._view = None

    def _write(self, text: str) -> None:
        with self._lock:
            if self._view:
                self._view.above(text)
                return
            try:
                self.stream.write(text + "\n")
                self.stream.flush()
            except BrokenPipeError:
                raise
            except (OSError, ValueError):
                pass  # a log that is full or closed loses what is said, not what is done


class _View:
    """The steps that run, at the bottom of a terminal; gone when none does."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        console = RichConsole(file=cast("TextIO", _Tolerant(stream)), highlight=False, markup=False, emoji=False)
        self._bar = 24 if console.width >= NARROW else 6
        cut = {"no_wrap": True, "overflow": "ellipsis"}
        self._steps: dict[int, TaskID] = {}
        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(**cut)),  # type: ignore[arg-type]
            BarColumn(bar_width=self._bar),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(**cut)),  # type: ignore[arg-type]
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._progress.start()

    def add(self, step: Step) -> None:
        """Show one more step."""
        self._steps[id(step)] = self._progress.add_task(step.name, total=None, note="")

    def update(self, step: Step, done: float, total: float | None, note: str) -> bool:
        """Show how far a step is; return whether it is among those that are shown."""
        task = self._steps.get(id(step))
        if task is None:
            return False
        text = without_control(" ".join(note.split()))[: self._room()]
        with suppress(KeyError):  # it ended this moment
            self._progress.update(task, completed=done, total=total, note=text)
        return True

    def _room(self) -> int:
        """Return how much of a note fits beside names, bars and times."""
        names = max((len(task.description) for task in self._progress.tasks), default=0)
        return max(0, self._progress.console.width - names - self._bar - len("⠋ ") - len(" 0:00:00 ") - 2)

    def remove(self, step: Step) -> bool:
        """Show a step no longer; return whether others are left, else the view is gone."""
        self._progress.remove_task(self._steps.pop(id(step)))
        if not self._steps:
            self._progress.stop()
        return bool(self._steps)

    def above(self, text: str) -> None:
        """Write lines above the steps."""
        from rich.text import Text

        self._progress.console.print(Text(text), soft_wrap=True)


class _Tolerant:
    """A stream for a view: a terminal that is gone loses what is shown, not what is done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Say what the stream says."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's number, by which the size of the terminal is asked for."""
        return self._stream.fileno()


def tail_of(log: Path) -> list[str]:
    """Return the last lines of a log; none of one that cannot be read."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 16_384))
            return stream.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def for_terminal(verbosity: Verbosity) -> Console:
    """Return a console on stderr: live on a terminal, unless ``CI`` is set or the terminal is ``dumb``."""
    if sys.stderr is None:  # closed by the caller
        return Console(stream=io.StringIO(), verbosity=verbosity)
    live = sys.stderr.isatty() and "CI" not in os.environ and os.environ.get("TERM") != "dumb"
    return Console(verbosity=verbosity, live=live, dialect=dialect_of(os.environ))
