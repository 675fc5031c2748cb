"""Edits of TOML files: the value changes, comments and layout do not."""

from __future__ import annotations

import codecs
import tomllib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sglforge.errors import PatchError
from sglforge.patches.model import TomlEdit
from sglforge.patches.tomledits import apply_toml, has_toml

ADAPTER = TypeAdapter(TomlEdit)
PYPROJECT = """\
# the build
[build-system]
requires = ["a", "b>=1"]   # both

[project]
name = "toy"  # its name
dependencies = [
  "torch==2.9.1",   # pinned
  "numpy",

  # fast
  "uvloop",
]
optional = {cuda = ["x"], "cpu" = []}

# about tools
[tool.uv]
index = "main"
[[tool.uv.index-list]]
name = "one"

# last words
"""


def edit_of(operation: str, key: str, **more: object) -> TomlEdit:
    fields = {"kind": "toml", "file": "pyproject.toml", "operation": operation, "key": key, **more}
    return ADAPTER.validate_python(fields, by_alias=True, by_name=False)


def edited(edit: TomlEdit, source: str = PYPROJECT) -> str:
    raw = source.encode()
    assert not has_toml(raw, "pyproject.toml", edit)
    after = apply_toml(raw, "pyproject.toml", edit)
    assert has_toml(after, "pyproject.toml", edit)
    with pytest.raises(PatchError) as caught:
        apply_toml(after, "pyproject.toml", edit)
    assert caught.value.code == "patch-already-there"
    return after.decode()


def refused(edit: TomlEdit, source: bytes = PYPROJECT.encode()) -> PatchError:
    with pytest.raises(PatchError) as caught:
        apply_toml(source, "pyproject.toml", edit)
    return caught.value


CHANGES = {
    "set a value": (edit_of("set", "project.name", value="new", replaces="toy"), 'name = "toy"', 'name = "new"'),
    "set a new key": (
        edit_of("set", "project.version", value="1.0"),
        '"cpu" = []}\n',
        '"cpu" = []}\nversion = "1.0"\n',
    ),
    "set a quoted key": (
        edit_of("set", 'tool.uv."a.b"', value=True),
        'index = "main"\n',
        'index = "main"\n"a.b" = true\n',
    ),
    "append to an array": (edit_of("append", "build-system.requires", value="c"), '"b>=1"]', '"b>=1", "c"]'),
    "append to lines": (
        edit_of("append", "project.dependencies", value="new"),
        '  "uvloop",\n',
        '  "uvloop",\n  "new",\n',
    ),
    "append inside a table of one line": (
        edit_of("append", "project.optional.cuda", value="y"),
        'cuda = ["x"]',
        'cuda = ["x", "y"]',
    ),
    "remove from an array": (edit_of("remove", "build-system.requires", value="a"), '["a", "b>=1"]', '["b>=1"]'),
    "remove from lines": (
        edit_of("remove", "project.dependencies", value="torch==2.9.1"),
        '  "torch==2.9.1",   # pinned\n',
        "",
    ),
    "remove a key": (edit_of("remove", "tool.uv.index", replaces="main"), 'index = "main"\n', ""),
    "replace an array": (
        edit_of("set", "build-system.requires", value=["z"], replaces=["a", "b>=1"]),
        '["a", "b>=1"]',
        '["z"]',
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_value_changes_and_nothing_else(name: str) -> None:
    edit, old, new = CHANGES[name]
    wanted = PYPROJECT.replace(old, new, 1)
    assert edited(edit) == wanted
    assert edited(edit, PYPROJECT.replace("\n", "\r\n")) == wanted.replace("\n", "\r\n")
    assert edited(edit, PYPROJECT[:-1]) == wanted[:-1]
    raw = codecs.BOM_UTF8 + PYPROJECT.encode()
    assert apply_toml(raw, "pyproject.toml", edit) == codecs.BOM_UTF8 + wanted.encode()


def test_each_line_keeps_its_own_ending() -> None:
    source = "[a]\r\nx = 1\n[b]\r\ny = 2\n"
    assert edited(edit_of("set", "b.y", value=3, replaces=2), source) == "[a]\r\nx = 1\n[b]\r\ny = 3\n"
    assert edited(edit_of("set", "a.z", value=3), source) == "[a]\r\nx = 1\nz = 3\r\n[b]\r\ny = 2\n"


def test_a_table_that_lacks_is_made() -> None:
    assert tomllib.loads(edited(edit_of("set", "tool.new.deep.key", value=[1])))["tool"]["new"] == {
        "deep": {"key": [1]}
    }


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edit_of("set", "project.name", value="new"), "is 'toy', the topic expects a new key"),
        (edit_of("set", "project.name", value="new", replaces="old"), "the topic expects 'old'"),
        (edit_of("set", "project.gone", value="new", replaces="old"), "has no `project.gone`"),
        (edit_of("set", "project.name.x", value=1), "`name` is not a table"),
        (edit_of("append", "project.name", value="x"), "is not an array"),
        (edit_of("append", "project.gone", value="x"), "is missing"),
        (edit_of("append", "gone.deep.x", value="x"), "`gone` is missing"),
        (edit_of("remove", "project.name", replaces=1), "the topic expects 1"),
        (edit_of("append", "tool.uv.index-list.name", value="x"), "`index-list` is not a table"),
    ],
)
def test_another_state_of_the_file_is_drift_with_its_line(edit: TomlEdit, words: str) -> None:
    error = refused(edit)
    assert error.code == "patch-drifted"
    assert words in error.message
    if words.startswith("is "):
        assert "pyproject.toml:" in error.message


