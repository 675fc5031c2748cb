"""Edits of text files, byte for byte."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sglforge.errors import PatchError
from sglforge.patches import payload as payloads
from sglforge.patches.model import TextEdit
from sglforge.patches.textedits import apply_text, has_text

ADAPTER = TypeAdapter(TextEdit)
CMAKE = b"project(x)\nif(A)\n  set(B 1)\nendif()\nif(C)\n  set(B 1)\nendif()\n"


def edit_of(operation: str, anchor: str) -> TextEdit:
    fields = {"kind": "text", "file": "CMakeLists.txt", "payload": "p", "operation": operation, "anchor": anchor}
    return ADAPTER.validate_python(fields, by_alias=True, by_name=False)


def edited(source: bytes, edit: TextEdit, payload: bytes = b"new\n") -> bytes:
    return apply_text(source, "CMakeLists.txt", edit, payloads.read(payload, "p"))


def refused(source: bytes, edit: TextEdit, payload: bytes = b"new\n") -> PatchError:
    with pytest.raises(PatchError) as caught:
        edited(source, edit, payload)
    return caught.value


@pytest.mark.parametrize(
    ("operation", "anchor", "wanted"),
    [
        ("insert-before", "if(A)", CMAKE.replace(b"if(A)", b"new\nif(A)")),
        ("insert-after", "project(x)\n", CMAKE.replace(b"(x)\n", b"(x)\nnew\n")),
        ("replace", "if(A)\n  set(B 1)", CMAKE.replace(b"if(A)\n  set(B 1)\n", b"new\n", 1)),
        ("insert-after", "if(C)\n  set(B 1)\nendif()", CMAKE + b"new\n"),
        ("insert-before", "project(x)\nif(A)", b"new\n" + CMAKE),
    ],
)
def test_lines_go_beside_or_in_the_place_of_whole_lines(operation: str, anchor: str, wanted: bytes) -> None:
    edit = edit_of(operation, anchor)
    assert edited(CMAKE, edit) == wanted
    assert edited(CMAKE.replace(b"\n", b"\r\n"), edit) == wanted.replace(b"\n", b"\r\n")
    assert edited(codecs.BOM_UTF8 + CMAKE, edit) == codecs.BOM_UTF8 + wanted
    assert edited(CMAKE + b"\xe9\xe8", edit) == wanted + b"\xe9\xe8"
    assert edited(CMAKE[:-1], edit) == wanted[:-1]


@pytest.mark.parametrize("anchor", ["  set(B 1)", "endif()"])
def test_an_anchor_that_is_there_twice_is_refused_with_its_lines(anchor: str) -> None:
    error = refused(CMAKE, edit_of("insert-after", anchor))
    assert error.code == "patch-anchor-ambiguous"
    assert "2 times, on lines " in error.message


@pytest.mark.parametrize(
    ("anchor", "words"),
    [
        ("set(B 1)", "differently indented or followed, is on line 3"),
        ("if(A", "no lines `if(A`"),
        ("if(A)\nendif()", "is on line 2"),
        ("if(Z)", "no lines `if(Z)`"),
    ],
)
def test_a_part_of_a_line_is_no_anchor(anchor: str, words: str) -> None:
    error = refused(CMAKE, edit_of("insert-after", anchor))
    assert error.code == "patch-drifted"
    assert words in error.message


@pytest.mark.parametrize(("operation", "payload"), [("insert-after", b"new\n"), ("replace", b"if(A2)\n  if(A)\n")])
def test_the_same_edit_is_not_made_twice(operation: str, payload: bytes) -> None:
    edit = edit_of(operation, "if(A)")
    once = edited(CMAKE, edit, payload)
    assert has_text(once, "f", edit, payloads.read(payload, "p"))
    assert not has_text(CMAKE, "f", edit, payloads.read(payload, "p"))
    assert refused(once, edit, payload).code == "patch-already-there"


def test_a_payload_that_holds_its_anchor_is_recognised() -> None:
    edit = edit_of("insert-after", "project(x)")
    once = edited(CMAKE, edit, b"# again\nproject(x)\n")
    assert refused(once, edit, b"# again\nproject(x)\n").code == "patch-already-there"


def test_lines_that_stand_elsewhere_too_are_not_the_edit() -> None:
    edit = edit_of("replace", "gone()")
    assert not has_text(CMAKE, "f", edit, payloads.read(b"endif()\n", "p"))
    assert refused(CMAKE, edit, b"endif()\n").code == "patch-drifted"


@pytest.mark.parametrize("source", [b"a\0b\n", "a\n".encode("utf-16")])
def test_what_is_no_text_is_refused(source: bytes) -> None:
    assert refused(source, edit_of("insert-after", "a")).code == "patch-target-unreadable"


def test_letters_go_only_where_they_can_be_read() -> None:
    edit = edit_of("insert-after", "a")
    assert edited("a\né\n".encode(), edit, "é!\n".encode()) == "a\né!\né\n".encode()
    error = refused("a\né\n".encode("latin-1"), edit, "é!\n".encode())
    assert (error.code, "not UTF-8" in error.message) == ("patch-corrupt", True)


def test_an_empty_file_has_no_anchor() -> None:
    assert refused(b"", edit_of("insert-after", "a")).code == "patch-drifted"


def bare(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


LINES = st.lists(st.sampled_from([b"a", b"b", b"  a", b"", b"\xe9\xe8", b"a b"]), min_size=1, max_size=12)


@settings(deadline=None)
@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.data())
def test_every_other_line_keeps_its_bytes(lines: list[bytes], newline: bytes, final: bool, data: st.DataObject) -> None:
    source = newline.join(lines) + (newline if final else b"")
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, min(start + 3, len(lines))))
    operation = data.draw(st.sampled_from(["insert-before", "insert-after", "replace"]))
    anchor = b"\n".join(line.removesuffix(b"\r") for line in lines[start:end]).decode("latin-1") + "\n"
    if not anchor.isascii() or (not lines[-1] and not final):
        return
    edit = edit_of(operation, anchor)
    if sum(lines[index : index + end - start] == lines[start:end] for index in range(len(lines))) > 1:
        assert refused(source, edit).code == "patch-anchor-ambiguous"
        return
    after = edited(source, edit, b"# mark\n# mark\n")
    old, new = source.splitlines(keepends=True), after.splitlines(keepends=True)
    place = next(index for index, line in enumerate(new) if line.startswith(b"# mark"))
    assert place == (end if operation == "insert-after" else start)
    kept = old[:start] + old[end:] if operation == "replace" else old
    left = new[:place] + new[place + 2 :]
    assert [bare(line) for line in left] == [bare(line) for line in kept]
    assert [one == other for one, other in zip(left, kept, strict=True)].count(False) <= (not source.endswith(b"\n"))
    assert after.endswith(b"\n") == source.endswith(b"\n")
