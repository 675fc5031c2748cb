"""The effective diff is one that git takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.base import git, proc
from sglforge.patches.checkout import File
from sglforge.patches.diff import unified

PAIRS = {
    "insertion": (b"a = 1\nb = 2\nc = 3\n", b"a = 1\nnew = 0\nb = 2\nc = 3\n"),
    "no final newline": (b"a = 1\nb = 2", b"a = 1\nb = 2\nnew = 0"),
    "final newline gained": (b"a = 1", b"a = 1\n"),
    "carriage returns": (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nnew = 0\r\nb = 2\r\n"),
    "old macintosh": (b"a = 1\rb = 2\r", b"a = 1\rnew = 0\rb = 2\r"),
    "byte order mark": (b"\xef\xbb\xbfa = 1\n", b"\xef\xbb\xbfa = 1\nnew = '\xc3\xa9'\n"),
    "form feed": (b"a = 1\n\x0c\nb = 2\n", b"a = 1\n\x0c\nb = 2\nnew = 0\n"),
    "latin": (b"# coding: latin-1\na = '\xe9'\n", b"# coding: latin-1\na = '\xe9'\nnew = 0\n"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_git_turns_the_old_file_into_the_new_one(name: str, tmp_path: Path) -> None:
    old, new = PAIRS[name]
    path = tmp_path / "pkg" / "toy.py"
    path.parent.mkdir()
    path.write_bytes(old)
    diff = unified("pkg/toy.py", File(raw=old), File(raw=new))
    (tmp_path / "change.diff").write_bytes(diff.encode("latin-1" if name == "latin" else "utf-8"))
    argv = ["git", "apply", "--whitespace=nowarn", "change.diff"]
    proc.run(argv, cwd=tmp_path, env=git.plain_environment(tmp_path))
    assert path.read_bytes() == new


def test_the_same_text_has_no_diff() -> None:
    same = File(raw=b"a = 1\n")
    assert unified("toy.py", same, same) == ""
