"""Figures with noise bounds: what repeats on one server say of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.errors import SmokeError
from sglforge.smoke.client import Answer, Status
from sglforge.smoke.measure import Figure, figure_of, requests, wave_of

values = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=9).map(tuple)


def answer(tokens: int = 8, seconds: float = 2.0, *, status: Status = 200, steps: int | None = None) -> Answer:
    meta: dict[str, object] = {"completion_tokens": tokens, "prompt_tokens": 5, "finish_reason": {"type": "length"}}
    if steps is not None:
        meta["spec_verify_ct"] = steps
    return Answer(status=status, seconds=seconds, response={"text": "x" * tokens, "meta_info": meta})


def test_one_disturbed_repeat_does_not_move_the_bounds() -> None:
    calm, disturbed = Figure(values=(100, 101, 99, 100, 102)), Figure(values=(100, 101, 99, 100, 20))
    assert (disturbed.low, disturbed.high) == pytest.approx((95, 105), abs=1)
    assert disturbed.beside(calm) == "same"
    assert disturbed.beside(Figure(values=(90, 91, 89, 90, 90))) == "higher"


def test_the_bounds_are_no_wider_than_what_was_measured() -> None:
    figure = Figure(values=(60, 80, 100, 120, 140))
    assert (figure.low, figure.high) == (60, 140)


def test_repeats_that_agree_by_chance_still_have_bounds() -> None:
    assert Figure(values=(100, 100, 100)).beside(Figure(values=(104, 104, 104))) == "same"
    assert Figure(values=(100, 100, 100)).beside(Figure(values=(120, 120, 120))) == "lower"


def test_noisy_repeats_hide_a_difference_that_calm_ones_show() -> None:
    assert Figure(values=(80, 100, 120)).beside(Figure(values=(120, 140, 160))) == "same"
    assert Figure(values=(99, 100, 101)).beside(Figure(values=(139, 140, 141))) == "lower"


@given(values)
def test_the_bounds_enclose_the_median(found: tuple[float, ...]) -> None:
    figure = Figure(values=found)
    assert min(found) <= figure.median <= max(found)
    assert figure.low < figure.median < figure.high
    assert figure.beside(figure) == "same"


@given(values, values)
def test_two_figures_agree_on_how_they_lie(one: tuple[float, ...], two: tuple[float, ...]) -> None:
    opposite = {"lower": "higher", "same": "same", "higher": "lower"}
    first, second = Figure(values=one), Figure(values=two)
    assert second.beside(first) == opposite[first.beside(second)]


@given(values)
def test_a_figure_survives_its_document(found: tuple[float, ...]) -> None:
    read = figure_of(Figure(values=found).to_json())
    assert read is not None
    assert read.values == pytest.approx(found, abs=1e-4)


@pytest.mark.parametrize(
    "said", [None, {}, {"values": []}, {"values": ["1"]}, {"values": [-1]}, {"values": [math.nan]}]
)
def test_what_is_no_figure_is_none(said: object) -> None:
    assert figure_of(said) is None


def test_a_wave_is_as_slow_as_its_last_answer() -> None:
    wave = wave_of([answer(8, 1.0, steps=3), answer(8, 4.0, steps=5)])
    assert (wave.tokens, wave.seconds, wave.rate, wave.each) == (16, 4.0, 4.0, (1.0, 4.0))
    assert (wave.steps, wave.prompt_tokens) == (8, 5)
    assert wave_of([answer()]).steps is None


@pytest.mark.parametrize("lost", [answer(status=500), answer(status="disconnected"), answer(tokens=0)])
def test_a_wave_with_a_missing_answer_is_no_measurement(lost: Answer) -> None:
    with pytest.raises(SmokeError, match=r"1 of 2 measured requests") as caught:
        wave_of([answer(), lost])
    assert caught.value.code == "measure-unanswered"


def test_requests_take_the_prompts_in_turn_and_run_to_their_end() -> None:
    wave = requests(("one", "two"), 3, 16)
    assert [(request.body or {})["text"] for request in wave] == ["one", "two", "one"]
    assert len({request.name for request in wave}) == 3
    for request in wave:
        assert (request.body or {})["sampling_params"] == {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}
