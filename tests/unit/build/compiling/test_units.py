"""Names of units, patterns, and what is set aside for them."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.build.compiling import peaks, units


def test_a_unit_is_named_below_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path / "build")
    roots = ("/elsewhere", str(tmp_path / "build"))
    assert units.name("page/page.cuda.o", roots) == "page/page.cuda.o"
    assert units.name(f"{tmp_path}/build/./page/../page/x.o", roots) == "page/x.o"
    assert units.name("../other/deep/page/x.o", roots) == "page/x.o"
    assert units.name("x.o", ("/",)) == f"{tmp_path}/build/x.o"[1:]


@given(text=st.text("ab/.o", max_size=8), glob=st.text("ab/.*", max_size=8))
def test_patterns_are_those_of_fnmatch_with_stars_only(text: str, glob: str) -> None:
    assert units.matches(text, glob) == fnmatch.fnmatchcase(text, glob)


def test_what_was_measured_goes_before_the_first_pattern_before_the_default() -> None:
    patterns = (("*/heavy*", 9000), ("fused*", 5000), ("*", 10))
    assert units.expected_mib("m/heavy_1.o", 300, patterns, 4096) == 300
    assert units.expected_mib("fused/heavy_1.o", None, patterns, 4096) == 9000
    assert units.expected_mib("fused/light.o", None, patterns, 4096) == 5000
    assert units.expected_mib("x.o", None, patterns[:2], 4096) == 4096


def test_a_measured_unit_that_fits_is_never_asked_for_more_than_there_is() -> None:
    assert units.reserved_mib(1000, measured=True, capacity_mib=8000) == 1101
    assert units.reserved_mib(1000, measured=False, capacity_mib=8000) == 1000
    assert units.reserved_mib(7900, measured=True, capacity_mib=8000) == 8000
    assert units.reserved_mib(8100, measured=True, capacity_mib=8000) == 8000


def test_what_once_fitted_alone_is_not_refused_for_the_margin() -> None:
    assert units.fits(8000, measured=False, capacity_mib=8000)
    assert not units.fits(8001, measured=False, capacity_mib=8000)
    assert units.fits(8256, measured=True, capacity_mib=8000)
    assert not units.fits(8257, measured=True, capacity_mib=8000)


UNIT = st.text(min_size=1, max_size=12).filter(lambda name: not set(name) & set("\n\t") and name.isprintable())


@given(known=st.dictionaries(UNIT, st.tuples(st.integers(1, 99_999), st.integers(0, 99_999)), max_size=5), asked=UNIT)
def test_a_peak_is_found_by_the_whole_name_only(
    known: dict[str, tuple[int, int]], asked: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("peaks") / "table"
    file.write_bytes(peaks.table(known))
    assert units.measured_mib(str(file), asked) == known.get(asked)
    assert all(units.measured_mib(str(file), name) == pair for name, pair in known.items())


def test_without_a_table_nothing_was_measured(tmp_path: Path) -> None:
    assert units.measured_mib(str(tmp_path / "none"), "x.o") is None
    (tmp_path / "odd").write_bytes(b"x.o\tmany\t1\n\xff\nx.o\t5\n")
    assert units.measured_mib(str(tmp_path / "odd"), "x.o") is None
