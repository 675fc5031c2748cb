"""What the judge of recorded transcripts says, what it refuses, and that nothing makes it stumble."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.errors import ConfigError
from sglforge.smoke.recorded import bench
from sglforge.smoke.recorded.judge import Recording, judge_recording
from sglforge.smoke.recorded.normalise import normalise
from sglforge.smoke.recorded.replies import reply

TEXT = "The ferry leaves the island at nine and is back before noon."


def judged(document: object) -> Recording:
    return judge_recording(document, where="f.json")


def only(document: object) -> dict[str, Any]:
    """Return the only finding."""
    (finding,) = judged(document).findings
    return finding.to_json()


def test_a_hang_says_where_how_long_and_what_health_says() -> None:
    said = only(
        {
            "steps": [
                {"req": "chat", "max_tokens": 16, "status": 200, "s": 0.5, "text": TEXT},
                {"req": "long", "max_tokens": 300, "status": "ReadTimeout", "s": 90},
                {"GET": "/health", "status": 200},
            ]
        }
    )
    assert said["code"] == "decode-hang"
    assert said["message"] == (
        "timeout: no answer within 90 s to step 2 (long) for 300 tokens, while health is 200; "
        "step 1 (chat) for 16 tokens was answered"
    )
    assert "cause is open" in said["hint"]
    assert said["where"] == "f.json"


@pytest.mark.parametrize("blank", ["", " ", "\n\n"])
@pytest.mark.parametrize(
    "short",
    [
        {"request": {"path": "/generate", "body": {"sampling_params": {"max_new_tokens": 1}}}},
        {"req": "one token", "max_tokens": 2},
        {"req": "one token", "finish_reason": "length", "completion_tokens": 1},
    ],
)
def test_a_blank_answer_of_one_token_says_nothing(blank: str, short: dict[str, object]) -> None:
    step = {**short, "status": 200, "text": blank}
    sound = {"req": "chat", "max_tokens": 64, "status": 200, "text": TEXT}
    assert judged({"steps": [step, sound]}).verdict == "pass"
    assert judged({"steps": [{**step, "parallel": 4}, {**sound, "parallel": 1}]}).verdict == "pass"
    assert judged({"steps": [step]}).verdict == "inconclusive"


def test_a_blank_answer_of_many_tokens_fails() -> None:
    assert judged({"steps": [{"req": "chat", "max_tokens": 64, "status": 200, "text": " "}]}).verdict == "fail"


def test_a_death_names_the_last_request_that_was_answered() -> None:
    said = only(
        {
            "steps": [
                {
                    "request": {"path": "/generate", "sampling_params": {"json_schema": "{}"}},
                    "status": 200,
                    "text": "{}",
                },
                {"GET": "/health", "status": "connection refused"},
            ]
        }
    )
    assert said["subject"] == "step 1 (/generate with json_schema)"
    assert "step 2 (GET /health): nobody answers" in said["message"]


def test_every_bad_answer_is_named() -> None:
    findings = judged({"responses": ["+" * 30, TEXT, "ab" * 60]}).findings
    assert [finding.subject for finding in findings] == ["responses[1]", "responses[3]"]
    assert "'+' is repeated 30 times" in findings[0].message


def test_company_is_compared_with_what_ran_alone() -> None:
    said = only({"single": TEXT, "parallel": [TEXT, "!" * 20, TEXT]})
    assert said["code"] == "garbage-under-concurrency"
    assert "1 of 3 answers given in parallel are garbage" in said["message"]
    assert said["detail"][0].startswith("single: 'The ferry")


def test_parallel_answers_to_known_prompts_are_paired() -> None:
    document = {
        "single": {"where is it?": TEXT, "how old?": "It was built ninety years ago."},
        "parallel": {"how old?": "It was built ninety years ago.", "where is it?": "It was built ninety years ago."},
    }
    assert "1 of 2" in only(document)["message"]


def test_nan_says_which_token() -> None:
    rows = [[-0.1, 5, "a"], [None, 0, "!"], [None, 0, "!"]]
    said = only({"response": {"text": "a!!", "output_ids": [5, 0, 0], "meta_info": {"output_token_logprobs": rows}}})
    assert said["code"] == "nan-logits"
    assert "token 1 (id 0) is null" in said["message"]
    assert "2 of 3 are not finite" in said["message"]


def test_a_draft_without_gain_says_its_length() -> None:
    said = only({"response": {"text": TEXT, "completion_tokens": 240, "spec_verify_ct": 235}})
    assert "accept length 1.02 over 240 tokens" in said["message"]


def test_padded_graphs_are_named() -> None:
    log = "EAGLE draft cuda graph replay padding: raw_bs=3 graph_bs=4\nCUDA error: an illegal memory access"
    said = only({"log": log, "argv": ["--cuda-graph-bs-decode", "1", "2", "4", "--tp", "8"]})
    assert "3 requests were padded to a graph of 4" in said["message"]
    assert "captured sizes: --cuda-graph-bs-decode 1 2 4" in said["detail"]


def test_a_regression_says_what_the_threshold_should_be() -> None:
    said = only({"bench": {"plain": {"1": 60, "8": 400, "16": 800}, "spec": {"1": 130, "8": 600, "16": 500}}})
    assert "at concurrency 16 it reaches 62%" in said["message"]
    assert "at 8, the last concurrency at which it gains" in said["hint"]


def test_nothing_to_judge_is_no_pass() -> None:
    assert judged({"steps": []}).verdict == "inconclusive"
    assert judged({"health": 200}).verdict == "inconclusive"
    assert judged({"log": "INFO: Application startup complete."}).verdict == "inconclusive"


def test_the_document_of_the_verdict() -> None:
    assert judged({"completion": TEXT}).to_json() == {
        "schema": 1,
        "verdict": "pass",
        "findings": [],
        "transcript": "f.json",
        "right": ["completion"],
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (5, "it is int"),
        ("text", "it is str"),
        (None, "it is NoneType"),
        ({"steps": 5}, "a list of steps, not int"),
        ({"steps": [5]}, "an object, not int"),
        ({"log": 5}, "a text or a list of lines, not int"),
        ({"argv": {"a": 1}}, "a list of words, not dict"),
    ],
)
def test_what_is_no_transcript_is_refused(document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        judged(document)
    assert caught.value.code == "transcript-invalid"
    assert caught.value.where is not None
    assert caught.value.where.startswith(("f.json", "step 1"))


def test_deep_nesting_is_refused() -> None:
    document: object = "x"
    for _ in range(100):
        document = {"response": document}
    with pytest.raises(ConfigError, match="40 levels"):
        judged(document)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "ok"),
        ("200 OK", "ok"),
        ("healthy", "ok"),
        (0, "unreachable"),
        (-1, "unreachable"),
        ("Connection refused", "unreachable"),
        ("disconnected", "unreachable"),
        (False, "unreachable"),
        ("timed out", "timeout"),
        ("ReadTimeout", "timeout"),
        ("time-out", "timeout"),
        (504, "timeout"),
        (499, "cancelled"),
        ("cancelled by the client", "cancelled"),
        (500, "error"),
        ("error", "error"),
    ],
)
def test_words_and_numbers_of_a_status(status: object, outcome: str) -> None:
    (event,) = normalise({"steps": [{"req": "chat", "status": status}]}, where="f").events
    assert event.outcome == outcome


@pytest.mark.parametrize(
    "table",
    [
        [{"concurrency": 4, "spec": 200, "no_spec": 100}],
        [{"bs": 4, "mode": "EAGLE", "tps": 200}, {"bs": 4, "mode": "baseline", "tps": 100}],
        {"4": {"speculation on": 200, "speculation off": 100}},
        {"with speculation": {"4": 200}, "without speculation": {"4": 100}},
        {"concurrency": [4], "eagle": [200], "vanilla": [100]},
        {"bs4_spec": 200, "bs4_nospec": 100},
        [
            {"max_concurrency": 4, "speculative": True, "output_throughput": 200, "mean_tpot_ms": 20},
            {"max_concurrency": 4, "speculative": False, "output_throughput": 100, "mean_tpot_ms": 40},
        ],
        [{"conc": 4, "eagle3": {"tok_s": 200}, "none": {"tok_s": 100}}],
    ],
)
def test_forms_of_a_benchmark_are_one(table: object) -> None:
    found = {(one.mode, one.concurrency): one.total for one in bench.measures(table, threshold=None)}
    assert found == {("speculation", 4): 200, ("plain", 4): 100}


def test_streams_are_joined() -> None:
    chunks = [{"choices": [{"delta": {"content": part}, "finish_reason": None}]} for part in ("The ", "ferry")]
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    got = reply([*chunks, last])
    assert (got.text, got.finish) == ("The ferry", "stop")
    assert reply([{"text": "The "}, {"text": "The ferry"}]).text == "The ferry"


KEYS = st.sampled_from(
    [
        "steps",
        "req",
        "request",
        "status",
        "s",
        "text",
        "response",
        "responses",
        "single",
        "parallel",
        "bench",
        "spec",
        "log",
        "completion",
        "choices",
        "message",
        "content",
        "logprobs",
        "token_logprobs",
        "meta_info",
        "finish_reason",
        "health",
        "argv",
        "max_tokens",
        "completion_tokens",
        "spec_verify_ct",
        "output_ids",
        "concurrency",
        "threshold",
        "GET",
        "usage",
        "plain",
        "tpot_ms",
        "output_token_logprobs",
        "error",
        "8",
        "c8_spec",
        "accept_length",
        "server_info",
        "chunks",
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 600),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["timeout", "/health", "!" * 30, "nan", "200 OK", "Decode batch, #running-req: 1, accept len: 1..0"]
    ),
)
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(KEYS, DOCUMENTS, max_size=6) | st.lists(DOCUMENTS, max_size=4))
def test_any_document_is_judged_or_refused(document: object) -> None:
    try:
        found = judged(document)
    except ConfigError:
        return
    assert found.verdict in {"pass", "fail", "inconclusive"}
    assert found.verdict != "pass" or found.right
    json.dumps(found.to_json())


@given(st.permutations([f"{TEXT} It is ferry number {number}." for number in range(5)]))
def test_good_answers_are_good_in_any_order(texts: list[str]) -> None:
    assert judged({"responses": texts}).verdict == "pass"
