"""Which threshold is recommended for what was measured."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglforge.smoke.curves import svg
from sglforge.smoke.measure import Figure
from sglforge.smoke.sweep import too_noisy
from sglforge.smoke.tuning import Captured, Level, Recommendation, captured, decide

GRAPHS = Captured(sizes=frozenset({1, 2, 4, 8, 16}), largest=16)


def figure(middle: float, noise: float = 0.0) -> Figure:
    return Figure(values=(middle * (1 - noise), middle, middle * (1 + noise)))


def levels(*gains: float, counts: tuple[int, ...] = (1, 2, 4, 8, 16), noise: float = 0.0) -> list[Level]:
    return [
        Level(concurrency=count, speculation=figure(100 * gain, noise), plain=figure(100, noise))
        for count, gain in zip(counts, gains, strict=False)
    ]


def kind(advice: Recommendation) -> tuple[str, int | None]:
    return advice.kind, advice.threshold


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((2.0, 1.5, 1.2, 0.8), ("threshold", 4)),
        ((2.0, 1.0, 1.0, 0.8), ("threshold", 4)),  # a tie is not slower
        ((2.0, 0.8, 1.5, 1.5), ("threshold", 1)),  # what is slower in between is not passed over
        ((2.0, 1.5, 1.2, 1.1), ("always", None)),
        ((2.0, 1.0, 1.0, 1.0), ("always", None)),
        ((0.8, 0.7, 0.6), ("never", None)),
        ((0.8, 1.5, 1.5), ("never", None)),
        ((1.0, 1.0, 1.0), ("never", None)),  # costs nothing, and gains nothing
        ((1.0, 1.0, 0.5), ("never", None)),
        ((1.5,), ("always", None)),
    ],
)
def test_the_largest_batch_up_to_which_it_is_never_slower(
    gains: tuple[float, ...], expected: tuple[str, int | None]
) -> None:
    assert kind(decide(levels(*gains), None)) == expected


def test_noise_makes_a_tie_of_a_small_loss() -> None:
    assert kind(decide(levels(2.0, 1.5, 0.85, 0.5), None)) == ("threshold", 2)
    assert kind(decide(levels(2.0, 1.5, 0.85, 0.5, noise=0.1), None)) == ("threshold", 4)


@pytest.mark.parametrize(
    ("sizes", "largest", "expected"),
    [
        ({1, 2, 4, 8}, 8, ("threshold", 4)),
        ({1, 2, 3, 8}, 8, ("threshold", 3)),
        ({1, 2}, 2, ("threshold", 4)),  # larger than every graph: nothing is padded
        ({8, 16}, 16, ("never", None)),
        ({1, 2, 8}, None, ("threshold", 2)),
    ],
)
def test_batches_are_padded_to_captured_sizes(
    sizes: set[int], largest: int | None, expected: tuple[str, int | None]
) -> None:
    graphs = Captured(sizes=frozenset(sizes), largest=largest)
    assert kind(decide(levels(2.0, 1.5, 1.2, 0.8), graphs)) == expected


def test_ties_that_are_noise_say_nothing() -> None:
    advice = decide(levels(1.05, 0.9, 0.95, noise=0.3), None)
    assert kind(advice) == ("unclear", None)
    assert "with 1, 2, 4 at once repeats differ by up to 30% either way" in advice.sentence
    assert kind(decide(levels(0.3, 0.9, noise=0.3), None)) == ("never", None)  # slower beyond all noise
    assert kind(decide(levels(2.5, 2.5, noise=0.3), None)) == ("always", None)
    assert kind(decide(levels(2.5, 0.9, noise=0.3), None)) == ("unclear", None)
    assert kind(decide(levels(2.5, 0.9, 0.3, noise=0.3), None)) == ("threshold", 1)
    assert kind(decide(levels(2.5, 0.9, 2.5, 0.3, noise=0.3), None)) == ("threshold", 4)
    assert [finding.code for finding in too_noisy(levels(1.0, noise=0.3))] == ["too-noisy"]
    assert list(too_noisy(levels(1.0, noise=0.1))) == []


def test_the_sentence_says_why() -> None:
    assert "with 8 requests at once speculation is slower (0.80" in decide(levels(2, 1.5, 1.2, 0.8), None).sentence
    assert "there is no threshold of 0" in decide(levels(0.8), None).sentence
    assert "fewer than 4 were not measured" in decide(levels(0.8, counts=(4,)), None).sentence
    assert "with 4 it is not slower:" in decide(levels(2, 0.5, 2), None).sentence
    assert (
        "the largest captured batch size up to 4"
        in decide(levels(2, 1.5, 1.2, 0.8), Captured(sizes=frozenset({1, 3, 8}), largest=8)).sentence
    )
    assert (
        "list 4 among the captured sizes"
        in decide(levels(2, 1.5, 1.2, 0.8), Captured(sizes=frozenset({8}), largest=8)).sentence
    )


def rank(advice: Recommendation) -> float:
    """Return the batch size up to which it drafts."""
    return {"never": 0.0, "unclear": 0.0, "always": float("inf")}.get(advice.kind, float(advice.threshold or 0))


gains = st.lists(st.floats(0.2, 3.0), min_size=1, max_size=6)
sizes = st.none() | st.builds(
    lambda found, whole: Captured(sizes=found, largest=max(found) if whole else None),
    st.frozensets(st.integers(1, 40), min_size=1, max_size=8),
    st.booleans(),
)


@given(gains, st.lists(st.floats(0.3, 1.0), min_size=6, max_size=6), sizes, st.floats(0, 0.2))
def test_worse_speculation_never_raises_the_threshold(
    good: list[float], shares: list[float], graphs: Captured | None, noise: float
) -> None:
    counts = (1, 2, 3, 8, 20, 32)
    worse = [gain * share for gain, share in zip(good, shares, strict=False)]
    before = decide(levels(*good, counts=counts, noise=noise), graphs)
    after = decide(levels(*worse, counts=counts, noise=noise), graphs)
    assume(before.kind != "unclear")  # nothing was said that could be raised
    assert rank(after) <= rank(before)


@given(gains, sizes)
def test_a_threshold_is_one_that_was_measured_to_be_fine(good: list[float], graphs: Captured | None) -> None:
    found = levels(*good, counts=(1, 2, 3, 8, 20, 32))
    advice = decide(list(reversed(found)), graphs)
    assert (advice.threshold is not None) == (advice.kind == "threshold")
    if advice.threshold is not None:
        assert advice.threshold >= 1
        assert all(level.outcome != "slower" for level in found if level.concurrency <= advice.threshold)
        assert any(level.outcome == "slower" for level in found)
        if graphs and advice.threshold not in graphs.sizes:
            assert graphs.largest is not None
            assert advice.threshold >= graphs.largest


@pytest.mark.parametrize(
    ("flags", "info", "on_cpu", "expected"),
    [
        ({}, {"cuda_graph_bs": [1, 2, 4]}, True, None),
        ({"disable-cuda-graph": True}, {"cuda_graph_bs": [1, 2, 4]}, False, None),
        ({}, {"disable_cuda_graph": True, "cuda_graph_bs": [1]}, False, None),
        ({}, {"cuda_graph_bs": [1, 2, 4]}, False, ({1, 2, 4}, 4)),
        ({}, {"cuda_graph_config": {"decode": {"backend": "full", "bs": [1, 8]}}}, False, ({1, 8}, 8)),
        ({}, {"cuda_graph_config": {"decode": {"backend": "disabled", "bs": [1, 8]}}}, False, None),
        ({"cuda-graph-bs": ["3", "5"]}, {}, False, ({3, 5}, 5)),
        ({"cuda-graph-bs": ["3", "5"]}, {"cuda_graph_bs": None}, False, ({3, 5}, 5)),
        ({"cuda-graph-max-bs": 3}, {}, False, ({1, 2, 3}, 3)),
    ],
)
def test_the_server_knows_its_captured_sizes_best(
    flags: Any, info: dict[str, object], on_cpu: bool, expected: tuple[set[int], int] | None
) -> None:
    found = captured(flags, info, on_cpu=on_cpu)
    assert (found and (set(found.sizes), found.largest)) == expected


def test_without_a_word_of_the_largest_no_size_is_beyond_the_graphs() -> None:
    found = captured({}, {}, on_cpu=False)
    assert found is not None
    assert found.at_most(9) == 8
    assert found.at_most(8000) is not None


def test_the_picture_draws_every_level_with_its_bounds() -> None:
    found = levels(2.0, 1.5, 0.8, noise=0.1)
    drawn = svg(found, title="tiny <&> on 2 cores", threshold=2)
    root = ET.fromstring(drawn)
    titles = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "tiny <&> on 2 cores"
    assert [text.partition(":")[0] for text in titles[1:]] == [
        f"{count} at once, {name}" for name in ("with speculation", "without") for count in (1, 2, 4)
    ]
    assert "1 at once, with speculation: 200.0 (180.0 to 220.0)" in titles[1]
    assert "threshold 2" in drawn
    assert "threshold" not in svg(found, title="t")


@given(st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0.01, 1e6)), min_size=1, max_size=12))
def test_no_point_lies_outside_the_picture(speeds: list[tuple[float, float]]) -> None:
    found = [
        Level(concurrency=2**place, speculation=figure(one, 0.2), plain=figure(two, 0.2))
        for place, (one, two) in enumerate(speeds)
    ]
    root = ET.fromstring(svg(found, title="t", threshold=1))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for node in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(node.attrib.get(name, 0)) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(node.attrib.get(name, 0)) <= height
