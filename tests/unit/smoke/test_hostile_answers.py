"""Whatever a server answers, and whatever a transcript lacks, a judge says something: nothing is ever raised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import cycle, islice
from threading import Lock
from typing import Any

import pytest
from fake_serving import SMOKE
from fake_sglang.driving import Driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.smoke.conftest import make_profile

from sglforge.config.model import Speculation
from sglforge.smoke import judging
from sglforge.smoke.client import Answer, Request
from sglforge.smoke.equality import Pair
from sglforge.smoke.equality import equality as equal
from sglforge.smoke.generation import Generation
from sglforge.smoke.interview import Interview
from sglforge.smoke.probes.catalog import PROBES
from sglforge.smoke.probes.chat import CHAT, TOOL_CALL
from sglforge.smoke.probes.load import ABORT
from sglforge.smoke.probes.model import Probe, missing
from sglforge.smoke.subject import Subject, of_profile
from sglforge.smoke.transcript import Exchange, Observed

DRAFTS = Speculation(algorithm="EAGLE", draft_model="nobody/draft", disable_above_batch=2)
PROFILE = make_profile(speculation=DRAFTS).model_copy(update={"flags": {"max-running-requests": 4}})
NATIVE = of_profile(PROFILE, "cpu-logic")
SUBJECTS: Mapping[str, Subject] = {
    "cpu": NATIVE,
    "gpu": replace(NATIVE, scope="gpu"),
    "openai": Subject(scope="unknown", own=False, api="openai", model="fake", expectations=SMOKE),
}
ASKED = [
    (name, probe)
    for name, subject in SUBJECTS.items()
    for probe in PROBES
    if missing(subject, probe.needs) is None and probe.requests(subject)
    if (name, probe.name) != ("gpu", "logprobs-finite")  # 64 at once, and judged as the eight of the CPU are
]
HOSTILE: tuple[object, ...] = (
    None, True, 0, -1, 10**300, 10**400, float("nan"), float("inf"), 0.5, "", "x", "\ud800", "[" * 4000, [], [[]],
    [None], [[None]], [[None, None, None]], [["x", "y"]], {}, {"x": None}, [{}],
)  # fmt: skip
GONE = object()
VALUES_AT_EACH = 2


@dataclass(kw_only=True)
class InProcess:
    """The fake server without a process, one request at a time."""

    driver: Driver
    ready_log: str = ""
    lock: Lock = field(default_factory=Lock)

    def ask(self, request: Request, *, timeout_s: float) -> Answer:
        with self.lock:
            path, body = request.path, dict(request.body or {})
            asked = self.driver.get(path) if request.body is None else self.driver.post(path, body)
        if request.stream:
            return Answer(
                status=asked.status, seconds=0.1, response=[{"seconds": 0.1, "data": e} for e in asked.events]
            )
        try:
            response = asked.document
        except ValueError:
            response = asked.content.decode()
        return Answer(status=asked.status, seconds=0.1, response=response)

    def health(self) -> str:
        return "200"

    def ended(self) -> str | None:
        return None

    def logged(self) -> str:
        return ""


@cache
def sound(name: str, probe_name: str) -> Observed:
    """Return what a probe observes on the fake server, whose texts part where a GPU is meant."""
    subject, probe = SUBJECTS[name], next(probe for probe in PROBES if probe.name == probe_name)
    argv = ["--speculative-algorithm", "EAGLE", "--tool-call-parser", "any", "--context-length", "600"]
    argv += ["--openai-only"] if subject.api == "openai" else []
    subject = replace(subject, longest_prompt=595)
    with Driver(argv=argv) as driver:
        interview = Interview(subject=subject, role="profile", server=InProcess(driver=driver), timeout_s=10.0)
        control = interview.ask(probe, probe.control_requests(subject)) if subject.controlled else ()
        return interview.observe(probe, tuple(replace(exchange, server="control") for exchange in control))


def judged(probe: Probe, observed: Observed) -> None:
    """Judge, as on the spot and from a transcript, and ask what the probe would ask next."""
    found = judging.result(probe, observed, 1.0)
    assert found.verdict in {"pass", "fail", "inconclusive", "skipped"}
    assert found.message
    assert json.dumps(found.to_json())
    for wave in probe.follow_up(observed):
        assert all(isinstance(request, Request) for request in wave)


def answered(exchange: Exchange, response: object, status: Any = 200) -> Exchange:
    return replace(exchange, answer=Answer(status=status, seconds=0.1, response=response))


def with_one(observed: Observed, place: int, exchange: Exchange) -> Observed:
    return replace(observed, exchanges=(*observed.exchanges[:place], exchange, *observed.exchanges[place + 1 :]))


def places(value: object, depth: int = 0) -> Iterator[tuple[object, ...]]:
    """Yield the paths into a document; of long lists the first and the last entry."""
    yield ()
    if depth > 4:
        return
    if isinstance(value, dict):
        for key, member in value.items():
            yield from ((key, *path) for path in places(member, depth + 1))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} & set(range(len(value)))):
            yield from ((index, *path) for path in places(value[index], depth + 1))


def changed(value: Any, path: tuple[object, ...], new: object) -> Any:
    """Return a document with another value at a path, or without it."""
    if not path:
        return None if new is GONE else new
    copy = dict(value) if isinstance(value, dict) else list(value)
    first: Any = path[0]
    if len(path) == 1 and new is GONE:
        del copy[first]
    else:
        copy[first] = changed(value[first], path[1:], new)
    return copy


def some_of(count: int) -> list[int]:
    """Return all places, of many the first and last ones."""
    return list(range(count)) if count < 12 else [*range(6), *range(count - 6, count)]


@pytest.fixture(autouse=True)
def short_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.0)


each_probe = pytest.mark.parametrize(("name", "probe"), ASKED, ids=[f"{name}-{probe.name}" for name, probe in ASKED])


@each_probe
def test_the_sound_server_is_what_the_others_are_compared_with(name: str, probe: Probe) -> None:
    observed = sound(name, probe.name)
    result = judging.result(probe, observed, 1.0)
    # one request at a time is no batch, so no draft stops; nobody looks at the process here
    allowed = {"pass"} | {"threshold-wave": {"fail"}, "memory-steady": {"inconclusive"}}.get(probe.name, set())
    assert result.verdict in allowed, result.message


@each_probe
def test_no_single_change_of_an_answer_raises(name: str, probe: Probe) -> None:
    observed = sound(name, probe.name)
    seen: set[tuple[str, ...]] = set()
    values = cycle(HOSTILE)
    for place, exchange in enumerate(observed.exchanges):
        kind = (exchange.request.path, exchange.request.name.rstrip("0123456789"))
        if kind in seen and place + 1 < len(observed.exchanges):
            continue
        seen.add(kind)
        for path in places(exchange.answer.response):
            # a few for each place; places enough that each of them is tried
            for new in (GONE, *islice(values, VALUES_AT_EACH)):
                if path or new is not GONE:
                    other = answered(exchange, changed(exchange.answer.response, path, new))
                    judged(probe, with_one(observed, place, other))


@each_probe
@pytest.mark.parametrize("ending", [None, "timeout", "disconnected", 500, 404, 200])
def test_a_conversation_that_ends_anywhere_is_judged(name: str, probe: Probe, ending: object) -> None:
    observed = sound(name, probe.name)
    for count in some_of(len(observed.exchanges) + 1):
        kept = observed.exchanges[:count]
        if ending is not None and kept:
            kept = (*kept[:-1], answered(kept[-1], None, ending))
        judged(probe, replace(observed, exchanges=kept, control=observed.control[:count]))
        judged(probe, replace(observed, exchanges=kept, health="200", ended="killed by SIGKILL"))


@each_probe
def test_an_answer_that_is_missing_in_the_middle_is_missed(name: str, probe: Probe) -> None:
    observed = sound(name, probe.name)
    for place in some_of(len(observed.exchanges)):
        kept = observed.exchanges[:place] + observed.exchanges[place + 1 :]
        judged(probe, replace(observed, exchanges=kept))
        judged(probe, replace(observed, exchanges=kept[::-1]))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_answers_at_all_raise(name: str, data: st.DataObject) -> None:
    probe = data.draw(st.sampled_from([probe for other, probe in ASKED if other == name]))
    observed = sound(name, probe.name)
    exchanges = list(observed.exchanges)
    for place in data.draw(st.sets(st.integers(0, len(exchanges) - 1), max_size=6)):
        paths = list(places(exchanges[place].answer.response))
        new = changed(exchanges[place].answer.response, data.draw(st.sampled_from(paths)), data.draw(VALUES))
        exchanges[place] = answered(exchanges[place], new, data.draw(st.sampled_from([200, 200, 400, 500, "timeout"])))
    judged(probe, replace(observed, exchanges=tuple(exchanges)))


TIE = Pair(
    name="together-1",
    prompt="x",
    got=Generation(
        text="b", output_ids=(2,), completion_tokens=1, finish="length", correct_drafts=None, verify_steps=None
    ),
    expected=Generation(
        text="a", output_ids=(1,), completion_tokens=1, finish="length", correct_drafts=None, verify_steps=None
    ),
)


@pytest.mark.parametrize(
    ("gaps", "equality"),
    [
        ([0.03, 0.03, -0.03, -0.03], "tie"),
        ([0.2, 0.2, 0.2, 0.2], "tie"),  # a rounding step of bfloat16
        ([0.3, 0.3, 0.3, 0.3], "other"),
        ([0.6, 0.6, -0.2, -0.3], "tie"),
        ([6.0, 6.0, -3.0, -4.0], "other"),  # company spoils the numbers: it must not excuse itself
        ([-6.0, -6.0, -6.0, -6.0], "other"),
        ([None, 0.1, 0.1, 0.1], "open"),
        ([0.1, None, None, None], "open"),
        ([10**400, 0.1, 0.1, 0.1], "open"),
    ],
)
def test_the_gap_is_that_of_the_request_alone(gaps: list[Any], equality: str) -> None:
    scores = [{"meta_info": {"output_token_ids_logprobs": [[[gap, 1, None], [0.0, 2, None]]]}} for gap in gaps]
    exchanges = tuple(
        Exchange(
            probe="parallel",
            server="profile",
            request=Request(name=f"score-{number}:together-1", path="/generate", body={}),
            answer=Answer(status=200, seconds=0.1, response=score),
        )
        for number, score in enumerate(scores)
    )
    assert equal(Observed(subject=SUBJECTS["gpu"], exchanges=exchanges), TIE) == equality
    assert equal(Observed(subject=SUBJECTS["cpu"], exchanges=exchanges), TIE) == "other"


def slower(observed: Observed, **seconds: float) -> Observed:
    """Return it with other times of the requests whose names begin like this."""
    return replace(
        observed,
        exchanges=tuple(
            replace(one, answer=replace(one.answer, seconds=seconds.get(one.request.name.partition("-")[0], 0.1)))
            for one in observed.exchanges
        ),
    )


def test_waiting_once_after_an_abort_is_looked_at_again() -> None:
    observed = sound("cpu", "abort")
    assert ABORT.follow_up(observed) == ()
    once = slower(observed, afterwards=9.0)
    left, again = ABORT.follow_up(once)
    assert all(request.stream for request in left)
    answers = {one.request.name: one.answer for one in observed.exchanges}
    for seconds, verdict in ((0.1, "pass"), (9.0, "fail")):
        more = tuple(
            Exchange(
                probe="abort",
                server="profile",
                request=request,
                answer=replace(answers[request.name.replace("again", "afterwards")], seconds=seconds),
            )
            for request in again
        )
        both = replace(once, exchanges=(*once.exchanges, *more))
        assert judging.result(ABORT, both, 1.0).verdict == verdict
        assert ABORT.follow_up(both) == ()


@pytest.mark.parametrize("probe", [CHAT, TOOL_CALL], ids=["chat", "tool-call"])
def test_a_server_without_a_chat_has_nothing_to_judge(probe: Probe) -> None:
    observed = sound("cpu", probe.name)
    refused = {"message": "this model has no chat template"}
    for status, verdict in ((404, "skipped"), (400, "skipped"), (500, "fail")):
        none = replace(observed, exchanges=tuple(answered(one, refused, status) for one in observed.exchanges))
        assert judging.result(probe, none, 1.0).verdict == verdict


@pytest.mark.parametrize("value", [*HOSTILE, 10**9])
def test_what_a_server_says_of_itself_is_not_believed_blindly(value: object) -> None:
    said = dict.fromkeys(("max_running_requests", "max_req_input_len", "dtype", "disable_radix_cache"), value)
    subject = replace(NATIVE, max_running=None).informed(said)
    assert subject.max_running is subject.longest_prompt is None
    for probe in PROBES:
        assert all(wave for wave in probe.requests(subject))
