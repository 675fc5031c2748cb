"""The options: what is taken, and where the threshold is refused before a model is loaded."""

from __future__ import annotations

from typing import Any

import pytest
from speculation.conftest import DRAFTS, MODELS

BASE = ("--model-path", str(MODELS / "tiny-llama"), "--device", "cpu", "--attention-backend", "triton")
EAGLE = (
    "--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", str(MODELS / DRAFTS["EAGLE"]),
    "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
)  # fmt: skip
THRESHOLD = ("--speculative-disable-batch-threshold", "8")


def parse(*words: str) -> Any:
    from sglang.srt.server_args import prepare_server_args

    return prepare_server_args([*BASE, *words])


def test_it_is_off_by_default() -> None:
    arguments = parse(*EAGLE)
    assert arguments.speculative_disable_batch_threshold == 0
    assert arguments.speculative_disable_batch_mode == "graph"


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "STANDALONE", "NEXTN"])
def test_it_is_taken(algorithm: str) -> None:
    words = ("--speculative-algorithm", algorithm, *EAGLE[2:])
    assert parse(*words, *THRESHOLD).speculative_disable_batch_threshold == 8


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (THRESHOLD, "needs EAGLE"),
        ((*EAGLE, THRESHOLD[0], "-1"), "0 (never) or more"),
        ((*EAGLE, *THRESHOLD, "--enable-multi-layer-eagle"), "--enable-multi-layer-eagle"),
        ((*EAGLE, *THRESHOLD, "--enable-dp-attention", "--dp-size", "2", "--tp-size", "2"), "--enable-dp-attention"),
        ((*EAGLE, *THRESHOLD, "--enable-two-batch-overlap"), "--enable-two-batch-overlap"),
        ((*EAGLE, *THRESHOLD, "--enable-pdmux", "--chunked-prefill-size", "-1"), "--enable-pdmux"),
        ((*EAGLE, *THRESHOLD, "--speculative-draft-attention-backend", "nsa"), "attention backend nsa"),
    ],
)
def test_it_is_refused(words: tuple[str, ...], named: str) -> None:
    with pytest.raises(ValueError, match="--speculative-disable-batch-threshold") as caught:
        parse(*words)
    assert named in str(caught.value)


def test_it_is_refused_without_the_overlapped_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_ENABLE_SPEC_V2", "False")
    with pytest.raises(ValueError, match="needs EAGLE, EAGLE3 or STANDALONE on spec v2"):
        parse(*EAGLE, *THRESHOLD)
