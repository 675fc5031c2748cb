"""Files between launchers and the build: settings, the journal, peaks, ccache's log."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.base.exclusive import take
from sglforge.build.compiling import cache, journal, peaks
from sglforge.build.compiling import settings as told
from sglforge.build.compiling.journal import Line
from sglforge.build.compiling.report import CompileReport, Unit
from sglforge.build.compiling.settings import Settings
from sglforge.errors import ConfigError

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@given(
    text=TEXT,
    roots=st.lists(TEXT, max_size=3),
    patterns=st.lists(st.tuples(TEXT, st.integers(0, 9999)), max_size=3),
    variables=st.lists(st.tuples(TEXT.filter(lambda name: "=" not in name), TEXT), max_size=3),
    number=st.integers(0, 10**6),
)
def test_settings_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    roots: list[str],
    patterns: list[tuple[str, int]],
    variables: list[tuple[str, str]],
    number: int,
) -> None:
    written = Settings(
        ledger=text, journal=text, peaks=text, roots=tuple(roots), patterns=tuple(patterns), default_mib=number,
        groups=((1, text), (2, "/x y")), proc=text, jobs=number, fifo=text, ccache=text, inner=text,
        variables=tuple(variables),
    )  # fmt: skip
    file = tmp_path_factory.mktemp("settings") / "settings"
    file.write_bytes(told.dump(written))
    read = told.load(str(file))
    assert {name: getattr(read, name) for name in Settings.__slots__} == {
        name: getattr(written, name) for name in Settings.__slots__
    }


def test_a_setting_that_would_become_two_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        told.dump(Settings(ledger="a\0jobs=99", journal=""))


@given(st.lists(st.tuples(TEXT, st.integers(0, 10**6), st.booleans()), max_size=6))
def test_the_journal_tells_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, bool]]
) -> None:
    file = tmp_path_factory.mktemp("journal") / "journal"
    for unit, peak, tight in rows:
        journal.append(
            str(file),
            Line(unit=unit, outcome=journal.DONE, seconds=1.5, cpu_s=2.25, peak_mib=peak, waited_s=0.125, attempts=2,
                 waited_for="memory", tight=tight),
        )  # fmt: skip
    read = journal.parse(file.read_text(encoding="utf-8") if rows else "")
    assert [(line.unit, line.peak_mib, line.tight) for line in read] == rows
    assert all((line.seconds, line.cpu_s, line.waited_s, line.attempts) == (1.5, 2.25, 0.125, 2) for line in read)


def test_many_launchers_write_whole_lines(tmp_path: Path) -> None:
    file = str(tmp_path / "journal")

    def write(number: int) -> None:
        for _ in range(50):
            journal.append(file, Line(unit=f"{number}" * 40, outcome=journal.DONE))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.parse(Path(file).read_text())) == 400


@given(st.text(max_size=200))
def test_any_text_is_a_journal(text: str) -> None:
    journal.parse(text)
    journal.parse(f"done\tinf\t1\t1\t1\t0\t-\t1\t0\t{text}")
    journal.parse(f"done\t1\t1\t1\t1\t0\t-\t1\t0\t{text}")


def test_a_journal_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    journal.append(str(tmp_path / "none" / "journal"), Line(unit="x", outcome=journal.DONE))
    journal.append("/dev/full", Line(unit="x", outcome=journal.DONE))


def line(unit: str, mib: int, outcome: str = journal.DONE) -> Line:
    return Line(unit=unit, outcome=outcome, peak_mib=mib, tail_mib=mib // 2)


def test_peaks_are_learned_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "sm120" / "x.json"
    peaks.learn(file, [line("a", 100), line("b", 200), line("c", 5, journal.FAILED), line("d", 9, journal.REFUSED)])
    peaks.learn(file, [line("a", 90), line("e", 7000, journal.KILLED), line("f", 0)])
    assert peaks.load(file) == {"a": (90, 45), "b": (200, 100), "e": (7606, 3500)}
    peaks.learn(file, [])
    assert peaks.load(file) == {"a": (90, 45), "b": (200, 100), "e": (7606, 3500)}


def test_two_builds_that_learn_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    threads = [
        threading.Thread(target=peaks.learn, args=(file, [line(f"u{number}", number + 1)])) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peaks.load(file) == {f"u{number}": (number + 1, (number + 1) // 2) for number in range(8)}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 2, "units": {"a": [1, 1]}}', '{"schema": 1, "units": []}', "[" * 100_000, "\0"],
)
def test_damaged_peaks_count_as_not_there(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    assert peaks.load(file) == {}
    peaks.learn(file, [line("a", 3)])
    assert peaks.load(file) == {"a": (3, 1)}


def test_peaks_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    odd = {
        "a": [0, 0], "b": [-5, -6], "c": [True, 0], "d": ["9", 1], "e": [1.5, 1], "f": [10**9, 1], "g": [12, 7],
        "h": [5, 6], "i": [5], "j": 5, "k": [5, 1, 1], "l": [5, -1],
    }  # fmt: skip
    file.write_text(json.dumps({"schema": 1, "units": odd}))
    assert peaks.load(file) == {"g": (12, 7)}


def test_a_stopped_writer_of_peaks_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    monkeypatch.setattr(peaks, "LOCK_S", 0.1)
    assert take(tmp_path / "x.json.lock") is not None
    peaks.learn(file, [line("a", 3)])
    assert peaks.load(file) == {"a": (3, 1)}


LOG = """# csrc/page.cu
cache_miss
direct_cache_miss
local_storage_read_miss
remote_storage_miss
remote_storage_read_miss
local_storage_write
remote_storage_write
# csrc/page.cu
direct_cache_hit
local_storage_hit
local_storage_read_hit
# csrc/norm.cu
direct_cache_hit
local_storage_miss
remote_storage_hit
remote_storage_read_hit
local_storage_write
# csrc/rope.cu
cache_miss
direct_cache_miss
remote_storage_error
# x.cu
unsupported_compiler_option
# y.cu
compile_failed
cache_miss
"""


def test_hits_and_misses_are_counted_from_ccaches_log() -> None:
    found = cache.statistics(LOG)
    assert (found.hits, found.misses, found.remote_hits) == (2, 3, 1)
    assert found.sources == ("csrc/page.cu", "csrc/norm.cu")
    assert found.other == {"remote_storage_error": 1, "unsupported_compiler_option": 1}


@given(st.text(max_size=100))
def test_any_text_is_a_log(text: str) -> None:
    cache.statistics(text)


@pytest.mark.parametrize("size", ["0", "5G", "50Gi", "1.5T", " 7M "])
def test_a_size_goes_to_ccache_as_it_is(size: str) -> None:
    assert cache.limit({cache.SIZE: size}) == size.strip()


@pytest.mark.parametrize("size", ["banana", "-1G", "5 g", "5G --clear", "1e9"])
def test_what_is_no_size_is_refused_before_anything_compiles(size: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cache.limit({cache.SIZE: size})
    assert refused.value.code == "compile-cache-invalid"
    assert cache.SIZE in refused.value.message


def test_the_cache_has_a_limit_of_its_own() -> None:
    assert cache.limit({}) == cache.limit({cache.SIZE: ""}) == cache.DEFAULT_SIZE


def test_a_report_tells_what_a_person_must_know() -> None:
    killed = Line(unit="heavy.o", outcome=journal.DONE, peak_mib=6400, seconds=20.0, attempts=2)
    over = Line(unit="huge.o", outcome=journal.REFUSED, peak_mib=19000)
    fine = Line(unit="light.o", outcome=journal.DONE, peak_mib=300, cpu_s=1.5, waited_s=2.0, waited_for="memory")
    report = CompileReport(
        units=tuple(map(Unit.of, (killed, over, fine))), cache=cache.statistics(LOG), engine="ccache 4.7.5"
    )
    assert [unit.name for unit in report.retried] == ["heavy.o"]
    assert [unit.name for unit in report.refused] == ["huge.o"]
    assert len(report.describe()) == 2
    document = json.loads(json.dumps(report.to_json()))
    assert (document["units"], document["waited_seconds"], document["peak_mib"]) == (3, 2.0, 19000)
    assert (document["cache"]["hits"], document["cache"]["misses"]) == (2, 3)
    assert CompileReport(without="there is no ccache on PATH").to_json()["cache"] == {
        "engine": None,
        "why": "there is no ccache on PATH",
    }
