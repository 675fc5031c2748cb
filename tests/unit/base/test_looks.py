"""How files look: any single change of any of them is seen, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglforge.base import looks
from sglforge.base.looks import Look, look

NAMES = st.sampled_from(["a", "b.toml", "sub/c", "sub/deep/d", "other/e"])
TREES = st.dictionaries(NAMES, st.binary(max_size=8), min_size=1)


def edited(path: Path) -> None:
    """Change one byte, and put size and time back."""
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(bytes([(content + b"x")[0] ^ 1]) + content[1:])
    os.truncate(path, before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    """Put a file of the same size, time and content in its place."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.replace(path)


CHANGES: Mapping[str, Callable[[Path], object]] = {
    "edited": edited,
    "replaced": replaced,
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "touched": lambda path: os.utime(path, ns=(1, 1)),
    "executable": lambda path: path.chmod(0o755),
    "removed": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("new")),
    "another beside": lambda path: path.with_name("new").write_bytes(b""),
    "a folder beside": lambda path: path.with_name("new").mkdir(),
}


def seen(root: Path) -> Look:
    found = look([root])
    assert found
    return found


@settings(max_examples=60, deadline=None)
@given(tree=TREES, which=st.integers(min_value=0), change=st.sampled_from(sorted(CHANGES)))
def test_any_single_change_is_seen(tree: dict[str, bytes], which: int, change: str) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        before = seen(root)
        assert seen(root) == before
        CHANGES[change](root / sorted(tree)[which % len(tree)])
        assert seen(root).digest != before.digest


def test_byte_code_and_reading_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    before = seen(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"x")
    (tmp_path / "a.py").read_text()
    assert seen(tmp_path).digest == before.digest


def test_what_is_absent_is_seen_when_it_comes(tmp_path: Path) -> None:
    before = look([tmp_path / "locks"])
    (tmp_path / "locks").mkdir()
    assert before
    assert look([tmp_path / "locks"]) != before


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "other").write_text("x")
    (tmp_path / "tree").mkdir()
    link = tmp_path / "tree" / "link"
    link.symlink_to("../real")
    before = look([tmp_path / "tree"])
    assert before
    edited(tmp_path / "real")
    changed = look([tmp_path / "tree"])
    link.unlink()
    link.symlink_to("../other")
    turned = look([tmp_path / "tree"])
    assert changed
    assert turned
    assert len({before.digest, changed.digest, turned.digest}) == 3


def test_what_cannot_be_told_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    assert look([tmp_path]) is None
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("nowhere")
    assert look([tmp_path]) is None
    (tmp_path / "link").unlink()
    assert look([tmp_path])
    monkeypatch.setattr(looks, "LIMIT_FILES", 1)
    assert look([tmp_path]) is None


def test_the_newest_change_is_that_of_the_inode(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    os.utime(tmp_path / "old", ns=(1, 1))
    os.utime(tmp_path, ns=(1, 1))
    assert seen(tmp_path).newest_ns == max((tmp_path / "old").stat().st_ctime_ns, tmp_path.stat().st_ctime_ns)
