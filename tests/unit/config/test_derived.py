"""A file with other values keeps its comments and says exactly what is wanted."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sglforge.config.derived import derived

ROOT = Path(__file__).parents[3]
PROFILE = (ROOT / "recipes" / "profiles" / "tiny-cpu.toml").read_text(encoding="utf-8")

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))
plain = texts | st.integers(-(2**60), 2**60) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
tables = st.dictionaries(texts, plain | st.lists(plain, max_size=3), max_size=4)
documents = st.dictionaries(
    st.sampled_from(["name", "port", "flags", "environment", "speculation", "smoke", "new"]) | texts,
    plain | tables | st.dictionaries(texts, tables, max_size=2),
    max_size=6,
)


@settings(deadline=None)
@given(documents)
def test_it_says_what_is_wanted_and_nothing_else(values: dict[str, Any]) -> None:
    assert tomllib.loads(derived(PROFILE, values, comments=["one", ""])) == values


def test_what_is_the_same_stays_as_it_was_written() -> None:
    values = tomllib.loads(PROFILE)
    values["speculation"]["disable-above-batch"] = 4
    text = derived(PROFILE, values, comments=["measured", ""])
    before, after = PROFILE.splitlines()[1:], text.splitlines()
    assert after[:3] == ["# measured", "#", ""]
    assert [line for line in after[3:] if line not in before] == ["disable-above-batch = 4"]
    assert [line for line in before if line not in after] == []
