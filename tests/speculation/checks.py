"""What must be true of every outcome, and what a job must have done to prove anything."""

from __future__ import annotations

from speculation.lab.protocol import Job, Outcome


def assert_right(outcome: Outcome) -> None:
    """Hold tokens, state, acceptance and pool against the references."""
    assert outcome.error == ""
    assert outcome.wrong() == []
    assert outcome.faults == ()
    assert outcome.acceptance()[2] == []
    assert outcome.pool
    assert outcome.pool.whole, outcome.pool


def assert_mode_follows_batch(job: Job, outcome: Outcome) -> None:
    """Hold each step's mode against the size of its batch; a plain step accepts no draft."""
    (threshold,) = job.thresholds
    for step in outcome.steps:
        assert step.plain is (0 < threshold < len(step.rows))
        assert not step.plain or all(row.accepted == 0 for row in step.rows)


def assert_crossed(outcome: Outcome) -> None:
    """Hold that both modes ran, and that drafts were judged which came after a plain step of the same request."""
    assert outcome.crossings() >= 2
    checked, after_plain, _wrong = outcome.acceptance()
    assert checked > after_plain > 0


def assert_drafts_are_worth_something(outcomes: list[Outcome]) -> None:
    """Hold that a good part of the first drafts is right: otherwise acceptance would prove nothing."""
    rows = [row for outcome in outcomes for step in outcome.steps if not step.plain for row in step.rows]
    assert sum(row.accepted > 0 for row in rows) > len(rows) / 4
