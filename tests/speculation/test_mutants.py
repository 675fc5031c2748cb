"""The checks themselves: whatever the fall-back leaves undone must turn one of them red."""

from __future__ import annotations

from dataclasses import replace

import pytest
from speculation.checks import assert_right
from speculation.lab.client import Laboratory, OpenLaboratory
from speculation.lab.mutations import MUTATIONS, RIGHT_TOKENS
from speculation.lab.protocol import Client, Job, Outcome
from speculation.lab.release import RELEASE
from speculation.workloads import crossing

PARTICULAR = ("penalties-kept", "logit-bias-kept", "logprobs-as-of-plain-decode")
OTHERS = [name for name in MUTATIONS if name not in (*RIGHT_TOKENS, *PARTICULAR)]
JOB = Job(clients=crossing(5000, 3, tokens=(8, 20)), thresholds=(1,), pause=11)
before_0_5_11 = pytest.mark.skipif(RELEASE >= (0, 5, 11), reason="from 0.5.11 on a verification applies it, too")


def is_red(outcome: Outcome) -> bool:
    try:
        assert_right(outcome)
    except AssertionError:
        return True
    return False


def test_without_a_mutation_nothing_is_red(open_laboratory: OpenLaboratory) -> None:
    assert_right(open_laboratory("EAGLE").run(JOB))


@pytest.mark.parametrize("mutation", RIGHT_TOKENS)
def test_a_mutant_that_says_the_right_tokens_is_seen_in_the_state(
    open_laboratory: OpenLaboratory, mutation: str
) -> None:
    """Equal tokens do not prove the fall-back: these leave a wrong draft behind, and every token is right."""
    outcome = open_laboratory("EAGLE").run(replace(JOB, mutation=mutation))
    assert outcome.error == ""
    assert outcome.wrong() == []
    assert {fault.kind for fault in outcome.faults} <= {"draft KV", "draft hidden state", "proposal"}
    assert outcome.faults
    assert is_red(outcome)


@pytest.mark.sweep
@pytest.mark.parametrize("mutation", OTHERS)
def test_a_mutant_that_says_wrong_tokens_or_dies_is_seen(open_laboratory: OpenLaboratory, mutation: str) -> None:
    outcome = open_laboratory("EAGLE").run(replace(JOB, mutation=mutation))
    assert outcome.error or outcome.wrong()
    assert is_red(outcome)


@pytest.mark.skipif(RELEASE < (0, 5, 10), reason="0.5.9 returns no logprobs while it speculates")
def test_logprobs_of_another_shape_end_the_scheduler(open_laboratory: OpenLaboratory) -> None:
    job = replace(
        JOB,
        clients=crossing(9700, 3, tokens=(10, 20), longest=0, logprobs=True),
        mutation="logprobs-as-of-plain-decode",
    )
    assert open_laboratory("EAGLE").run(job).error


@before_0_5_11
def test_a_kept_bias_is_seen(open_laboratory: OpenLaboratory) -> None:
    biased = crossing(9500, 3, tokens=(14, 20), longest=0, sampling={"logit_bias": {"101": 50.0}})
    assert _depends_on_load(open_laboratory("EAGLE"), biased, "logit-bias-kept")


@before_0_5_11
@pytest.mark.sweep
def test_kept_penalties_are_seen(open_laboratory: OpenLaboratory) -> None:
    """They are not accumulated while speculating: `min_new_tokens` would forbid the stop token for ever."""
    laboratory = open_laboratory("EAGLE", tokenizer=True)
    clients = crossing(9500, 3, tokens=(14, 20), longest=0)
    told = laboratory.run(Job(clients=clients, thresholds=(0,)))
    stopping = tuple(
        tuple(
            replace(
                ask,
                sampling={
                    "min_new_tokens": 2,
                    "ignore_eos": False,
                    "stop_token_ids": [told.answers[ask.name].tokens[6]],
                },
            )
            for ask in client
        )
        for client in clients
    )
    assert not _depends_on_load(laboratory, stopping, None)
    assert _depends_on_load(laboratory, stopping, "penalties-kept")


def _depends_on_load(laboratory: Laboratory, clients: tuple[Client, ...], mutation: str | None) -> bool:
    """Tell whether a request says something else when plain steps are part of it."""
    always = laboratory.run(Job(clients=clients, thresholds=(0,)))
    mixed = laboratory.run(Job(clients=clients, thresholds=(1,), mutation=mutation))
    assert mixed.count(plain=True)
    return {name: answer.tokens for name, answer in mixed.answers.items()} != {
        name: answer.tokens for name, answer in always.answers.items()
    }
