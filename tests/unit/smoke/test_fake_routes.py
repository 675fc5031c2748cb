"""The fake server's routes: the fields of SGLang 0.5.23, one text however it is asked for, scores of a real model."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from fake_sglang import language
from fake_sglang.driving import Driver
from fake_sglang.faults import FAULTS, chosen
from fake_sglang.tokens import SPECIALS, as_symbols, decode, encode
from hypothesis import given, settings
from hypothesis import strategies as st

STORY = "Tell me a story."
CHAT = [{"role": "user", "content": "What is the weather in Rome?"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {"city": {}}}}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "country": {"type": "string"}}}


def greedy(prompt: str = STORY, tokens: int = 32, **more: Any) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": tokens, **more.pop("sampling", {})}
    return {"text": prompt, "sampling_params": sampling, **more}


@pytest.fixture
def fake() -> Iterator[Driver]:
    with Driver() as driver:
        yield driver


@pytest.fixture
def drafting() -> Iterator[Driver]:
    with Driver(argv=["--speculative-algorithm", "EAGLE", "--tool-call-parser", "any"]) as driver:
        yield driver


def test_generate_has_the_fields_of_sglang(fake: Driver, drafting: Driver) -> None:
    answer = fake.post("/generate", greedy()).document
    assert answer.keys() == {"text", "output_ids", "meta_info"}
    common = {"id", "finish_reason", "prompt_tokens", "weight_version", "num_retractions", "reasoning_tokens"}
    common |= {"completion_tokens", "cached_tokens", "e2e_latency", "response_sent_to_client_ts"}
    assert answer["meta_info"].keys() == common
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 32}
    assert answer["meta_info"]["prompt_tokens"] == len(STORY)
    drafted = drafting.post("/generate", greedy()).document
    spec = {"spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts", "spec_num_proposed_drafts"}
    assert drafted["meta_info"].keys() == common | spec | {"spec_verify_ct", "spec_correct_drafts_histogram"}
    assert drafted["output_ids"] == answer["output_ids"]
    meta = drafted["meta_info"]
    assert meta["spec_num_correct_drafts"] + meta["spec_verify_ct"] + 1 == meta["completion_tokens"]


def test_tokens_ids_and_lists_of_prompts_say_the_same(fake: Driver) -> None:
    alone = fake.post("/generate", greedy()).document
    by_ids = fake.post("/generate", {**greedy(), "text": None, "input_ids": encode(STORY)})
    assert by_ids.document["text"] == alone["text"] == decode(alone["output_ids"])
    both = fake.post("/generate", {**greedy(), "text": [STORY, "One and one is"]}).document
    assert next(one["text"] for one in both) == alone["text"]
    assert both[1]["text"].startswith(" two.")


def test_the_end_of_a_text_and_stop_texts_are_told(fake: Driver) -> None:
    ended = fake.post("/generate", greedy("One and one is")).document
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": 256}
    assert (ended["text"], ended["output_ids"][-1]) == (" two.", 256)
    on = fake.post("/generate", greedy("One and one is", 40, sampling={"ignore_eos": True})).document
    assert (on["meta_info"]["completion_tokens"], on["meta_info"]["finish_reason"]["type"]) == (40, "length")
    stopped = fake.post("/generate", greedy("One and one is", sampling={"stop": ["wo"]})).document
    assert (stopped["text"], stopped["meta_info"]["finish_reason"]) == (" t", {"type": "stop", "matched": "wo"})


@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("drafts", [[], ["--speculative-algorithm", "EAGLE"]])
def test_a_stream_is_the_text_so_far(interval: int, drafts: list[str]) -> None:
    with Driver(argv=["--stream-interval", str(interval), *drafts]) as fake:
        whole = fake.post("/generate", greedy()).document
        *parts, last, done = fake.post("/generate", greedy(stream=True)).events
        assert done == "[DONE]"
        assert (last["text"], last["output_ids"]) == (whole["text"], whole["output_ids"])
        sizes = [len(part["output_ids"]) for part in parts]
        assert sizes[0] == 1
        assert all(later - earlier >= interval for earlier, later in itertools.pairwise(sizes))
        assert len(sizes) >= 5
        for part in parts:
            assert whole["text"].startswith(part["text"])
            assert part["meta_info"]["finish_reason"] is None
            assert part["meta_info"]["completion_tokens"] == len(part["output_ids"])
    with Driver(argv=["--incremental-streaming-output"]) as fake:
        *parts, done = fake.post("/generate", greedy(stream=True)).events
        assert "".join(part["text"] for part in parts) == whole["text"]


def test_scores_of_a_prefill_are_those_of_the_decode(fake: Driver, drafting: Driver) -> None:
    asked = greedy(tokens=48, return_logprob=True, top_logprobs_num=3, token_ids_logprob=[65, 32])
    for server in (fake, drafting):
        meta = server.post("/generate", asked).document["meta_info"]
        assert meta["input_token_logprobs"] == []
        rows, top, picked = (meta[f"output_{kind}_logprobs"] for kind in ("token", "top", "token_ids"))
        assert (len(rows), len(top), len(picked), meta["output_token_logprobs_length"]) == (48, 48, 48, 48)
        assert all(row[:2] == best[0][:2] and len(best) == 3 for row, best in zip(rows, top, strict=True))
        ids = encode(STORY) + [row[1] for row in rows]
        again = {**asked, "text": None, "input_ids": ids, "logprob_start_len": len(STORY) - 1}
        forced = server.post("/generate", {**again, "sampling_params": {"max_new_tokens": 1}}).document["meta_info"]
        assert forced["input_token_logprobs"][0][0] is None
        assert forced["input_token_logprobs"][1:] == rows
        assert (forced["input_top_logprobs"][0], forced["input_top_logprobs"][1:]) == (None, top)
        assert forced["input_token_ids_logprobs"][1:] == picked


def test_the_prefix_cache_is_told_and_flushed(fake: Driver) -> None:
    assert [fake.post("/generate", greedy()).document["meta_info"]["cached_tokens"] for _ in range(2)] == [0, 15]
    assert fake.post("/flush_cache", {}).status == 200
    assert fake.post("/generate", greedy()).document["meta_info"]["cached_tokens"] == 0


def test_what_cannot_be_served_is_refused(fake: Driver) -> None:
    long = fake.post("/generate", greedy("x" * 5000))
    assert (long.status, "longer than the model's context length" in long.document["error"]["message"]) == (400, True)
    long = fake.post("/v1/completions", {"prompt": "x" * 5000})
    assert (long.status, long.document["object"], long.document["code"]) == (400, "error", 400)
    assert fake.post("/generate", {}).status == 400
    assert fake.post("/generate", greedy(sampling={"json_schema": "{"})).status == 400
    assert fake.post("/v1/chat/completions", {"messages": []}).status == 400
    assert fake.post("/v1/completions", {"prompt": ["a", "b"]}).status == 400
    assert fake.post("/v1/completions", {"prompt": "a", "n": 2}).status == 400
    assert (fake.get("/nowhere").status, fake.get("/generate").status, fake.get("/metrics").status) == (404, 405, 404)


def test_the_server_tells_about_itself(drafting: Driver) -> None:
    info = drafting.get("/server_info").document
    assert info == {**drafting.get("/get_server_info").document}
    assert (info["version"], info["device"], info["speculative_algorithm"]) == ("0.5.23", "cpu", "EAGLE")
    state = info["internal_states"][0]
    assert {"memory_usage", "last_gen_throughput", "effective_max_running_requests_per_dp"} <= state.keys()
    assert state["memory_usage"]["token_capacity"] == info["max_total_num_tokens"]
    assert drafting.get("/model_info").document["is_generation"] is True
    assert drafting.get("/v1/models").document["data"][0]["max_model_len"] == 4096
    assert drafting.get("/health").status == drafting.get("/health_generate").status == 200
    assert drafting.get("/v1/loads").document["loads"][0]["num_running_reqs"] == 0
    assert drafting.post("/tokenize", {"prompt": "ab<|end|>"}).document["tokens"] == [97, 98, 256]


def test_another_engine_has_the_compatible_routes_only() -> None:
    with Driver(argv=["--openai-only"]) as fake:
        assert {fake.get(path).status for path in ("/server_info", "/model_info", "/v1/loads")} == {404}
        assert fake.post("/generate", greedy()).status == 404
        answer = fake.post("/v1/completions", {"prompt": STORY, "temperature": 0}).document
        assert "matched_stop" not in answer["choices"][0]
        chat = fake.post("/v1/chat/completions", {"messages": CHAT, "tools": [TOOL], "temperature": 0}).document
        assert chat["choices"][0]["finish_reason"] == "tool_calls"


def test_completions_say_what_generate_says(fake: Driver) -> None:
    asked = {"prompt": STORY, "temperature": 0, "max_tokens": 20, "logprobs": 2}
    whole = fake.post("/v1/completions", asked).document
    native = fake.post("/generate", greedy(tokens=20, return_logprob=True)).document
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (native["text"], "length")
    assert whole["usage"]["completion_tokens"] == len(choice["logprobs"]["tokens"]) == 20
    assert choice["logprobs"]["token_logprobs"] == [row[0] for row in native["meta_info"]["output_token_logprobs"]]
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    *parts, usage, done = fake.post("/v1/completions", {**asked, **stream}).events
    assert "".join(part["choices"][0]["text"] for part in parts) == choice["text"]
    assert sum(len(part["choices"][0]["logprobs"]["tokens"]) for part in parts) == 20
    assert (usage["choices"], usage["usage"], done) == ([], whole["usage"], "[DONE]")


def test_chats_answer_call_tools_and_keep_to_schemas(drafting: Driver) -> None:
    def chat(**more: Any) -> Any:
        return drafting.post("/v1/chat/completions", {"messages": CHAT, "temperature": 0, **more})

    plain = chat(logprobs=True, top_logprobs=2).document["choices"][0]
    assert plain["message"]["content"].startswith("It is ")
    assert (plain["finish_reason"], plain["matched_stop"]) == ("stop", 256)
    assert {"token", "bytes", "logprob", "top_logprobs"} == plain["logprobs"]["content"][0].keys()
    (call,) = chat(tools=[TOOL]).document["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Rome"})
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    assert json.loads(chat(response_format=shape).document["choices"][0]["message"]["content"]).keys() == {
        "city",
        "country",
    }
    first, *parts, last, done = chat(stream=True).events
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == plain["message"]["content"]
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    deltas = [part["choices"][0]["delta"] for part in chat(stream=True, tools=[TOOL]).events[:-1]]
    pieces = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
    assert json.loads("".join(piece["arguments"] for piece in pieces)) == {"city": "Rome"}


def test_a_schema_is_kept_to(fake: Driver) -> None:
    schema = json.dumps(SCHEMA)
    answer = fake.post("/generate", greedy("The capital of Italy as JSON:", 96, sampling={"json_schema": schema}))
    assert json.loads(answer.document["text"]) == {"city": "Rome", "country": "Italy"}


def test_a_client_that_goes_away_frees_its_slot_and_so_does_an_abort() -> None:
    with Driver(argv=["--max-running-requests", "1"]) as fake:
        fake.leave("/generate", greedy(tokens=4000, sampling={"ignore_eos": True}), after_s=0.02)
        assert fake.post("/generate", greedy()).status == 200
        rid = {**greedy(tokens=4000, sampling={"ignore_eos": True}), "rid": "mine"}
        first, _ = fake.at_once([("POST", "/generate", rid), ("POST", "/abort_request", {"rid": "mine"})])
        assert first.document["meta_info"]["finish_reason"]["type"] == "abort"
        assert fake.get("/v1/loads").document["loads"][0]["num_running_reqs"] == 0


@pytest.mark.parametrize("other", ["", "min", "somebody"])
def test_an_abort_ends_nobody_else(fake: Driver, other: str) -> None:
    mine = {**greedy(), "rid": "mine"}
    first, _ = fake.at_once([("POST", "/generate", mine), ("POST", "/abort_request", {"rid": other})])
    assert first.document["meta_info"]["finish_reason"]["type"] == "length"


def test_drafts_stop_above_the_threshold_and_go_on_below() -> None:
    argv = ["--speculative-algorithm", "EAGLE", "--speculative-disable-batch-threshold", "2"]
    with Driver(argv=argv) as fake:
        assert fake.get("/server_info").document["speculative_disable_batch_threshold"] == 2
        alone = fake.post("/generate", greedy(tokens=100)).document
        many = [greedy(tokens=100), *[greedy(tokens=20)] * 2]
        together = [one.document for one in fake.together("/generate", many)]
        assert together[0]["output_ids"] == alone["output_ids"]
        drafts = [one["meta_info"]["spec_num_correct_drafts"] for one in (alone, *together)]
        assert drafts[2:] == [0, 0]
        assert drafts[0] // 2 < drafts[1] < drafts[0]


TEXTS = st.text(st.characters(codec="ascii"), max_size=60)


@given(TEXTS, st.sampled_from(SPECIALS), TEXTS)
def test_text_survives_its_tokens(before: str, special: str, after: str) -> None:
    ids = encode(before + special + after)
    assert decode(ids, specials=True) == before + special + after
    assert decode(ids) == before + after


@settings(deadline=None)  # the first one reads the corpus
@given(TEXTS)
def test_a_distribution_is_one_and_its_ranking_is_its_scores(prefix: str) -> None:
    one = language.distribution(as_symbols(encode(prefix)))
    ranked = one.top(264)
    assert sorted(token for _, token in ranked) == list(range(264))
    assert [value for value, _ in ranked] == sorted((value for value, _ in ranked), reverse=True)
    assert all(math.isclose(one.logprob(token), value) for value, token in ranked)
    assert math.isclose(sum(math.exp(value) for value, _ in ranked), 1.0, abs_tol=1e-9)
    assert one == language.distribution(as_symbols(encode(prefix)))


def test_a_fault_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'nan-logits'"):
        chosen({"FAKE_FAULT": "nan-logit"}, speculative=False)
    spared = {"FAKE_FAULT": "empty", "FAKE_SPARE_CONTROL": "1"}
    assert "empty" not in chosen(spared, speculative=False)
    assert "empty" in chosen(spared, speculative=True)
    assert all(FAULTS.values())
