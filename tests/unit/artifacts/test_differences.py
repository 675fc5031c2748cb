"""Two wheels that differ: files, bytes, sections."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.artifacts.differences import CHANGES, SHOWN_BYTES, Change, _compared, _sections, differences


def wheel(path: Path, files: dict[str, bytes], *, time: tuple[int, ...] = (1980, 1, 1, 0, 0, 0)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, time), content)  # type: ignore[arg-type]
    return path


def test_equal_wheels_have_no_difference(tmp_path: Path) -> None:
    one = wheel(tmp_path / "a" / "x.whl", {"a": b"1" * 1000})
    assert differences(one, wheel(tmp_path / "b" / "x.whl", {"a": b"1" * 1000})) == ()


def test_each_kind_is_told(tmp_path: Path) -> None:
    record = {"x-1.dist-info/RECORD": b"first"}
    one = wheel(tmp_path / "1", {"same": b"s", "gone": b"12", "text": b"made at 10:00", **record})
    two = wheel(
        tmp_path / "2", {"same": b"s", "new": b"123", "text": b"made at 11:30", "x-1.dist-info/RECORD": b"other"}
    )
    gone, new, text = differences(one, two)
    assert (gone.name, gone.kind, gone.sizes) == ("gone", "only-first", (2, 0))
    assert (new.name, new.kind, new.sizes) == ("new", "only-second", (0, 3))
    assert (text.name, text.kind, text.sizes, text.differing) == ("text", "content", (13, 13), 2)
    assert text.changes == (Change(offset=9, section=None, first=b"0:0", second=b"1:3"),)
    assert [*text.lines(changes=3)] == ["text: 2 bytes differ", "  at 0x9: 30 3a 30 '0:0' | 31 3a 33 '1:3'"]
    assert [*text.lines(changes=0)] == ["text: 2 bytes differ", "  ..."]
    assert text.to_json()["changes"] == [{"offset": 9, "section": None, "first": "303a30", "second": "313a33"}]
    assert [*gone.lines(changes=1), *new.lines(changes=1)] == [
        "gone is only in the first wheel",
        "new is only in the second wheel",
    ]


def test_record_is_told_where_it_alone_differs(tmp_path: Path) -> None:
    one = wheel(tmp_path / "1", {"x-1.dist-info/RECORD": b"a"})
    (only,) = differences(one, wheel(tmp_path / "2", {"x-1.dist-info/RECORD": b"b"}))
    assert only.name == "x-1.dist-info/RECORD"


def test_archives_of_the_same_files_are_told_apart(tmp_path: Path) -> None:
    one = wheel(tmp_path / "1", {"a": b"x"})
    (found,) = differences(one, wheel(tmp_path / "2", {"a": b"x"}, time=(1981, 1, 1, 0, 0, 0)))
    assert found.kind == "archive"
    assert found.changes


def test_a_longer_file_differs_by_what_it_is_longer(tmp_path: Path) -> None:
    one = wheel(tmp_path / "1", {"a": b"x" * 10})
    (found,) = differences(one, wheel(tmp_path / "2", {"a": b"x" * 12}))
    assert (found.sizes, found.differing) == ((10, 12), 2)
    assert found.changes == (Change(offset=10, section=None, first=b"", second=b"xx"),)
    head, place = found.lines(changes=1)
    assert head == "a (10 and 12 bytes long): 2 bytes differ"
    assert place == "  at 0xa: nothing | 78 78 'xx'"


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_every_byte_that_differs_is_counted_and_lies_in_a_place(one: bytes, other: bytes) -> None:
    count, changes = _compared(one, other)
    apart = [at for at in range(max(len(one), len(other))) if one[at : at + 1] != other[at : at + 1]]
    assert count == len(apart)
    assert bool(changes) == bool(apart)
    if apart:
        assert changes[0].offset == apart[0]
    assert len(changes) <= CHANGES
    for change in changes:
        assert change.first == one[change.offset : change.offset + len(change.first)]
        assert change.second == other[change.offset : change.offset + len(change.second)]
        assert max(len(change.first), len(change.second)) <= SHOWN_BYTES


def test_large_files_differ_beyond_a_chunk(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1024
    changed = content[:200_000] + b"!" + content[200_001:]
    (found,) = differences(wheel(tmp_path / "1", {"a": content}), wheel(tmp_path / "2", {"a": changed}))
    assert (found.differing, found.changes[0].offset) == (1, 200_000)


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def shared_object(folder: Path, text: str, *, more: str = "") -> bytes:
    folder.mkdir()
    (folder / "a.c").write_text(f'const char *said(void) {{ return "{text}"; }}\n{more}')
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", "a.so", "a.c"], cwd=folder, check=True)
    return (folder / "a.so").read_bytes()


@needs_compiler
def test_bytes_of_shared_objects_are_in_sections(tmp_path: Path) -> None:
    one, two = shared_object(tmp_path / "1", "made by A"), shared_object(tmp_path / "2", "made by B")
    (found,) = differences(wheel(tmp_path / "1.whl", {"a.so": one}), wheel(tmp_path / "2.whl", {"a.so": two}))
    assert found.sizes[0] == found.sizes[1]
    (text,) = [change for change in found.changes if change.section == ".rodata"]
    assert (text.first, text.second) == (b"A", b"B")
    assert one[text.offset : text.offset + 1] == b"A"
    assert f"  at {text.offset:#x} in .rodata: 41 'A' | 42 'B'" in found.lines(changes=CHANGES)


@needs_compiler
def test_what_is_the_same_but_moved_is_not_told(tmp_path: Path) -> None:
    one = shared_object(tmp_path / "1", "x" * 10)
    two = shared_object(tmp_path / "2", "x" * 6000)
    (found,) = differences(wheel(tmp_path / "1.whl", {"a.so": one}), wheel(tmp_path / "2.whl", {"a.so": two}))
    assert found.sizes[0] < found.sizes[1]
    sections = {change.section for change in found.changes}
    assert ".rodata" in sections
    assert not sections & {".interp", ".comment", ".dynstr"}


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF" + b"\xff" * 100, b"text"])
def test_what_is_no_elf_file_has_no_sections(content: bytes) -> None:
    assert _sections(content) is None
