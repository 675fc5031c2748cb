"""Noise is steady, a leak is not, and what happens once at the start is warm-up."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglforge.base import proc
from sglforge.smoke.observe.memory import LEAST_SAMPLES, TOLERANCE_BYTES, steadiness
from sglforge.smoke.observe.processes import resident

MIB = 2**20
levels = st.floats(0, 64 * 2**30)
rounds = st.integers(LEAST_SAMPLES + 1, 60)
# A clean CPU server, sum of RSS in MiB after each of 30 rounds.
CLEAN = [1814.7, *[1814.8] * 5, *[1814.9] * 7, *[1815.3] * 5, *[1815.4] * 12]


def noise(count: int, most: float) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0, most), min_size=count, max_size=count)


@given(st.data(), levels, rounds)
def test_noise_without_a_trend_is_steady(data: st.DataObject, level: float, count: int) -> None:
    samples = [level + one for one in data.draw(noise(count, TOLERANCE_BYTES))]
    assert steadiness(samples).verdict == "steady"


@given(st.data(), levels, rounds, st.floats(1, 1e12))
def test_one_outlier_is_steady(data: st.DataObject, level: float, count: int, size: float) -> None:
    samples = [level] * count
    samples[data.draw(st.integers(0, count - 1))] += size
    assert steadiness(samples).verdict == "steady"


@given(st.data(), levels, rounds)
def test_a_leak_above_the_tolerance_is_found(data: st.DataObject, level: float, count: int) -> None:
    wobble = 1e5
    distance = count - 1 - (count - 1) // 3  # rounds between the middles of the thirds
    least = (max(TOLERANCE_BYTES, 0.005 * (level + wobble)) + wobble) / distance
    leak = least * data.draw(st.floats(1.1, 1000))
    samples = [level + leak * index + one for index, one in enumerate(data.draw(noise(count, wobble)))]
    # the first third has grown too by the time it is measured, which raises the relative tolerance
    assume(0.005 * samples[count // 3] + wobble < leak * distance)
    found = steadiness(samples)
    assert found.verdict == "grows"
    assert found.per_round == pytest.approx(leak, abs=2 * wobble / distance, rel=1e-6)


@given(st.data(), levels, rounds, st.floats(0, 1e12))
def test_a_step_in_the_first_round_is_warm_up(data: st.DataObject, level: float, count: int, step: float) -> None:
    samples = [level, *(level + step + one for one in data.draw(noise(count - 1, TOLERANCE_BYTES)))]
    assert steadiness(samples).verdict == "steady"


@given(levels, rounds, st.floats(1, 1e9))
def test_what_is_given_back_is_no_fault(level: float, count: int, drop: float) -> None:
    assert steadiness([level - drop * index for index in range(count)]).verdict == "steady"


@given(st.lists(levels, max_size=LEAST_SAMPLES))
def test_too_few_samples_prove_nothing(samples: list[float]) -> None:
    found = steadiness(samples)
    assert (found.verdict, found.growth, found.per_round) == ("too-few", None, None)


def test_tokens_have_no_tolerance() -> None:
    used = [0, *(index // 3 for index in range(12))]
    assert steadiness(used, absolute=0, relative=0).verdict == "grows"
    assert steadiness([0] * 13, absolute=0, relative=0).verdict == "steady"


def test_a_real_clean_server_is_steady() -> None:
    found = steadiness([size * MIB for size in CLEAN])
    assert found.verdict == "steady"
    assert found.growth is not None
    assert 0 < found.growth < MIB


@pytest.mark.parametrize(("leak_kib", "verdict"), [(0, "steady"), (4096, "grows")])
def test_a_real_process(tmp_path: Path, leak_kib: int, verdict: str) -> None:
    program = (
        "import time\nheld = []\nfor _ in range(11):\n"
        f"    held.append(b'x' * {leak_kib} * 1024)\n    print('round', flush=True)\n    time.sleep(0.2)\n"
        "time.sleep(30)"
    )
    log = tmp_path / "log"
    service = proc.spawn([sys.executable, "-c", program], log=log)
    samples: list[float] = []
    try:
        deadline = time.monotonic() + 30
        while len(samples) < 11 and time.monotonic() < deadline:
            if log.read_text().count("round") > len(samples):
                samples.append(resident(service.members()))
    finally:
        service.stop(grace_s=0.0)
    assert steadiness(samples).verdict == verdict
