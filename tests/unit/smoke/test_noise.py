"""By how much equal scores differ: from answers to a bound, and from one run to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base.workspace import Workspace
from sglforge.smoke import noise
from sglforge.smoke.client import Answer, Request
from sglforge.smoke.equality import Pair, equality, gap_of, questions
from sglforge.smoke.generation import Generation
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

GPU = Subject(scope="gpu", dtype="bfloat16")


def text(ids: str) -> Generation:
    return Generation(
        text=ids,
        output_ids=tuple(map(ord, ids)),
        completion_tokens=len(ids),
        finish="length",
        correct_drafts=None,
        verify_steps=None,
    )


PAIR = Pair(name="together-0", prompt="Once", got=text("abXd"), expected=text("abcd"))


def scored(*gaps: float, subject: Subject = GPU, stored: float | None = None) -> Observed:
    exchanges = tuple(
        Exchange(
            probe="parallel",
            server="profile",
            request=Request(name=f"score-{number}:together-0", path="/generate", body={}),
            answer=Answer(
                status=200,
                seconds=0.1,
                response={"meta_info": {"output_token_ids_logprobs": [[[-1.0, 99, None], [-1.0 - gap, 88, None]]]}},
            ),
        )
        for number, gap in enumerate(gaps)
    )
    return Observed(subject=subject, exchanges=exchanges, noise=stored)


@pytest.mark.parametrize(
    ("gaps", "stored", "dtype", "expected"),
    [
        ((0.1, 0.1, 0.1, 0.1), None, "bfloat16", "tie"),  # one rounding step of bfloat16 logits
        ((0.1, 0.1, 0.1, 0.1), None, "float32", "other"),  # a thousand of float32
        ((0.6, 0.6, 0.6, 0.6), None, "bfloat16", "other"),
        ((0.6, -0.3, 0.4, 0.1), None, "bfloat16", "tie"),  # repeats differ by more than the tokens
        ((0.4, 0.4, 0.4, 0.4), 0.45, "bfloat16", "tie"),  # an earlier run has seen such a spread
        ((-3.0, -3.0, -3.0, -3.0), None, "bfloat16", "other"),  # the expected token was the wrong one
        ((), None, "bfloat16", "open"),
    ],
)
def test_tokens_are_equal_up_to_the_noise_of_repeats(
    gaps: tuple[float, ...], stored: float | None, dtype: str, expected: str
) -> None:
    observed = scored(*gaps, subject=Subject(scope="gpu", dtype=dtype), stored=stored)
    assert equality(observed, PAIR) == expected


def test_on_the_cpu_nothing_is_noise() -> None:
    assert equality(scored(0.0, 0.0, subject=Subject(scope="cpu-logic")), PAIR) == "other"
    assert questions(scored(subject=Subject(scope="cpu-logic")), [PAIR]) == ()


def test_a_text_that_is_cut_off_is_no_tie() -> None:
    short = Pair(name="together-0", prompt="Once", got=text("ab"), expected=text("abcd"))
    assert equality(scored(0.0, 0.0), short) == "other"


def test_both_tokens_are_scored_after_what_both_said() -> None:
    (wave,) = questions(scored(), [PAIR])
    assert wave[0].name == "ids:together-0"
    rows = [[None, 79, None], [-1.0, 110, None]]
    ids = Exchange(
        probe="parallel",
        server="profile",
        request=wave[0],
        answer=Answer(status=200, seconds=0.1, response={"meta_info": {"input_token_logprobs": rows}}),
    )
    waves = questions(Observed(subject=GPU, exchanges=(ids,)), [PAIR])
    assert all(wave[0].body and wave[0].body["input_ids"] == [79, 110, 97, 98] for wave in waves)
    assert all(wave[0].body and wave[0].body["token_ids_logprob"] == [99, 88] for wave in waves)
    assert [len(wave) for wave in waves] == [1, 1, 4, 4]


def test_the_largest_spread_is_kept_for_an_environment(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    assert noise.known(workspace, "r") is None
    noise.remember(workspace, "r", [scored(0.1, 0.3), scored()])
    assert noise.known(workspace, "r") == pytest.approx(0.2)
    noise.remember(workspace, "r", [scored(0.1, 0.15)])
    assert noise.known(workspace, "r") == pytest.approx(0.2)
    noise.remember(workspace, "r", [scored(0.1, 9.0)])
    assert noise.known(workspace, "r") == noise.LIMIT
    assert noise.known(workspace, "another") is None
    (workspace.noise / "r.json").write_text("{")
    assert noise.known(workspace, "r") is None


def test_a_gap_without_repeats_is_none() -> None:
    assert gap_of(scored(0.1), PAIR) is None
