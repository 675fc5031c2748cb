"""Our ELF reader says what pyelftools says, and takes no harm from files that lie."""

from __future__ import annotations

import contextlib
import struct
import sys
import time
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from gpu_files import library
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.artifacts.elf import Elf, ElfError, opened, read_elf, read_ident


def system_files() -> list[Path]:
    """Real files of this machine: its C and C++ libraries, Python and its extension modules."""
    modules = sorted(Path(struct.__file__).parent.glob("lib-dynload/*.so"))[:12]
    maps = Path("/proc/self/maps").read_text().split()
    return sorted({Path(sys.executable).resolve(), *modules, *(Path(word) for word in maps if ".so" in word)})[:30]


def read(path: Path) -> Elf:
    with opened(path) as data:
        return read_elf(data)


@pytest.mark.parametrize("path", system_files(), ids=lambda path: path.name)
def test_it_says_what_pyelftools_says(path: Path) -> None:
    elf = read(path)
    with path.open("rb") as stream:
        other = ELFFile(stream)
        dynamic = next(one for one in other.iter_segments() if isinstance(one, DynamicSegment))
        table = other.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        symbols = [one for one in table.iter_symbols() if one.name and one["st_info"]["bind"] != "STB_LOCAL"]
        needs = {
            need.name: tuple(one.name for one in versions)
            for section in other.iter_sections()
            if isinstance(section, GNUVerNeedSection)
            for need, versions in section.iter_versions()
        }
        needed = [getattr(tag, "needed") for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]  # noqa: B009
        assert list(elf.needed) == needed
        assert [one.name for one in elf.sections] == [one.name for one in other.iter_sections()]
        assert [one.name for one in elf.undefined] == [one.name for one in symbols if one["st_shndx"] == "SHN_UNDEF"]
        seen = {"STV_DEFAULT", "STV_PROTECTED"}
        assert set(elf.defined) == {
            one.name for one in symbols if one["st_shndx"] != "SHN_UNDEF" and one["st_other"]["visibility"] in seen
        }
        assert elf.versions == needs


def test_versions_and_libraries_of_symbols(tmp_path: Path) -> None:
    elf = read(library(tmp_path / "a.so", body="void *malloc(unsigned long); void *f(void) { return malloc(1); }"))
    (symbol,) = [one for one in elf.undefined if one.name == "malloc"]
    assert (symbol.library, symbol.weak) == ("libc.so.6", False)
    assert str(symbol.version).startswith("GLIBC_2.")
    assert elf.defined == {"f": ("",)}


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_symbols_are_counted_without_sections(tmp_path: Path, style: str) -> None:
    body = "".join(f"int f{number}(void) {{ return {number}; }}\n" for number in range(50))
    path = library(tmp_path / "a.so", body=body, options=[f"-Wl,--hash-style={style}"])
    whole = read(path)
    content = bytearray(path.read_bytes())
    content[40:48] = bytes(8)  # e_shoff: no section headers
    content[58:64] = bytes(6)
    path.write_bytes(content)
    stripped = read(path)
    assert stripped.sections == ()
    assert stripped.defined == whole.defined
    assert len(whole.defined) == 50


def test_search_paths(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so", options=["-Wl,-rpath,$ORIGIN/../lib:/opt/x", "-Wl,--enable-new-dtags"])
    assert read(path).runpath == ("$ORIGIN/../lib", "/opt/x")
    path = library(tmp_path / "b.so", options=["-Wl,-rpath,/opt/x", "-Wl,--disable-new-dtags", "-Wl,-soname,libb.so.1"])
    assert (read(path).rpath, read(path).runpath, read(path).soname) == (("/opt/x",), (), "libb.so.1")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no ELF"),
        (b"/* GNU ld script */ GROUP ( libc.so.6 )", "no ELF"),
        (b"\x7fELF", "ends before its first bytes"),
        (b"\x7fELF" + bytes(60), "no class or byte order"),
        (b"\x7fELF\x02\x01\x01" + bytes(13), "ends before its header"),
        (b"\x7fELF\x01\x01\x01" + bytes(57), "32-bit"),
        (b"\x7fELF\x02\x02\x01" + bytes(57), "big-endian"),
    ],
)
def test_what_is_no_elf_file_is_said(content: bytes, why: str) -> None:
    with pytest.raises(ElfError, match=why):
        read_elf(content)


