"""A worker without its threshold never becomes a server."""

from __future__ import annotations

import pytest
from speculation.lab.client import LaboratoryDied, OpenLaboratory
from speculation.lab.protocol import Job
from speculation.workloads import crossing


def test_a_worker_that_has_lost_its_threshold_ends_the_start(open_laboratory: OpenLaboratory) -> None:
    """The class attribute would hide it: with 0 the server would run and never stop speculating."""
    laboratory = open_laboratory("EAGLE", forgetful=True)
    with pytest.raises(LaboratoryDied) as caught:
        laboratory.run(Job(clients=crossing(1, 1), thresholds=(1,)))
    assert "EAGLEWorkerV2.spec_disable_batch_threshold is 0, not 1: its __init__ did not take" in str(caught.value)


def test_what_was_taken_is_logged(open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory("EAGLE")
    laboratory.run(Job(clients=crossing(2, 1, rounds=1), thresholds=(1,)))
    assert "sglforge: speculation threshold 1 (EAGLEWorkerV2, eager)" in laboratory.log.read_text()
