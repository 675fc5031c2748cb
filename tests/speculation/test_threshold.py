"""The threshold for real: SGLang's scheduler and worker, thresholds 1 to 3, one request up to two too many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from speculation.checks import (
    assert_crossed,
    assert_drafts_are_worth_something,
    assert_mode_follows_batch,
    assert_right,
)
from speculation.lab.client import Laboratory, OpenLaboratory
from speculation.lab.protocol import Job, Outcome
from speculation.workloads import crossing

QUICK = [1, pytest.param(2, marks=pytest.mark.sweep), pytest.param(3, marks=pytest.mark.sweep)]


def loads(threshold: int, *, seed: int = 0) -> Iterator[Job]:
    """Return loads of 1 to T + 2 clients that start and end at different times."""
    for clients in range(1, threshold + 3):
        yield Job(
            clients=crossing(100_000 * seed + 1000 * threshold + clients, clients, rounds=3),
            thresholds=(threshold,),
            start_gap=2 + seed % 4,
        )


def judge(laboratory: Laboratory, threshold: int, *, seed: int = 0) -> None:
    outcomes: list[Outcome] = []
    for job in loads(threshold, seed=seed):
        outcome = laboratory.run(job)
        assert_right(outcome)
        assert_mode_follows_batch(job, outcome)
        assert outcome.checked_rows > 30
        outcomes.append(outcome)
    assert all(outcome.count(plain=True) == 0 for outcome in outcomes[:threshold])
    assert_crossed(outcomes[-1])
    assert_drafts_are_worth_something(outcomes)


@pytest.mark.parametrize("threshold", [1, 2, pytest.param(3, marks=pytest.mark.sweep)])
def test_eagle(open_laboratory: OpenLaboratory, threshold: int) -> None:
    judge(open_laboratory("EAGLE"), threshold)


@pytest.mark.parametrize("threshold", QUICK)
def test_eagle3(open_laboratory: OpenLaboratory, threshold: int) -> None:
    judge(open_laboratory("EAGLE3"), threshold)


@pytest.mark.parametrize("threshold", QUICK)
def test_standalone(open_laboratory: OpenLaboratory, noisy_model: Path, threshold: int) -> None:
    """Without the radix cache: with it upstream's STANDALONE accepts less, threshold or not."""
    judge(open_laboratory("STANDALONE", draft=str(noisy_model), radix=False), threshold)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_more_loads(open_laboratory: OpenLaboratory, threshold: int, seed: int) -> None:
    judge(open_laboratory("EAGLE"), threshold, seed=seed)


@pytest.mark.sweep
def test_with_the_attention_that_is_installed(open_laboratory: OpenLaboratory) -> None:
    """In the built environment sgl_kernel's torch; in an unpatched tree Triton kernels in the interpreter."""
    job = Job(clients=crossing(77, 3, tokens=(4, 8), longest=10), thresholds=(1,))
    outcome = open_laboratory("EAGLE", installed_attention=True).run(job)
    assert_right(outcome)
    assert_crossed(outcome)


@pytest.mark.sweep
def test_a_target_with_compressed_kv(
    open_laboratory: OpenLaboratory, compressed_model: Path, noisy_model: Path
) -> None:
    """MLA, which large models use. Tokens, acceptance and pool are judged; its KV rows are not compared."""
    laboratory = open_laboratory("STANDALONE", target=str(compressed_model), draft=str(noisy_model), radix=False)
    for threshold in (1, 2):
        job = Job(clients=crossing(400 + threshold, threshold + 2), thresholds=(threshold,), check_state=False)
        outcome = laboratory.run(job)
        assert_right(outcome)
        assert_crossed(outcome)
