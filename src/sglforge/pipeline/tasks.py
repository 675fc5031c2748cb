"""Tasks side by side: each when what it needs is done and its kind has a free slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from queue import SimpleQueue

from sglforge.base.cancel import Cancellation
from sglforge.errors import SglforgeError

ENDING_S = 10.0
"""How long tasks that were asked to end are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A piece of work: its name, the kind whose slots it takes, the tasks that come before, and what to call.

    ``work`` keeps its result itself, and ends when the cancellation that it was made with says so.
    """

    name: str
    kind: str
    work: Callable[[], object]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that raised."""

    task: str
    error: Exception


def carry_out(
    tasks: Sequence[Task],
    *,
    slots: Mapping[str, int],
    cancellation: Cancellation,
    failing: Callable[[Failure, tuple[str, ...]], None],
) -> tuple[Failure, ...]:
    """Run tasks in threads and return those that failed, the first one first.

    After a failure nothing new starts, and what runs comes to its end: what takes long is not lost for something
    else. Ctrl-C, here in the main thread, cancels what runs and waits until it has ended.

    Args:
        tasks: In the order in which they are preferred; those that they need are among them.
        slots: How many tasks of each kind run at once. This is where a jobserver that several builds share would
            hand out its tokens.
        cancellation: The one that the tasks look at.
        failing: Told of each failure, and of the tasks that still run then.
    """
    by_name = {task.name: task for task in tasks}
    order = TopologicalSorter({task.name: task.needs for task in tasks})
    order.prepare()
    ended: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()
    ready: list[str] = []
    running: dict[str, threading.Thread] = {}
    failures: list[Failure] = []
    try:
        while True:
            ready = sorted([*ready, *order.get_ready()], key=list(by_name).index)
            for name in () if failures else tuple(ready):
                kind = by_name[name].kind
                if sum(by_name[other].kind == kind for other in running) < slots[kind]:
                    ready.remove(name)
                    running[name] = _start(by_name[name], ended)
            if not running:
                return tuple(failures)
            name, error = ended.get()
            del running[name]
            if error is None:
                order.done(name)
            elif isinstance(error, Exception):
                failures.append(Failure(task=name, error=error))
                failing(failures[-1], tuple(running))
            else:
                raise error  # noqa: TRY301 - what runs is ended below, as for Ctrl-C
    except BaseException:
        cancellation.cancel()
        _join(tuple(running.values()))
        raise


def fault_of(failures: Sequence[Failure]) -> Exception:
    """Return one error that speaks for all: it is the first one, with the findings of the others after its own.

    One that has no name (a bug, a file system that does not let us work) comes before those that have.
    """
    errors = [failure.error for failure in failures]
    named = [error for error in errors if isinstance(error, SglforgeError)]
    for error in errors:
        if not isinstance(error, SglforgeError):
            for other in named:
                error.add_note(str(other))
            return error
    findings = tuple(finding for error in named for finding in error.as_findings())
    return named[0] if len(named) == 1 else replace(named[0], findings=findings)


def _start(task: Task, ended: SimpleQueue[tuple[str, BaseException | None]]) -> threading.Thread:
    def work() -> None:
        error = None
        try:
            task.work()
        except BaseException as raised:  # noqa: BLE001 - it is raised again by who waits
            error = raised
        ended.put((task.name, error))

    # A daemon: one that hangs where nothing can be cancelled (a name server, a lock) must not keep the process.
    thread = threading.Thread(target=work, name=task.name, daemon=True)
    thread.start()
    return thread


def _join(threads: Sequence[threading.Thread]) -> None:
    deadline = time.monotonic() + ENDING_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
