"""The judges, on answers in the form that SGLang 0.5.23 gives them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sglforge.config.model import FactProbe, Profile, SmokeExpectations, Speculation, ToolProbe
from sglforge.smoke import attached
from sglforge.smoke.client import Answer, Request, Status
from sglforge.smoke.generation import generation
from sglforge.smoke.probes.catalog import PROBES, select
from sglforge.smoke.probes.chat import CHAT
from sglforge.smoke.probes.lifecycle import ALIVE_AFTER, STARTED, STOPS_CLEAN
from sglforge.smoke.probes.load import PARALLEL
from sglforge.smoke.probes.logits import LOGPROBS_FINITE
from sglforge.smoke.probes.long import DECODE_LONG
from sglforge.smoke.probes.model import Judgement, Need, Probe, judge, missing
from sglforge.smoke.probes.quality import DEGENERATE
from sglforge.smoke.probes.speculation import SPEC_GAIN, SPEC_PARITY
from sglforge.smoke.probes.text import DECODE_SINGLE, FACTS, GREEDY_REPEAT, JSON_SCHEMA
from sglforge.smoke.probes.threshold import THRESHOLD_WAVE
from sglforge.smoke.scores import CANDIDATES
from sglforge.smoke.server import Stopped
from sglforge.smoke.subject import Subject, of_profile
from sglforge.smoke.transcript import Exchange, Observed
from sglforge.smoke.verdict import ProbeResult, Scope, overall

PROFILE = Profile(
    name="toy",
    description="A toy.",
    target="cpu",
    model="somebody/something",
    speculation=Speculation(algorithm="EAGLE", draft_model="somebody/draft"),
    smoke=SmokeExpectations(
        facts=[FactProbe(prompt="The capital of France is", contains="Paris")],
        tool=ToolProbe(prompt="Weather?", name="weather", description="Tell it.", parameters="{}", contains="Paris"),
        long_prompt="Once",
        json_prompt="JSON:",
        json_schema='{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
    ),
)
CPU = of_profile(PROFILE, "cpu-logic")


def sglang(text: str, *, finish: str = "length", **meta: object) -> dict[str, Any]:
    """Return what SGLang 0.5.23 answers to /generate, one token a letter."""
    return {
        "text": text,
        "output_ids": [ord(letter) for letter in text],
        "meta_info": {
            "id": "138d0de054a6",
            "finish_reason": {"type": finish, "length": len(text)},
            "prompt_tokens": 6,
            "completion_tokens": len(text),
            "cached_tokens": 0,
            "e2e_latency": 0.2,
            **meta,
        },
    }


def answers(probe: Probe, response: object, status: Status = 200, subject: Subject = CPU) -> tuple[Exchange, ...]:
    """Return the same answer to every request of a probe."""
    return tuple(
        Exchange(
            probe=probe.name,
            server="profile",
            request=request,
            answer=Answer(status=status, seconds=1.0, response=response),
        )
        for wave in probe.requests(subject)
        for request in wave
    )


def judged(probe: Probe, response: object, status: Status = 200, **observed: Any) -> Judgement:
    return judge(probe, Observed(subject=CPU, exchanges=answers(probe, response, status), **observed))


def test_every_probe_says_what_it_proves_and_has_a_name_of_its_own() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    assert len({probe.proves for probe in PROBES}) == len(PROBES)
    assert select(None) == PROBES
    assert select(["facts", "started"]) == (STARTED, FACTS)


@pytest.mark.parametrize("probe", [p for p in PROBES if p.requests(CPU) and not p.judges_silence], ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("status", "ended", "code", "words"),
    [
        ("timeout", None, "decode-hang", ["timeout", "health is 200"]),
        ("disconnected", "killed by SIGKILL", "server-died", ["SIGKILL"]),
        ("disconnected", None, "request-failed", ["disconnected"]),
        (500, None, "request-failed", ["500", "out of pages"]),
        (200, None, "request-failed", ["200"]),
    ],
)
def test_a_missing_answer_fails_its_probe(
    probe: Probe, status: Status, ended: str | None, code: str, words: list[str]
) -> None:
    judgement = judged(probe, {"error": "out of pages"}, status, ended=ended, health="200")
    assert (judgement.verdict, judgement.code) == ("fail", code)
    assert all(word in judgement.message for word in words)


def test_a_dropped_request_names_what_was_raised_meanwhile() -> None:
    """SGLang takes a second or more to end after its scheduler has died."""
    ready = "Traceback (most recent call last):\n  File x\nValueError: before\n"
    log = f"{ready}Traceback (most recent call last):\n  File y\nAttributeError: 'W' object has no attribute 'a'\n"
    judgement = judged(DECODE_SINGLE, "closed", "disconnected", ready_log=ready, log=log)
    assert (judgement.verdict, judgement.code) == ("fail", "server-died")
    assert "AttributeError: 'W' object has no attribute 'a'" in judgement.message
    assert judged(DECODE_SINGLE, "closed", "disconnected", ready_log=ready, log=ready).code == "request-failed"


@pytest.mark.parametrize(
    ("meta", "verdict", "words"),
    [
        ({"spec_verify_ct": 80, "spec_num_correct_drafts": 160}, "pass", ["160", "3.00"]),
        ({"spec_verify_ct": 212, "spec_num_correct_drafts": 28}, "fail", ["draft", "1.13"]),
        ({"spec_verify_ct": 240, "spec_num_correct_drafts": 0, "spec_accept_length": 1.02}, "fail", ["draft", "1.0"]),
        ({"spec_verify_ct": 80}, "pass", ["160"]),  # releases that count no drafts
        ({"spec_verify_ct": 235}, "fail", ["draft"]),
        ({}, "fail", ["without the profile's draft"]),
        ({"spec_verify_ct": 0, "spec_num_correct_drafts": 0}, "fail", ["draft"]),
    ],
)
def test_a_draft_must_be_worth_something(meta: dict[str, Any], verdict: str, words: list[str]) -> None:
    judgement = judged(SPEC_GAIN, sglang("x" * 240, **meta))
    assert judgement.verdict == verdict
    assert judgement.code == ("spec-no-gain" if verdict == "fail" else "")
    assert all(word in judgement.message for word in words)


def test_a_short_text_says_nothing_about_a_draft() -> None:
    judgement = judged(SPEC_GAIN, sglang("x" * 199, finish="stop", spec_verify_ct=60, spec_num_correct_drafts=139))
    assert judgement.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("text", "finish", "verdict"),
    [
        ('{"a": 1}', "stop", "pass"),
        ('{"a": "one"}', "stop", "fail"),
        ("{}", "stop", "fail"),
        ('{"a": 1', "stop", "fail"),
        ('{"a":           ', "length", "inconclusive"),
        ("Paris is the capital", "length", "fail"),
    ],
)
def test_json_is_judged_by_its_schema(text: str, finish: str, verdict: str) -> None:
    assert judged(JSON_SCHEMA, sglang(text, finish=finish)).verdict == verdict


def test_a_schema_that_nobody_checks_is_no_pass() -> None:
    assert PROFILE.smoke
    smoke = PROFILE.smoke.model_copy(update={"json_schema": '{"anyOf": [{"type": "null"}]}'})
    subject = of_profile(PROFILE.model_copy(update={"smoke": smoke}), "cpu-logic")
    judgement = judge(
        JSON_SCHEMA, Observed(subject=subject, exchanges=answers(JSON_SCHEMA, sglang("{}", finish="stop")))
    )
    assert judgement.verdict == "inconclusive"
    assert "anyOf" in judgement.message


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (sglang("x" * 16), ""),
        (sglang("x" * 9, finish="stop"), ""),
        (sglang("x" * 15), "tokens-lost"),
        (sglang("x" * 16) | {"output_ids": [1] * 12}, "tokens-lost"),
        (sglang(""), "empty-completion"),
        (sglang("x" * 16) | {"text": ""}, "empty-completion"),
    ],
)
def test_a_completion_has_the_tokens_that_were_asked_for(response: object, code: str) -> None:
    assert judged(DECODE_SINGLE, response).code == code


def test_a_known_answer_that_is_missing_is_quoted() -> None:
    judgement = judged(FACTS, sglang(" Lyons."))
    assert judgement.code == "fact-wrong"
    assert all(word in judgement.message for word in ("Lyons", "Paris", "capital of France"))
    assert judged(FACTS, sglang(" Paris.")).verdict == "pass"


def changed(exchanges: tuple[Exchange, ...], name: str, response: object) -> tuple[Exchange, ...]:
    """Return the exchanges with another answer to one request."""
    return tuple(
        dataclasses.replace(e, answer=dataclasses.replace(e.answer, response=response)) if e.request.name == name else e
        for e in exchanges
    )


@pytest.mark.parametrize(("scope", "verdict"), [("cpu-logic", "fail"), ("gpu", "inconclusive")])
@pytest.mark.parametrize(
    ("probe", "name", "code"),
    [
        (GREEDY_REPEAT, "repeat-2", "greedy-not-repeatable"),
        (SPEC_PARITY, "long", "spec-changes-text"),
        (PARALLEL, "together-3", "garbage-under-concurrency"),
    ],
)
def test_another_text_fails_on_a_cpu_and_is_open_on_a_gpu(
    probe: Probe, name: str, code: str, scope: Scope, verdict: str
) -> None:
    subject = dataclasses.replace(CPU, scope=scope)
    same = answers(probe, sglang("abc"))
    sound = Observed(subject=subject, exchanges=same, control=same)
    assert judge(probe, sound).verdict == "pass"
    judgement = judge(probe, dataclasses.replace(sound, exchanges=changed(same, name, sglang("abx"))))
    assert judgement.verdict == verdict
    assert judgement.code == (code if verdict == "fail" else "")
    assert "token 2 is 120 instead of 99" in judgement.message


def test_a_text_that_differs_alone_too_is_speculations_doing() -> None:
    same = answers(PARALLEL, sglang("abc"))
    both = changed(changed(same, "together-3", sglang("abx")), "alone-3", sglang("abx"))
    judgement = judge(PARALLEL, Observed(subject=CPU, exchanges=both, control=same))
    assert judgement.code == "spec-changes-text"


@pytest.mark.parametrize("probe", [SPEC_PARITY, PARALLEL])
def test_without_the_control_servers_texts_nothing_is_compared(probe: Probe) -> None:
    assert judged(probe, sglang("abc")).verdict == "inconclusive"


def test_a_server_that_is_silent_afterwards_died_after_a_success() -> None:
    judgement = judged(ALIVE_AFTER, None, "disconnected", ended="killed by SIGKILL", health="disconnected")
    assert judgement.code == "server-died-after-success"
    assert "after" in judgement.message
    assert "SIGKILL" in judgement.message


def test_a_traceback_is_charged_to_the_time_it_came() -> None:
    trace = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    early = Observed(subject=CPU, ready_log=f"up\n{trace}", log=f"up\n{trace}more\n")
    assert judge(STARTED, early).code == "swallowed-traceback"
    late = dataclasses.replace(
        early, ready_log="up\n", log=f"up\n{trace}", exchanges=answers(ALIVE_AFTER, sglang("abcd"))
    )
    assert judge(STARTED, late).verdict == "pass"
    assert judge(ALIVE_AFTER, late).code == "swallowed-traceback"
    assert judge(ALIVE_AFTER, dataclasses.replace(late, log="up\nmore\n")).verdict == "pass"


CLEAN = Stopped(seconds=1.0, status="exit status 0", ended_before=False, forced=False, orphans=(), port_open=False)


@pytest.mark.parametrize(
    ("change", "verdict", "word"),
    [
        ({}, "pass", "SIGTERM was enough"),
        ({"forced": True}, "fail", "killed"),
        ({"orphans": ("pid 7 (sleep)",)}, "fail", "pid 7 (sleep)"),
        ({"port_open": True}, "fail", "port"),
        ({"ended_before": True}, "skipped", "by itself"),
        ({"ended_before": True, "orphans": ("pid 7 (sleep)",)}, "fail", "pid 7"),
    ],
)
def test_stopping_leaves_nothing(change: dict[str, Any], verdict: str, word: str) -> None:
    stops = (("control", CLEAN), ("profile", dataclasses.replace(CLEAN, **change)))
    judgement = judge(STOPS_CLEAN, Observed(subject=CPU, stops=stops))
    assert judgement.verdict == verdict
    assert word in judgement.message


@pytest.mark.parametrize(
    "response", [None, "text", {}, {"text": "x"}, {"text": 1, "meta_info": {}}, {"text": "x", "meta_info": {}}, []]
)
def test_what_is_not_a_continuation_is_none(response: object) -> None:
    assert generation(response) is None


def test_texts_are_compared_where_there_are_no_tokens() -> None:
    bare = {"text": "abc", "meta_info": {"completion_tokens": 2, "finish_reason": None}}
    one, other = generation(bare), generation(bare | {"text": "abx"})
    assert one
    assert other
    assert one.output_ids is None
    assert one.same_as(one)
    assert not one.same_as(other)
    assert one.first_difference(other) == "character 2 is 'c' instead of 'x'"
    assert one.finish == "unknown"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["pass", "skipped"], "pass"),
        (["pass", "inconclusive", "skipped"], "inconclusive"),
        (["pass", "inconclusive", "fail"], "fail"),
        (["skipped"], "inconclusive"),
        ([], "inconclusive"),
    ],
)
def test_the_whole_is_as_bad_as_its_worst_part(verdicts: list[Any], expected: str) -> None:
    probes = [
        ProbeResult(name="x", proves="x", verdict=verdict, message="", seconds=0.0, scope="gpu") for verdict in verdicts
    ]
    assert overall(probes) == expected


def test_requests_know_their_method() -> None:
    assert Request(name="x", path="/x").method == "GET"
    assert Request(name="x", path="/x", body={}).method == "POST"


NUMBERS: list[float | None] = [-0.5, *(-1.0 - number for number in range(CANDIDATES - 1))]


def with_logprobs(text: str, *, broken: dict[int, list[float | None]] | None = None, **changes: Any) -> dict[str, Any]:
    """Return an answer with log-probabilities; ``broken`` has other ones for some tokens."""
    steps = [(ord(letter), (broken or {}).get(place, NUMBERS)) for place, letter in enumerate(text)]
    logprobs: dict[str, Any] = {
        "output_token_logprobs": [[values[0], token, None] for token, values in steps],
        "output_top_logprobs": [
            [[value, token + number, None] for number, value in enumerate(values)] for token, values in steps
        ],
    }
    return sglang(text, **{**logprobs, **changes})


TEXT = "The lighthouse on the northern cape was built by two brothers."


@pytest.mark.parametrize(
    ("response", "verdict", "code", "said"),
    [
        (with_logprobs(TEXT), "pass", "", "every log-probability is finite"),
        (with_logprobs(TEXT, broken={40: [None] * CANDIDATES}), "fail", "nan-logits", "token 40 of request alone"),
        (with_logprobs(TEXT, broken={3: [float("nan")] * CANDIDATES}), "fail", "nan-logits", "no finite"),
        (with_logprobs(TEXT, broken={3: [float("-inf")] * CANDIDATES}), "fail", "nan-logits", "no finite"),
        (with_logprobs(TEXT, broken={9: [-5.5] * CANDIDATES}), "fail", "nan-logits", "as likely as every other"),
        # two or three candidates may be as likely as the token: bfloat16 has few numbers
        (with_logprobs(TEXT, broken={9: [*[-0.5] * 3, *NUMBERS[3:]]}), "pass", "", ""),
        # a server that offers fewer candidates than were asked for has a small vocabulary
        (with_logprobs(TEXT, broken={9: [-0.5] * 4}), "pass", "", ""),
        (with_logprobs("Once " + "!" * 40), "fail", "degenerate-output", "repeated 40 times"),
        (with_logprobs("Once upon a time" + "!" * 3), "pass", "", ""),
        (with_logprobs(TEXT + "!" * 5), "pass", "", ""),
        (with_logprobs(TEXT, output_top_logprobs=[]), "inconclusive", "", "0 of 62 tokens"),
        (with_logprobs(TEXT, output_token_logprobs="none"), "inconclusive", "", "0 of 62 tokens"),
        (with_logprobs(TEXT, output_token_logprobs=[None] * 62), "fail", "nan-logits", "no finite"),
        (sglang(TEXT), "inconclusive", "", "0 of 62 tokens of request alone"),
    ],
)
def test_logits(response: dict[str, Any], verdict: str, code: str, said: str) -> None:
    judgement = judged(LOGPROBS_FINITE, response)
    assert (judgement.verdict, judgement.code) == (verdict, code)
    assert said in judgement.message


def test_logits_that_only_company_breaks_are_said_to_be_so() -> None:
    alone, *together = answers(LOGPROBS_FINITE, with_logprobs(TEXT, broken={5: [None] * CANDIDATES}))
    sound = dataclasses.replace(alone, answer=Answer(status=200, seconds=1.0, response=with_logprobs(TEXT)))
    judgement = judge(LOGPROBS_FINITE, Observed(subject=CPU, exchanges=(sound, *together)))
    assert judgement.code == "nan-logits"
    assert "8 of 9 requests are hit; the request that ran alone is not hit: it takes company" in judgement.message
    assert judgement.evidence["hit"] == {f"together-{number}": 5 for number in range(8)}


def test_the_control_server_speaks_for_logits_that_speculation_does_not_return() -> None:
    own = answers(LOGPROBS_FINITE, sglang(TEXT))
    for response, verdict in ((with_logprobs(TEXT), "pass"), (with_logprobs(TEXT, broken={2: [None]}), "fail")):
        control = tuple(
            dataclasses.replace(exchange, server="control") for exchange in answers(LOGPROBS_FINITE, response)
        )
        judgement = judge(LOGPROBS_FINITE, Observed(subject=CPU, exchanges=own, control=control))
        assert judgement.verdict == verdict
        assert "on the control server" in judgement.message


def test_every_probe_of_logits_asks_for_them_and_a_gpu_is_asked_more() -> None:
    counts: dict[Scope, int] = {"cpu-logic": 8, "gpu": 64}
    for scope, count in counts.items():
        subject = of_profile(PROFILE, scope)
        (alone,), together = LOGPROBS_FINITE.requests(subject)
        assert len(together) == count
        for request in (alone, *together):
            assert request.body
            assert (request.body["return_logprob"], request.body["top_logprobs_num"]) == (True, CANDIDATES)
        lengths = {str(request.body["sampling_params"]) for request in together if request.body}
        assert len(lengths) > 4


def test_a_threshold_that_cannot_be_crossed_is_not_asked_for() -> None:
    served = dataclasses.replace(CPU, threshold=4, max_running=4)
    assert missing(served, THRESHOLD_WAVE.needs) is Need.CROSSING
    for limit in (5, None):
        assert missing(dataclasses.replace(served, max_running=limit), THRESHOLD_WAVE.needs) is None


@pytest.mark.parametrize(
    ("above_s", "asked", "code", "words"),
    [
        ([1.1], 1, "", "no cliff ("),
        ([60.0, 60.0], 2, "spec-threshold-regression", "60.0 times slower"),
        # requests that arrive one after the other are no batch: one quick round proves nothing
        ([60.0, 1.1, 60.0], 3, "spec-threshold-regression", "60.0 times slower"),
        ([60.0, 1.1, 1.2], 3, "", "no cliff, but once of 3 times (3 in 1.0 s, 4 in 1.0 s, 5 in 1.1 s at once)"),
    ],
)
def test_a_cliff_is_one_that_is_there_twice(above_s: list[float], asked: int, code: str, words: str) -> None:
    judgement, sent = across_the_threshold(above_s, [36])
    assert (judgement.code, sent) == (code, asked)
    assert words in judgement.message


@pytest.mark.parametrize(
    ("long", "verdict", "words"),
    [
        ([48, 36], "pass", "36"),
        ([48, 47, 5], "fail", "always alone it has 48"),
        ([48, 47, 44], "inconclusive", "never in a large batch"),
    ],
)
def test_a_long_request_that_was_alone_all_the_time_shows_nothing(long: list[int], verdict: str, words: str) -> None:
    """On a busy machine requests that are sent together come one after the other."""
    judgement, _ = across_the_threshold([1.1], long)
    assert judgement.verdict == verdict
    assert words in judgement.message


def across_the_threshold(above_s: list[float], long: list[int]) -> tuple[Judgement, int]:
    """Judge a server that answers waves above the threshold in so many seconds, round by round, and drafts so much.

    ``long`` are the right drafts of the long request in each large batch; alone it has 48. Returned is also how many
    rounds around the threshold were asked.
    """
    subject = dataclasses.replace(CPU, own=False, threshold=4, max_running=8)
    rounds, drafted = iter(above_s), iter(long)
    exchanges: list[Exchange] = []
    sent = 0
    waves = THRESHOLD_WAVE.requests(subject)
    while waves:
        for wave in waves:
            around = "-short" not in wave[0].name and "-long" not in wave[0].name
            sent += around and len(wave) == 5
            seconds = next(rounds) if around and len(wave) == 5 else 1.0
            for request in wave:
                drafts = 0 if "together" in request.name else 48
                drafts = next(drafted) if "together" in request.name and "-long" in request.name else drafts
                response = sglang("x" * 64, spec_num_correct_drafts=drafts, spec_verify_ct=64)
                answer = Answer(status=200, seconds=seconds, response=response)
                exchanges.append(Exchange(probe=THRESHOLD_WAVE.name, server="profile", request=request, answer=answer))
        waves = THRESHOLD_WAVE.follow_up(Observed(subject=subject, exchanges=tuple(exchanges)))
    return judge(THRESHOLD_WAVE, Observed(subject=subject, exchanges=tuple(exchanges))), sent


def openai_answers(probe: Probe, text: str, tokens: int) -> Judgement:
    subject = dataclasses.replace(CPU, api="openai", own=False, expectations=None, longest_prompt=None)
    response = {"choices": [{"text": text, "finish_reason": "stop"}], "usage": {"completion_tokens": tokens}}
    exchanges = list(answers(probe, response, subject=subject))
    more = probe.follow_up(Observed(subject=subject, exchanges=tuple(exchanges)))
    exchanges += [
        Exchange(
            probe=probe.name, server="profile", request=one, answer=Answer(status=200, seconds=1.0, response=response)
        )
        for wave in more
        for one in wave
    ]
    return judge(probe, Observed(subject=subject, exchanges=tuple(exchanges)))


@pytest.mark.parametrize("probe", [PARALLEL, DEGENERATE], ids=lambda probe: probe.name)
def test_one_text_for_all_prompts_fails_also_where_nothing_is_known_of_the_model(probe: Probe) -> None:
    judgement = openai_answers(probe, "a fixed text that fits nothing at all", 10)
    assert (judgement.verdict, judgement.code) == ("fail", "prompt-ignored")
    assert openai_answers(probe, "yes", 2).code == ""


def test_texts_of_a_few_tokens_are_too_short_to_be_judged() -> None:
    assert openai_answers(DEGENERATE, "yes", 2).verdict == "inconclusive"
    assert openai_answers(DECODE_LONG, "yes", 2).verdict == "inconclusive"
    assert openai_answers(DECODE_LONG, "a text of twelve tokens", 12).verdict == "pass"


def test_words_stand_for_tokens_where_an_engine_counts_none() -> None:
    choice = {"text": "one two three", "finish_reason": "length"}
    for response in ({"choices": [choice]}, {"choices": [choice], "usage": None}):
        one = generation(response)
        assert one is not None
        assert (one.completion_tokens, one.counted) == (3, False)
        assert judged(DECODE_SINGLE, response).verdict == "pass"
    assert generation({"choices": [choice], "usage": {"completion_tokens": -1}}) is None
    assert judged(DECODE_SINGLE, {"choices": [{"text": ""}]}).code == "empty-completion"


@pytest.mark.parametrize(("wanted", "expected"), [("second", "second"), ("other", "first"), (None, "first")])
def test_of_several_models_the_one_that_is_meant_is_asked(
    wanted: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"data": [{"no": "name"}, {"id": "first"}, {"id": "second"}]}

    def answer(_server: attached.Attached, request: Request, *, timeout_s: float) -> Answer:
        there = request.path == "/v1/models"
        return Answer(status=200 if there else 404, seconds=timeout_s, response=models if there else None)

    monkeypatch.setattr(attached.Attached, "ask", answer)
    subject, _ = attached.identify(attached.Attached(url="http://nowhere"), None, model=wanted)
    assert subject.model == expected


def test_a_model_that_only_thinks_under_either_name_says_something() -> None:
    for key in ("reasoning", "reasoning_content"):
        choice = {"message": {"content": None, key: "Let me see."}, "finish_reason": "length"}
        judgement = judged(CHAT, {"choices": [choice]})
        assert judgement.code != "empty-completion"
    assert judged(CHAT, {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}).code == (
        "empty-completion"
    )
