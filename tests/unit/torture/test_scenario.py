"""Rounds are drawn the same every time, and evenly."""

from __future__ import annotations

from collections import Counter

from torture.scenario import DAMAGE, INSIDE, OUTSIDE, cells, draw

COUNTS = {"build toy-wheel": {"store": 10}, "build toy-sdist": {"store": 10}, "build toy-folder": {"store": 10}}


def test_a_round_is_drawn_from_seed_and_number_alone() -> None:
    assert draw(3, 41, COUNTS) == draw(3, 41, COUNTS)
    assert draw(3, 41, COUNTS) != draw(4, 41, COUNTS)


def test_every_fault_meets_every_phase_before_one_comes_again() -> None:
    every = cells()
    drawn = [(round_.fault, round_.phase) for round_ in (draw(1, number, COUNTS) for number in range(len(every)))]
    assert sorted(drawn) == sorted(every)
    assert {fault for fault, _ in every} <= {*INSIDE, *OUTSIDE, *DAMAGE}


def test_the_operation_is_one_that_the_verb_does() -> None:
    drawn = [draw(1, number, COUNTS) for number in range(len(cells()) * 8)]
    store = [round_ for round_ in drawn if round_.kind == "inside" and round_.phase == "store"]
    assert {round_.operation for round_ in store} <= set(range(1, 11))
    assert len({round_.operation for round_ in store}) > 5
    assert max(Counter(len(round_.verbs) for round_ in drawn)) == 8
