"""When a unit may run: the decision alone, and many units over simulated hours."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sglforge.build.compiling.admission import PATIENCE_S, decide
from sglforge.build.compiling.ledger import FRESH_S, Entry
from sglforge.build.compiling.room import Room

GIB = 2**20
NOW = 1000.0


def unit(
    name: str,
    need_gib: float = 1.0,
    *,
    running: bool = False,
    live_gib: float = 0.0,
    alone: bool = False,
    since: float = NOW,
    seen: float = NOW,
) -> Entry:
    return Entry(
        name=name, need_kib=int(need_gib * GIB), running=running, alone=alone, live_kib=int(live_gib * GIB),
        since=since, seen=seen,
    )  # fmt: skip


def room(free_gib: float, *, pressed: bool = False) -> Room:
    return Room(free_kib=int(free_gib * GIB), capacity_kib=8 * GIB, pressed=pressed)


def ask(mine: Entry, *others: Entry, free_gib: float = 8.0, jobs: int = 4, pressed: bool = False) -> str:
    return decide(mine, list(others), room(free_gib, pressed=pressed), jobs=jobs, now=NOW)


def test_what_running_units_have_not_taken_yet_is_not_free() -> None:
    started = unit("a", 6.0, running=True, live_gib=0.5)
    assert ask(unit("b", 2.0), started, free_gib=7.5) == ""
    assert ask(unit("b", 2.1), started, free_gib=7.5) == "memory"
    grown = unit("a", 6.0, running=True, live_gib=6.0)
    assert ask(unit("b", 2.0), grown, free_gib=2.0) == ""
    beyond = unit("a", 6.0, running=True, live_gib=7.0)
    assert ask(unit("b", 2.0), beyond, free_gib=1.0) == "memory"


def test_memory_that_others_took_is_not_free() -> None:
    assert ask(unit("a", 4.0), free_gib=3.9) == "memory"


def test_no_more_compilers_than_jobs() -> None:
    busy = [unit(f"a{number}", 0.1, running=True, live_gib=0.1) for number in range(4)]
    assert ask(unit("b"), *busy) == "slots"
    assert ask(unit("b"), *busy[:3]) == ""


def test_a_light_unit_passes_a_heavy_one_for_a_while_only() -> None:
    running = unit("a", 5.0, running=True, live_gib=5.0)
    assert ask(unit("c", 1.0), running, unit("b", 6.0, since=NOW - 1), free_gib=3.0) == ""
    assert ask(unit("c", 1.0), running, unit("b", 6.0, since=NOW - PATIENCE_S - 1), free_gib=3.0) == "turn"
    assert ask(unit("c", 1.0), running, unit("d", 6.0, since=NOW - PATIENCE_S - 1), free_gib=3.0) == ""


def test_nobody_waits_for_one_that_is_stopped() -> None:
    stopped = unit("b", 6.0, since=NOW - 500, seen=NOW - FRESH_S - 1)
    assert ask(unit("c", 1.0), stopped, free_gib=3.0) == ""
    stopped.alone = True
    assert ask(unit("c", 1.0), stopped, free_gib=3.0) == ""


def test_one_that_was_killed_runs_alone() -> None:
    killed = unit("z", 3.0, alone=True)
    assert ask(killed, unit("a", running=True)) == "alone"
    assert ask(killed, unit("a"), free_gib=0.1) == ""
    assert ask(unit("b"), killed) == "alone"
    assert ask(killed, unit("y", alone=True)) == "alone"
    killed.running = True
    assert ask(unit("b"), killed) == "alone"
    killed.seen = NOW - 500  # it runs, whenever it last said so
    assert ask(unit("b"), killed) == "alone"


def test_under_pressure_nothing_more_is_started_beside_others() -> None:
    assert ask(unit("b"), unit("a", running=True, live_gib=1.0), pressed=True) == "pressure"
    assert ask(unit("b"), pressed=True) == ""


@settings(max_examples=200)
@given(
    needs=st.lists(st.floats(0.1, 8.0), min_size=1, max_size=25),
    durations=st.lists(st.integers(1, 30), min_size=25, max_size=25),
    jobs=st.integers(1, 8),
)
def test_every_unit_runs_and_never_more_than_fits(needs: list[float], durations: list[int], jobs: int) -> None:
    capacity = 8.0
    waiting = [unit(f"{number:03}", need, since=0.0) for number, need in enumerate(needs)]
    length = dict(zip((entry.name for entry in waiting), durations, strict=False))
    running: dict[str, float] = {}
    entries = list(waiting)
    for second in range(sum(durations) + 100):
        now = float(second)
        for name in [name for name, end in running.items() if end <= now]:
            del running[name]
            entries = [entry for entry in entries if entry.name != name]
        for entry in entries:
            entry.seen = now
            if entry.running:  # half of the peak at once, the rest a second later
                entry.live_kib = entry.need_kib if entry.live_kib else entry.need_kib // 2
        for entry in entries:
            if not entry.running:
                used = sum(other.live_kib for other in entries if other.running)
                others = [other for other in entries if other is not entry]
                space = Room(free_kib=int(capacity * GIB) - used, capacity_kib=int(capacity * GIB))
                if decide(entry, others, space, jobs=jobs, now=now) == "":
                    entry.running = True
                    running[entry.name] = now + length[entry.name]
        assert sum(entry.need_kib for entry in entries if entry.running) <= capacity * GIB + 1
        assert len(running) <= jobs
    assert entries == []
