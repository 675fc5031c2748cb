"""Dependency files as gcc and nvcc write them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sglforge.build.modules.dependencies import dependencies


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.o: a.c b.h\n", ("a.c", "b.h")),
        ("a.o : a.cu \\\n    /usr/x.h \\\n    bin/..//y.h\n", ("a.cu", "/usr/x.h", "bin/..//y.h")),
        ("a.o: a.c b.h b.h\n\nb.h:\n", ("a.c", "b.h")),
        ("a.o: my\\ file.c co$$t.h ha\\#sh.h\n", ("my file.c", "co$t.h", "ha#sh.h")),
        ("a.o:\n", ()),
    ],
)
def test_the_files_of_a_rule(text: str, found: tuple[str, ...]) -> None:
    assert dependencies(text) == found


@pytest.mark.parametrize("text", ["", "nothing", ": a.c\n", "\0\n"])
def test_a_text_without_a_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rule"):
        dependencies(text)


def test_what_a_compiler_writes_is_read_as_it_was_meant(tmp_path: Path) -> None:
    names = ["plain.h", "with space.h", "co$t.h", "ha#sh.h", "back\\slash.h"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / "a.c").write_text("".join(f'#include "{name}"\n' for name in names))
    subprocess.run(["cc", "-MD", "-MF", "a.d", "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    found = dependencies((tmp_path / "a.d").read_text())
    assert {"a.c", "plain.h", "with space.h", "co$t.h", "ha#sh.h"} <= set(found)
