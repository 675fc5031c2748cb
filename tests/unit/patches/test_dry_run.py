"""A series that is tried: the same result as when it is written, and not a byte of the tree touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from toy_series import Bench, edit

from sglforge.base.treeid import blobs, tree_id
from sglforge.patches.apply import apply_series


def stamps(tree: Path) -> Mapping[str, tuple[int, int, int]]:
    found = {str(path.relative_to(tree)): path.lstat() for path in tree.rglob("*")}
    return {name: (state.st_mtime_ns, state.st_ino, state.st_mode) for name, state in found.items()}


@pytest.fixture
def two(bench: Bench) -> Bench:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.run"), p="batch = list(batch)\n")
    bench.topic("two", edit("append-to-body", "q", file="pkg/other.py"), q="x = 1\n")
    (bench.tree / "pkg/other.py").chmod(0o755)
    (bench.tree / "link").symlink_to("pkg/other.py")
    return bench


@pytest.mark.parametrize("topic", [None, "two"])
def test_a_try_gives_what_writing_gives(two: Bench, topic: str | None) -> None:
    before, contents = stamps(two.tree), two.contents()
    tried = apply_series(two.load(), two.tree, version="1.0", topic=topic, write=False)
    known = apply_series(two.load(), two.tree, version="1.0", topic=topic, write=False, known=blobs(two.tree))
    assert stamps(two.tree) == before
    assert two.contents() == contents
    written = apply_series(two.load(), two.tree, version="1.0", topic=topic)
    assert tried == known == written
    assert tried.tree_id == tree_id(two.tree)
    assert two.contents() != contents


def test_a_series_that_does_not_apply_has_no_id(two: Bench) -> None:
    two.topic("zero", edit("append-to-body", "r", "Gone"), r="x = 1\n")
    before = stamps(two.tree)
    result = apply_series(two.load(), two.tree, version="1.0", write=False)
    assert result.tree_id is None
    assert stamps(two.tree) == before
