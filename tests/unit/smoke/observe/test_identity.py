"""What servers say of themselves, with the fields and values that SGLang 0.5.23 and 0.5.9 gave on a CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sglforge.errors import Severity
from sglforge.smoke.observe.identity import Comparison, Expected, compare, judge_identity, options

PYTHON = "/envs/0a1b/venv/bin/python"
ARGV = (
    *(PYTHON, "-P", "-m", "sglang.launch_server"),
    *("--model-path", "/models/tiny-llama", "--host", "127.0.0.1", "--port", "34255"),
    *("--device", "cpu", "--dtype", "float32", "--attention-backend", "intel_amx", "--mem-fraction-static", "0.7"),
    *("--max-running-requests", "8", "--disable-cuda-graph", "--random-seed", "7"),
    *("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3"),
)
STATE: Mapping[str, object] = {
    "model_path": "/models/tiny-llama",
    "host": "127.0.0.1",
    "port": 34255,
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "intel_amx",
    "prefill_attention_backend": None,
    "mem_fraction_static": 0.7,
    "max_running_requests": 8,
    "disable_cuda_graph": True,
    "random_seed": 7,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "dp_size": 1,
}
EXPECTED = Expected(version="0.5.23+cpu.t00b3cd5b.p7e95cd7a", python=PYTHON, argv=ARGV)


def info(scheduler: Mapping[str, object] | None = None, /, **server: object) -> dict[str, object]:
    """Return a server's document; changes are of its first process, or of its scheduler."""
    state = {**STATE, "effective_max_running_requests_per_dp": 8, **server, **(scheduler or {})}
    return {**STATE, "version": "0.5.23", "max_total_num_tokens": 4096, **server, "internal_states": [state]}


def compared(
    document: Mapping[str, object], *, argv: tuple[str, ...] = ARGV, version: str | None = EXPECTED.version
) -> Comparison:
    expected = Expected(version=version, python=PYTHON, argv=argv)
    comparison = compare(document, expected, command=" ".join(argv))
    assert TypeAdapter(Comparison).validate_python(json.loads(json.dumps(asdict(comparison)))) == comparison
    return comparison


def test_the_server_that_was_started_has_no_finding() -> None:
    comparison = compared(info())
    assert judge_identity(comparison) == ()
    assert comparison.unstated == ()
    assert not comparison.local_version_stated
    assert comparison.chosen["max_total_num_tokens"] == 4096


@pytest.mark.parametrize(
    ("says", "receipt", "right"),
    [
        ("0.5.23", "0.5.23+cpu.t1", True),
        ("0.5.23", "0.5.23", True),
        ("0.5.23+cpu.t1", "0.5.23+cpu.t1", True),
        ("0.5.23+cpu.t2", "0.5.23+cpu.t1", False),
        ("0.5.22", "0.5.23+cpu.t1", False),
        ("0.5.2", "0.5.23+cpu.t1", False),
        (None, "0.5.23", False),
        ("0.5.23", None, True),
    ],
)
def test_the_version_is_the_receipts(says: str | None, receipt: str | None, right: bool) -> None:
    codes = [finding.code for finding in judge_identity(compared(info(version=says), version=receipt))]
    assert codes == ([] if right else ["wrong-server"])


def test_another_model_is_another_server() -> None:
    wrong, differs = judge_identity(compared(info(model_path="/models/other")))
    assert wrong.code == "wrong-server"
    assert "/models/other" in wrong.message
    assert differs.code == "server-differs-from-script"


def test_a_slash_more_is_the_same_model() -> None:
    argv = tuple("/models/./tiny-llama/" if word == "/models/tiny-llama" else word for word in ARGV)
    assert judge_identity(compared(info(), argv=argv)) == ()


@pytest.mark.parametrize(
    ("asked", "says", "right"),
    [
        ("org/model", "org/model", True),
        ("org/model", "org/other", False),
        ("org/model", "/cache/org/model/snapshots/0a", True),
        ("/models/a", "org/model", False),
    ],
)
def test_a_model_of_a_hub_may_be_stated_as_a_folder(asked: str, says: str, right: bool) -> None:
    comparison = compare(info(model_path=says), Expected(version=None, python=None, argv=("--model-path", asked)))
    assert ("wrong-server" not in [finding.code for finding in judge_identity(comparison)]) is right


