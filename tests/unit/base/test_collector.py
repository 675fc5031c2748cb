"""The garbage collector is put off for a while, and comes back whatever happens."""

from __future__ import annotations

import gc
import weakref

import pytest

from sglforge.base.collector import put_off


class Circle:
    def __init__(self) -> None:
        self.own = self


def test_circles_stay_for_the_while_and_go_afterwards() -> None:
    with put_off():
        circle = weakref.ref(Circle())
        rest: list[list[int]] = [[] for _ in range(20 * gc.get_threshold()[0])]  # so many new objects would have it run
        assert circle() is not None
    rest.append([])
    gc.collect()
    assert circle() is None


def test_it_runs_again_after_a_fault() -> None:
    with pytest.raises(ZeroDivisionError), put_off():
        1 / gc.isenabled()
    assert gc.isenabled()


def test_the_inner_one_leaves_it_to_the_outer_one() -> None:
    with put_off():
        with put_off():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
