"""base.toml: every key knows its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base import toml
from sglforge.errors import ConfigError

TEXT = """\
name = "x"
"quoted key" = 1
text = '''
hidden = 1
[hidden]
'''

[packages.sglang]
source = { kind = "wheel" }
a.b = 2

[[edit]]
file = "one"
[edit.where]
line = 1

[[edit]]
file = "two"
[edit.where]
line = 2
"""


def load(tmp_path: Path, text: str) -> toml.Document:
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode())
    return toml.load(path)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("name",), 1),
        (("quoted key",), 2),
        (("packages", "sglang"), 8),
        (("packages", "sglang", "source"), 9),
        (("packages", "sglang", "source", "kind"), 9),
        (("packages", "sglang", "a", "b"), 10),
        (("edit", 0, "file"), 13),
        (("edit", 0, "where", "line"), 15),
        (("edit", 1, "file"), 18),
        (("edit", 1, "where", "line"), 20),
        (("packages", "sglang", "missing"), 8),
        (("hidden",), 1),
        (("missing",), 1),
    ],
)
def test_a_key_is_found_on_its_line(tmp_path: Path, key: toml.KeyPath, line: int) -> None:
    assert load(tmp_path, TEXT).where(key) == f"{tmp_path / 'x.toml'}:{line}"


@pytest.mark.parametrize(("text", "line"), [("a = 1\nb = = 2\n", 2), ("a = 1\nb = 2\nc = [1,\n", 3), ("a = 1\nb =", 2)])
def test_a_syntax_error_has_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert caught.value.code == "toml-syntax"
    assert caught.value.where == f"{tmp_path / 'x.toml'}:{line}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        toml.load(tmp_path / "gone.toml")
    assert caught.value.code == "toml-unreadable"
    assert "gone.toml" in str(caught.value)
    assert caught.value.hint


def test_bytes_that_are_not_utf8_are_a_fault_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"a = '\xff'\n")
    with pytest.raises(ConfigError, match="toml-unreadable"):
        toml.load(tmp_path / "x.toml")