@pytest.mark.parametrize(
    ("command", "right"),
    [
        (f"{PYTHON} -P -m sglang.launch_server", True),
        (PYTHON, True),
        (f"{PYTHON}3 -m sglang.launch_server", False),
        ("/usr/bin/python3 -m sglang.launch_server", False),
        ("sglang::scheduler", True),
        (None, True),
    ],
)
def test_the_interpreter_is_the_environments(command: str | None, right: bool) -> None:
    assert bool(judge_identity(compare(info(), EXPECTED, command=command))) is not right


def test_an_interpreter_with_a_space_in_its_path() -> None:
    python = "/my envs/python"
    expected = Expected(version=None, python=python, argv=())
    assert judge_identity(compare(info(), expected, command=f"{python} -m sglang")) == ()


def test_speculation_that_the_server_switched_off() -> None:
    (finding,) = judge_identity(compared(info(speculative_algorithm=None, speculative_num_steps=None)))
    assert (finding.code, finding.severity) == ("server-differs-from-script", Severity.ERROR)
    assert "--speculative-algorithm is EAGLE, but server has null" in finding.message
    assert len(finding.detail) == 4  # two options, in the first process and in the scheduler


def test_a_backend_that_only_the_scheduler_swapped() -> None:
    (finding,) = judge_identity(compared(info({"attention_backend": "torch_native"})))
    assert finding.detail == ("--attention-backend is intel_amx, but scheduler 0 has torch_native",)
    assert finding.severity is Severity.ERROR


def test_fewer_requests_than_asked_are_a_warning() -> None:
    (finding,) = judge_identity(compared(info({"effective_max_running_requests_per_dp": 5})))
    assert finding.severity is Severity.WARNING
    assert finding.detail == ("--max-running-requests is 8, but scheduler 0 has 5",)


def test_requests_are_shared_among_data_parallel_ranks() -> None:
    argv = (*ARGV, "--dp", "2")
    assert judge_identity(compared(info({"effective_max_running_requests_per_dp": 4}, dp_size=2), argv=argv)) == ()


def test_what_the_server_has_no_field_for_is_said() -> None:
    assert compared(info(), argv=(*ARGV, "--gone-since-then", "1")).unstated == ("--gone-since-then",)


@pytest.mark.parametrize(
    ("words", "value", "same"),
    [
        (["auto"], "fp8_e5m2", True),
        (["1", "2", "4"], [1, 2, 4], True),
        (["1", "2"], [1, 2, 4], False),
        (["4"], [4], True),
        ([], True, True),
        ([], False, False),
        (["0.70"], 0.7, True),
        (["-1"], -1, True),
        (["many"], 3, False),
        (['{"a": 1}'], {"a": 1}, True),
        (['{"a": 1}'], '{"a": 1}', True),
        (["none"], None, False),
    ],
)
def test_words_and_values(words: list[str], value: object, same: bool) -> None:
    comparison = compare({"some_option": value}, Expected(version=None, python=None, argv=("--some-option", *words)))
    assert (comparison.differences == ()) is same


@given(
    st.dictionaries(
        st.from_regex(r"--[a-z]{1,8}(-[a-z]{1,8})?", fullmatch=True),
        st.lists(st.from_regex(r"-?[a-z0-9./]{1,8}", fullmatch=True), max_size=3),
        max_size=6,
    )
)
def test_options_are_read_as_they_were_written(written: dict[str, list[str]]) -> None:
    argv = [
        PYTHON,
        "-P",
        "-m",
        "sglang.launch_server",
        *(w for name, values in written.items() for w in (name, *values)),
    ]
    assert dict(options(argv)) == {
        name: True if not values else values[0] if len(values) == 1 else tuple(values)
        for name, values in written.items()
    }


def test_a_value_after_an_equals_sign() -> None:
    assert dict(options(["--a=b=c", "--d", "--e="])) == {"--a": "b=c", "--d": True, "--e": ""}


@given(st.dictionaries(st.text(max_size=20), st.none() | st.integers() | st.text(max_size=5) | st.lists(st.none())))
def test_any_document_can_be_compared(document: dict[str, object]) -> None:
    judge_identity(compare(document, EXPECTED))


@pytest.mark.parametrize("states", [None, "text", [None], [[]], {"a": 1}])
def test_states_of_another_form_are_passed_over(states: object) -> None:
    assert compared({**info(), "internal_states": states}).differences == ()
