"""Our reader says what pyelftools says, on real files; whatever is no ELF file is None."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_objects import shared_object

from sglforge.smoke.observe.elf import Linkage, read_linkage
from sglforge.smoke.observe.libraries import read_libraries


def by_pyelftools(path: Path) -> Linkage:
    names: dict[str, list[str]] = {"DT_SONAME": [], "DT_NEEDED": []}
    with path.open("rb") as stream:
        for segment in ELFFile(stream).iter_segments("PT_DYNAMIC"):
            assert isinstance(segment, DynamicSegment)
            for tag in segment.iter_tags():
                if tag.entry.d_tag in names:
                    names[tag.entry.d_tag].append(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower()))
    return Linkage(soname=next(iter(names["DT_SONAME"]), None), needed=tuple(names["DT_NEEDED"]))


def test_all_libraries_of_this_process(tmp_path: Path) -> None:
    paths = [
        Path(library.real) for library in read_libraries([os.getpid()], environment=tmp_path, expected={}).libraries
    ]
    assert len(paths) > 20
    assert any(linkage.soname for path in paths if (linkage := read_linkage(path)))
    for path in paths:
        assert read_linkage(path) == by_pyelftools(path), path


def test_what_gcc_was_told(tmp_path: Path) -> None:
    inner = shared_object(tmp_path / "libinner.so", soname="libinner.so.7")
    (tmp_path / "libinner.so.7").symlink_to(inner)
    outer = shared_object(tmp_path / "outer.so", needs=[inner])
    linkage = read_linkage(outer)
    assert linkage is not None
    assert linkage.soname is None
    assert linkage.needed[0] == "libinner.so.7"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keep=st.integers(0, 6000), noise=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 255)), max_size=20))
def test_a_damaged_file_is_no_crash(small: Path, keep: int, noise: list[tuple[int, int]]) -> None:
    content = bytearray(small.read_bytes()[:keep])
    for at, byte in noise:
        if at < len(content):
            content[at] = byte
    damaged = small.with_name("damaged.so")
    damaged.write_bytes(content)
    read_linkage(damaged)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return shared_object(tmp_path / "small.so")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(200)])
def test_other_files_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_linkage(tmp_path / "file") is None
