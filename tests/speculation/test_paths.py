"""What happens to requests beside decoding, on both sides of the threshold."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec

import pytest
from speculation.checks import assert_right
from speculation.lab.client import OpenLaboratory
from speculation.lab.protocol import Ask, Job
from speculation.lab.release import RELEASE
from speculation.workloads import TEXTS, crossing


@pytest.mark.parametrize("page_size", [1, pytest.param(16, marks=pytest.mark.sweep)])
def test_a_repeated_prefix_that_plain_steps_wrote(open_laboratory: OpenLaboratory, page_size: int) -> None:
    """Whole texts are asked for again, alone: their target KV and draft KV come from the radix cache."""
    laboratory = open_laboratory("EAGLE", page_size=page_size)
    first = crossing(31, 3, rounds=1, tokens=(24, 32), longest=8)
    told = laboratory.run(Job(clients=first, thresholds=(1,), start_gap=0))
    again = tuple(
        Ask(name=f"{one.name}-again", prompt=(*one.prompt, *told.answers[one.name].tokens), tokens=16)
        for (one,) in first
    )
    outcome = laboratory.run(Job(clients=((*first[0], *again), *first[1:]), thresholds=(1,), start_gap=0))
    assert_right(outcome)
    assert outcome.count(plain=True) > 20
    assert all(not step.plain for step in outcome.steps for row in step.rows if row.name.endswith("-again"))
    for (one,), repeated in zip(first, again, strict=True):
        assert outcome.answers[repeated.name].cached >= (len(one.prompt) + one.tokens - 2) // page_size * page_size


def test_any_order_of_both_modes(open_laboratory: OpenLaboratory) -> None:
    """The threshold is drawn anew before each step."""
    laboratory = open_laboratory("EAGLE")
    job = Job(clients=crossing(6000, 4, rounds=3, tokens=(10, 30)), thresholds=(0, 0, 1, 2, 3))
    outcome = laboratory.run(job)
    assert_right(outcome)
    assert outcome.crossings() > 10


@pytest.mark.parametrize("threshold", [1, pytest.param(2, marks=pytest.mark.sweep)])
def test_requests_of_one_to_three_tokens(open_laboratory: OpenLaboratory, threshold: int) -> None:
    clients = tuple(
        tuple(
            Ask(
                name=f"c{client}r{turn}",
                prompt=tuple(TEXTS[turn % 3][9 * client : 9 * client + 9]),
                tokens=1 + (client + turn) % 3,
            )
            for turn in range(5)
        )
        for client in range(4)
    )
    outcome = open_laboratory("EAGLE").run(Job(clients=clients, thresholds=(threshold,), start_gap=0))
    assert_right(outcome)
    assert outcome.count(plain=True)


def test_requests_that_are_aborted(open_laboratory: OpenLaboratory) -> None:
    clients = crossing(8000, 4, tokens=(20, 30))
    job = Job(clients=clients, thresholds=(1,), pause=3, aborts={12: clients[2][0].name, 19: clients[0][0].name})
    outcome = open_laboratory("EAGLE").run(job)
    assert_right(outcome)
    assert [name for name, answer in outcome.answers.items() if answer.finish == "abort"] == ["s8000c0r0", "s8000c2r0"]
    assert outcome.count(plain=True)


@pytest.mark.parametrize("threshold", [2, pytest.param(1, marks=pytest.mark.sweep)])
def test_requests_that_are_retracted(open_laboratory: OpenLaboratory, threshold: int) -> None:
    """A pool of 260 tokens, and a scheduler that believes it has room."""
    laboratory = open_laboratory("EAGLE", pool_tokens=260)
    job = Job(
        clients=crossing(9000 + threshold, 5, tokens=(40, 60), longest=0),
        thresholds=(threshold,),
        pause=3,
        eager_admission=True,
    )
    outcome = laboratory.run(job)
    assert_right(outcome)
    assert outcome.retracted
    assert outcome.count(plain=True)


@pytest.mark.skipif(RELEASE < (0, 5, 10), reason="0.5.9 returns no logprobs while it speculates")
def test_logprobs(open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory("EAGLE")
    clients = crossing(9700, 3, tokens=(10, 20), longest=0, logprobs=True)
    plain, mixed = (laboratory.run(Job(clients=clients, thresholds=(threshold,))) for threshold in (0, 1))
    assert_right(mixed)
    assert mixed.count(plain=True)
    for name, answer in mixed.answers.items():
        assert answer.logprobs == pytest.approx(plain.answers[name].logprobs, abs=1e-4)
        assert len(answer.logprobs) == len(answer.tokens)


@pytest.mark.sweep
@pytest.mark.skipif(find_spec("xgrammar") is None, reason="needs the grammar backend xgrammar")
def test_a_grammar_is_kept_across_the_threshold(open_laboratory: OpenLaboratory) -> None:
    """Some requests of a batch are constrained: what they say fits, and is the same with and without plain steps."""
    laboratory = open_laboratory("EAGLE", tokenizer=True, grammars=True)
    clients = tuple(
        tuple(
            replace(ask, sampling={"regex": "[a-m]{4}[n-z]{40}", "ignore_eos": False} if number % 2 == 0 else {})
            for ask in client
        )
        for number, client in enumerate(crossing(4400, 3, tokens=(8, 16), longest=10))
    )
    always, mixed = (laboratory.run(Job(clients=clients, thresholds=(threshold,))) for threshold in (0, 1))
    assert_right(mixed)
    assert mixed.count(plain=True)
    assert mixed.answers == always.answers
    for name, answer in mixed.answers.items():
        if int(name[-3]) % 2 == 0:
            assert re.fullmatch("[a-m]{4}[n-z]*", bytes(answer.tokens).decode())


def test_sampling_parameters_mean_the_same_on_both_sides(open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory("EAGLE")
    biased = crossing(9500, 3, tokens=(14, 20), longest=0, sampling={"logit_bias": {"101": 50.0}})
    always, mixed = (laboratory.run(Job(clients=biased, thresholds=(threshold,))) for threshold in (0, 1))
    assert mixed.count(plain=True)
    assert mixed.answers == always.answers
