"""Values of a profile replaced on the command line."""

from __future__ import annotations

import pytest

from sglforge.config.model import Profile, Speculation
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
