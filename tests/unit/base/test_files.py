"""base.files: whole or not at all."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.base import files

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_sha256_is_that_of_hashlib(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 100_000)
    assert files.sha256_file(path) == hashlib.sha256(b"abc" * 100_000).hexdigest()


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_does_not_change_a_digest(value: dict[str, object]) -> None:
    assert files.digest(value) == files.digest(dict(reversed(value.items())))


def test_values_that_differ_have_other_digests() -> None:
    assert len({files.digest(value) for value in (1, "1", [1], ["1"], {"1": 1}, None, True)}) == 7


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.txt"
    files.write_text(path, "old")
    files.write_text(path, "new\n")
    assert path.read_text() == "new\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["x.txt"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    files.write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write_text(path, "bad \ud800")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.txt"]


def test_a_folder_appears_only_when_the_block_ended_well(tmp_path: Path) -> None:
    final = tmp_path / "store" / "key"
    with pytest.raises(RuntimeError), files.publish_directory(final) as draft:  # noqa: PT012 - the block is the subject
        (draft / "half").write_text("x")
        raise RuntimeError
    assert list((tmp_path / "store").iterdir()) == []
    with files.publish_directory(final) as draft:
        (draft / "whole").write_text("x")
        assert not final.exists()
    assert (final / "whole").read_text() == "x"


def test_who_comes_second_changes_nothing(tmp_path: Path) -> None:
    final = tmp_path / "key"
    with files.publish_directory(final) as slow:
        (slow / "file").write_text("slow")
        with files.publish_directory(final) as fast:
            (fast / "file").write_text("fast")
    assert (final / "file").read_text() == "fast"
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_kill_during_publication_leaves_no_final_folder(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from sglforge.base.files import publish_directory\n"
        "with publish_directory(Path(sys.argv[1])) as draft:\n"
        "    (draft / 'half').write_text('x'); print('in', flush=True); time.sleep(60)\n"
    )
    final = tmp_path / "key"
    with subprocess.Popen([sys.executable, "-c", script, str(final)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in\n"
        os.kill(child.pid, signal.SIGKILL)
    assert not final.exists()
    with files.publish_directory(final) as draft:
        (draft / "whole").write_text("x")
    assert [entry.name for entry in final.iterdir()] == ["whole"]


def test_a_link_is_switched_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.replace_link(tmp_path / "current", Path(name))
        assert (tmp_path / "current").readlink() == Path(name)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["current", "one", "two"]