def patched(path: Path, at: int, layout: str, *values: int) -> bytes:
    content = bytearray(path.read_bytes())
    struct.pack_into(layout, content, at, *values)
    return bytes(content)


@pytest.mark.parametrize(
    ("at", "layout", "value", "why"),
    [
        (32, "<Q", 1 << 40, "before its program headers"),
        (40, "<Q", 1 << 63, "before its first section header"),
        (54, "<H", 7, "segments of 7 bytes"),
        (56, "<H", 0xFFFF, "announces 65535 segments"),
        (58, "<H", 40, "section headers of 40"),
        (60, "<H", 0xFFF0, "before its section headers"),
        (62, "<H", 0xFFF0, "section that is not there"),
    ],
)
def test_headers_that_lie(tmp_path: Path, at: int, layout: str, value: int, why: str) -> None:
    path = library(tmp_path / "a.so")
    with pytest.raises(ElfError, match=why):
        read_elf(patched(path, at, layout, value))


def test_a_section_behind_the_file(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so")
    (table,) = struct.unpack_from("<Q", path.read_bytes(), 40)
    with pytest.raises(ElfError, match="bytes behind the file"):
        read_elf(patched(path, table + 64 + 32, "<Q", 1 << 62))


def test_a_huge_count_of_sections_is_refused_at_once(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so")
    (table,) = struct.unpack_from("<Q", path.read_bytes(), 40)
    content = bytearray(patched(path, 60, "<H", 0))
    struct.pack_into("<Q", content, table + 32, 1 << 60)  # sh_size of the first section is the count then
    with pytest.raises(ElfError, match="sections"):
        read_elf(bytes(content))


def test_names_that_share_their_ends_have_a_limit(tmp_path: Path) -> None:
    """A million symbols that all point into one long name would be gigabytes of text."""
    body = "".join(f"int f{number}(void) {{ return 0; }}\n" for number in range(400))
    path = library(tmp_path / "a.so", body=body + f"int {'x' * 30_000}(void) {{ return 0; }}\n")
    content = bytearray(path.read_bytes())
    symbols, strings = read(path).section(".dynsym"), read(path).section(".dynstr")
    assert symbols
    assert strings
    long_name = content.find(b"x" * 30_000, strings.offset) - strings.offset
    for number in range(1, symbols.size // 24):
        struct.pack_into("<I", content, symbols.offset + number * 24, long_name)
    with pytest.raises(ElfError, match="longer than its string table"):
        read_elf(bytes(content))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    body = "void *malloc(unsigned long); void *f(void) { return malloc(1); } int g(void) { return 2; }"
    return library(tmp_path_factory.mktemp("elf") / "a.so", body=body).read_bytes()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.one_of(st.none(), st.floats(0, 1)),
    # the headers and tables are where damage counts: the first kilobytes, and the section headers at the end
    edits=st.lists(st.tuples(st.integers(-2000, 2500), st.integers(0, 255)), max_size=12),
)
def test_damage_is_an_error_with_words_or_nothing(
    small: bytes, cut: float | None, edits: list[tuple[int, int]]
) -> None:
    content = bytearray(small if cut is None else small[: int(cut * len(small))])
    for at, value in edits:
        if -len(content) <= at < len(content):
            content[at] = value
    started = time.process_time()
    with contextlib.suppress(ElfError):
        elf = read_elf(bytes(content))
        assert all(one.offset + one.size <= len(content) or not one.size for one in elf.sections)
    assert time.process_time() - started < 5


def test_every_truncation(small: bytes) -> None:
    for length in range(0, len(small), 61):
        with pytest.raises(ElfError):
            read_elf(small[:length])


def test_other_machines_are_named(small: bytes) -> None:
    content = bytearray(small)
    struct.pack_into("<H", content, 18, 183)
    assert read_ident(bytes(content)).machine == "aarch64"
    content[4] = 1
    assert read_ident(bytes(content)).bits == 32


def test_the_section_of_a_byte(tmp_path: Path) -> None:
    elf = read(library(tmp_path / "a.so"))
    text = elf.section(".text")
    assert text
    assert elf.section_at(text.offset) == text
    assert elf.section_at(1 << 40) is None