def test_a_value_is_not_another_of_the_same_look() -> None:
    for value, other in ((1, True), (1, 1.0), ("1", 1), ([1], [1.0])):
        source = f"x = {str(value).lower() if not isinstance(value, str) else repr(value)}\n".encode()
        assert refused(edit_of("set", "x", value=5, replaces=other), source).code == "patch-drifted"


def test_a_value_that_is_there_twice_is_ambiguous() -> None:
    assert refused(edit_of("remove", "x", value=1), b"x = [1, 1]\n").code == "patch-anchor-ambiguous"


@pytest.mark.parametrize("source", [b"x = \n", b"x = '\xff'\n", b"x = 1\nx = 2\n", "x = 1\n".encode("utf-16")])
def test_what_is_no_toml_is_refused(source: bytes) -> None:
    assert refused(edit_of("set", "y", value=1), source).code == "patch-target-unreadable"


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("set", {}),
        ("append", {}),
        ("append", {"value": 1, "replaces": 2}),
        ("remove", {}),
        ("remove", {"value": 1, "replaces": 2}),
        ("set", {"value": 1, "key": "a b"}),
        ("set", {"value": 1, "key": "a = 1\nb"}),
        ("set", {"value": 1, "key": "a."}),
    ],
)
def test_an_edit_that_cannot_be_meant_is_refused_on_reading(operation: str, more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"value|key"):
        edit_of(operation, **{"key": "a.b", **more})  # type: ignore[arg-type]


def test_a_comment_that_would_be_lost_is_a_refusal() -> None:
    source = "a = 1\nb = 1\nc-d = 1\n[t.u]\n[t]\n# about it\na = 1"
    error = refused(edit_of("remove", "t.a", replaces=1), source.encode())
    assert (error.code, "# about it" in error.message) == ("patch-misplaced", True)


NAMES = st.sampled_from(["a", "b", "c-d", '"e.f"'])
SCALARS = st.sampled_from(["1", "'x'", "true", "1.5", '"é"', "1979-05-27"])
COMMENTS = st.sampled_from(["", "  # why", " # é"])


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    """TOML as people write it: comments, blank lines, arrays of one and of many lines, tables in any order."""
    lines: list[str] = []
    for table in ["", *draw(st.lists(st.sampled_from(["t", "t.u", '"v w"', "x"]), unique=True, max_size=3))]:
        lines += draw(st.sampled_from([[], [""], ["# before"], ["", "# before", ""]]))
        lines += [f"[{table}]{draw(COMMENTS)}"] if table else []
        for name in draw(st.lists(NAMES, unique=True, max_size=3)):
            items = draw(st.lists(SCALARS, max_size=3))
            value = draw(
                st.sampled_from(
                    [
                        draw(SCALARS),
                        f"[{', '.join(items)}]",
                        "[\n" + "".join(f"    {item},{draw(COMMENTS)}\n" for item in items) + "]",
                    ]
                )
            )
            lines += [*draw(st.sampled_from([[], ["# about it"], [""]])), f"{name} = {value}{draw(COMMENTS)}"]
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n# end\n"]))


@settings(deadline=None)
@given(toml_files(), st.sampled_from(["set", "append", "remove"]), NAMES, st.sampled_from(["", "t", "x"]))
def test_any_file_keeps_its_comments_and_other_values(source: str, operation: str, name: str, table: str) -> None:
    data = tomllib.loads(source)
    key = name.strip('"')
    there = (data.get(table, {}) if table else data).get(key)
    if operation == "remove" and there is None:
        return
    asked: dict[str, object] = {} if operation == "remove" else {"value": "sglforge"}
    if operation != "append" and there is not None:
        asked["replaces"] = there
    edit = edit_of(operation, f"{table}.{name}" if table else name, **asked)
    if operation == "append" and not isinstance(there, list):
        assert refused(edit, source.encode()).code == "patch-drifted"
        return
    if -1 < source.find("[t.u]") < source.find("[t]"):  # tables out of order: tomlkit may lose a comment
        try:
            apply_toml(source.encode(), "f.toml", edit).decode()
        except PatchError:
            assert refused(edit, source.encode()).code == "patch-misplaced"
            return
    after = apply_toml(source.encode(), "f.toml", edit).decode()
    # a comment inside or behind a value that goes may go with it, and no other
    lines = [line for line in source.split("\n") if operation == "append" or line.startswith("#")]
    assert not Counter(map(comment, lines)) - Counter(map(comment, after.split("\n")))
    assert undone(tomllib.loads(after), data, table, key, there, operation) == data


def comment(line: str) -> str:
    return line.partition("#")[2]


def undone(
    after: dict[str, Any], before: dict[str, Any], table: str, key: str, there: object, operation: str
) -> dict[str, Any]:
    """Take the edit out of the data again, apart from the code under test."""
    home = after.setdefault(table, {}) if table else after
    if operation == "append":
        assert home[key].pop() == "sglforge"
    elif there is None:
        assert home.pop(key) == "sglforge"
    else:
        home[key] = there
    if table and table not in before:
        assert after.pop(table) == {}
    return after
