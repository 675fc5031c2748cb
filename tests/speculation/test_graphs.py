"""Graphs of plain decode, emulated: a CPU has none. What runs on a GPU is not proven by this."""

from __future__ import annotations

import pytest
from speculation.checks import assert_crossed, assert_right
from speculation.lab.client import OpenLaboratory
from speculation.lab.protocol import Algorithm, Job
from speculation.workloads import crossing


@pytest.mark.parametrize(
    ("algorithm", "threshold"),
    [
        ("EAGLE", 2),
        *(
            pytest.param(algorithm, threshold, marks=pytest.mark.sweep)
            for algorithm, threshold in (("EAGLE", 1), ("EAGLE", 3), ("EAGLE3", 1), ("EAGLE3", 2))
        ),
    ],
)
def test_each_plain_step_replays_one_graph(
    open_laboratory: OpenLaboratory, algorithm: Algorithm, threshold: int
) -> None:
    job = Job(clients=crossing(300 + threshold, threshold + 2), thresholds=(threshold,))
    outcome = open_laboratory(algorithm, own_graphs=True).run(job)
    assert_right(outcome)
    assert_crossed(outcome)
    assert outcome.graph_replays == outcome.count(plain=True)
