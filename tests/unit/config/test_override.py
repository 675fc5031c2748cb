"""Values of a profile replaced on the command line."""

from __future__ import annotations

import pytest

from sglforge.config.model import Profile, SmokeExpectations, Speculation, ToolProbe
from sglforge.config.override import override
from sglforge.errors import ConfigError

PROFILE = Profile(
    name="p",
    description="d",
    target="cpu",
    model="m",
    flags={"dtype": "float32"},
    environment={"A": "1"},
    speculation=Speculation(algorithm="EAGLE", draft_model="d"),
)


def test_nothing_to_replace_is_the_same_profile() -> None:
    assert override(PROFILE, ()) is PROFILE


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("port=31000", ("port",), 31000),
        ("model=catalog:models/x", ("model",), "catalog:models/x"),
        ("speculation.num-steps=2", ("speculation", "num_steps"), 2),
        ("flags.max-running-requests=4", ("flags", "max-running-requests"), 4),
        ("flags.disable-cuda-graph=true", ("flags", "disable-cuda-graph"), True),
        ("flags.names=['a', 'b']", ("flags", "names"), ["a", "b"]),
        ("environment.B='2'", ("environment", "B"), "2"),
        ("environment.WITH.DOTS=yes", ("environment", "WITH.DOTS"), "yes"),
        ("description=a = b $(x) 'q' \"Q\" \n\u00e9", ("description",), "a = b $(x) 'q' \"Q\" \n\u00e9"),
        ("start-timeout-s=5.5", ("start_timeout_s",), 5.5),
    ],
)
def test_one_value_is_replaced_and_nothing_else(assignment: str, path: tuple[str, ...], value: object) -> None:
    changed = override(PROFILE, (assignment,)).model_dump()
    expected = PROFILE.model_dump()
    table = expected
    for part in path[:-1]:
        table = table[part]
    table[path[-1]] = value
    assert changed == expected


def test_an_empty_value_removes_a_key() -> None:
    assert override(PROFILE, ("speculation=",)).speculation is None
    assert override(PROFILE, ("flags.dtype=",)).flags == {}


def test_what_was_not_set_stays_unset() -> None:
    assert "port" not in override(PROFILE, ("model=x",)).model_fields_set
    assert "port" in override(PROFILE, ("port=30000",)).model_fields_set


@pytest.mark.parametrize(
    ("assignment", "word"),
    [
        ("port", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        ("speculation..x=1", "KEY=VALUE"),
        ("prot=1", "prot"),
        ("port=many", "port"),
        ("port=0", "port"),
        ("model.x=1", "not a table"),
        ("speculation.algorithm=NONE", "algorithm"),
    ],
)
def test_what_does_not_fit_is_named(assignment: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(PROFILE, (assignment,))
    assert caught.value.code == "override-invalid"
    assert word in caught.value.message


@pytest.mark.parametrize(
    ("assignment", "nearest"),
    [("prot=1", "`port`"), ("speculation.num-stepz=1", "`num-steps`"), ("flgas.x=1", "`flags`")],
)
def test_a_key_that_does_not_exist_is_told_with_the_nearest(assignment: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(PROFILE, (assignment,))
    assert "unknown key" in caught.value.message
    assert caught.value.hint == f"did you mean {nearest}?"


SMOKING = PROFILE.model_copy(
    update={
        "smoke": SmokeExpectations(
            long_prompt="l",
            json_prompt="j",
            json_schema="{}",
            tool=ToolProbe(prompt="p", name="n", description="d", parameters="{}", contains="c"),
        )
    }
)


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ("smoke.json-schema={", "not JSON"),
        ("smoke.json-schema='3'", "no JSON schema: $ is int"),
        ("""smoke.json-schema='{"minimum": NaN}'""", "NaN"),
        ("""smoke.json-schema='{"pattern": "("}'""", "$.pattern is no regular expression"),
        ("""smoke.json-schema='{"pattern": 3}'""", "$.pattern is no regular expression"),
        ("""smoke.json-schema='{"items": {"properties": {"a": {"pattern": "["}}}}'""", "$.items.properties.a.pattern"),
        ("""smoke.json-schema='{"required": [[]]}'""", "$.required"),
        ("""smoke.json-schema='{"type": "text"}'""", "$.type"),
        ("""smoke.json-schema='{"properties": []}'""", "$.properties"),
        ("smoke.json-schema='" + '{"items":' * 60 + "{}" + "}" * 60 + "'", "schemas deep"),
        ("smoke.json-schema='" + "[" * 100_000 + "'", "not JSON"),
        ("smoke.tool.parameters={", "not JSON"),
        ("smoke.long-prompt=''", "smoke.long-prompt"),
        ("smoke.json-prompt=''", "smoke.json-prompt"),
        ("request-timeout-s=inf", "finite"),
        ("request-timeout-s=nan", "finite"),
        ("start-timeout-s=inf", "finite"),
        ("request-timeout-s=1e300", "604800"),
        ("flags.max-running-requests=0", "1 or more"),
        ("flags.max-running-requests=-2", "1 or more"),
        ("flags.mem-fraction-static=nan", "nan"),
    ],
)
def test_a_value_that_nothing_can_be_done_with_is_refused(assignment: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(SMOKING, (assignment,))
    assert caught.value.code == "override-invalid"
    assert why in caught.value.message.removeprefix(f"--set {assignment}")


@pytest.mark.parametrize(
    "assignment",
    [
        "smoke.json-schema='true'",
        """smoke.json-schema='{"type": ["string", "null"], "pattern": "^a", "anyOf": [{}]}'""",
        "flags.max-running-requests=false",
        "flags.max-running-requests=1",
    ],
)
def test_a_value_that_is_odd_but_right_is_taken(assignment: str) -> None:
    override(SMOKING, (assignment,))
