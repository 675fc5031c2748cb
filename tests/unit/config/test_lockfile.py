"""Locks: written and read back the same, readable, without a URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.base.files import digest
from sglforge.config.lockfile import (
    Lock,
    LockedArchive,
    LockedFile,
    LockedGit,
    LockedPath,
    LockedPython,
    LockedRequirement,
    LockedSource,
    LockedSubmodule,
    LockedTorch,
    dump_lock,
    lock_path,
    read_lock,
)
from sglforge.errors import LockError

NAMES = st.from_regex(r"\A[a-z0-9]+(?:-[a-z0-9]+)?\Z", fullmatch=True).filter(lambda name: len(name) <= 64)
HASHES = st.from_regex(r"\A[0-9a-f]{64}\Z", fullmatch=True)
VERSIONS = st.from_regex(r"\A[0-9]{1,3}(?:\.[0-9]{1,3})?\Z", fullmatch=True)
# what a distribution says of itself may be any text
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FILES = st.builds(
    LockedFile, name=st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._+!-]{0,20}\Z", fullmatch=True), sha256=HASHES
)
ARCHIVES = st.lists(FILES, min_size=1, max_size=3)
REQUIREMENTS = st.builds(LockedRequirement, name=WORDS, version=WORDS, files=ARCHIVES)
RELEASES = st.builds(
    LockedArchive, kind=st.sampled_from(["wheel", "sdist"]), project=WORDS, version=VERSIONS, files=ARCHIVES
)
IDS = st.from_regex(r"\A[0-9a-f]{40}(?:[0-9a-f]{24})?\Z", fullmatch=True)
FOLDERS = st.from_regex(r"\A[A-Za-z0-9_]{1,8}(?:/[A-Za-z0-9_.+-]{0,0}[A-Za-z0-9_]{1,8})?\Z", fullmatch=True)
INNER_PATHS = st.from_regex(r"\A\.?[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,9}(?:/\.\.x)?\Z", fullmatch=True).filter(
    lambda path: not any("\ud800" <= sign <= "\udfff" for sign in path)
)
URLS = st.from_regex(
    r"\A(?:/|[^-/:\x00-\x20\x7f][^/:\x00-\x20\x7f]{0,5}:)[^\x00-\x20\x7f]{0,20}\Z", fullmatch=True
).filter(lambda url: not any("\ud800" <= sign <= "\udfff" for sign in url))
COMMITS = st.builds(
    LockedGit,
    kind=st.just("git"),
    url=URLS,
    ref=st.from_regex(r"\A[A-Za-z0-9_]{1,8}(?:[/.-][A-Za-z0-9_]{1,8})?\Z", fullmatch=True),
    commit=IDS,
    described=st.from_regex(r"\A[a-z0-9.-]{1,20}\Z", fullmatch=True),
    version=VERSIONS,
    paths=st.lists(st.builds(LockedPath, path=st.one_of(FOLDERS, st.just(".")), id=IDS), min_size=1, max_size=3),
    submodules=st.lists(st.builds(LockedSubmodule, path=INNER_PATHS, url=URLS, commit=IDS), max_size=2),
)
SOURCES = st.one_of(RELEASES, COMMITS)
PYTHONS = st.builds(
    LockedPython,
    minor=st.from_regex(r"\A3\.[0-9]{1,2}\Z", fullmatch=True),
    torch=st.builds(
        LockedTorch,
        version=VERSIONS,
        variant=st.sampled_from(["cpu", "cu130"]),
        sha256=st.lists(HASHES, max_size=2),
    ),
    requirements=st.lists(REQUIREMENTS, max_size=3),
)
LOCKS = st.builds(
    Lock,
    format=st.just(1),
    stack=NAMES,
    target=NAMES,
    sources=st.dictionaries(NAMES, SOURCES, max_size=2),
    build_requires=st.dictionaries(NAMES, st.lists(REQUIREMENTS, min_size=1, max_size=2), max_size=2),
    pythons=st.lists(PYTHONS, min_size=1, max_size=2),
)


def small_lock() -> Lock:
    def files(*names: str) -> list[LockedFile]:
        return [LockedFile(name=name, sha256=digest(name)) for name in names]

    return Lock(
        format=1,
        stack="release-0.5.23",
        target="cpu",
        sources={
            "sglang": LockedArchive(
                kind="wheel", project="sglang", version="0.5.23", files=files("b-py3.whl", "a-py3.whl")
            )
        },
        build_requires={
            "sgl-kernel-cpu": [LockedRequirement(name="hatchling", version="1.27.0", files=files("hatchling.whl"))]
        },
        pythons=[
            LockedPython(
                minor="3.11",
                torch=LockedTorch(version="2.13.0", variant="cpu", sha256=[digest("torch")]),
                requirements=[
                    LockedRequirement(name="numpy", version="2.4.6", files=files("numpy.whl")),
                    LockedRequirement(name="aiohttp", version="3.14.5", files=files("aiohttp.whl")),
                ],
            )
        ],
    )


# a busy machine is no fault of the lock
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(LOCKS)
def test_a_lock_is_read_back_as_it_was_and_written_the_same(
    tmp_path_factory: pytest.TempPathFactory, lock: Lock
) -> None:
    path = tmp_path_factory.getbasetemp() / "x.lock.toml"
    text = dump_lock(lock)
    path.write_text(text, newline="")
    read = read_lock(path)
    assert dump_lock(read) == text
    assert {name: _parts(source) for name, source in read.sources.items()} == {
        name: _parts(source) for name, source in lock.sources.items()
    }
    assert [sorted(map(_plain, python.requirements)) for python in read.pythons] == [
        sorted(map(_plain, python.requirements)) for python in lock.pythons
    ]
    assert [python.torch.sha256 for python in read.pythons] == [sorted(python.torch.sha256) for python in lock.pythons]


def _parts(source: LockedSource) -> tuple[str, set[str]]:
    if isinstance(source, LockedArchive):
        return f"{source.kind} {source.project} {source.version}", set(map(repr, source.files))
    told = f"{source.url} {source.ref} {source.commit} {source.described} {source.version}"
    return told, {*map(repr, source.paths), *map(repr, source.submodules)}


def _plain(requirement: LockedRequirement) -> tuple[str, str, list[str]]:
    return requirement.name, requirement.version, sorted(map(repr, requirement.files))


def test_every_file_has_one_line_and_the_order_is_sorted() -> None:
    text = dump_lock(small_lock())
    assert text.startswith("# Generated by `nox -s lock`; never edited by hand.\n")
    lines = [line for line in text.splitlines() if ".whl" in line]
    assert [line.split('"')[1] for line in lines] == [
        "a-py3.whl",
        "b-py3.whl",
        "hatchling.whl",
        "aiohttp.whl",
        "numpy.whl",
    ]
    assert all("sha256" in line for line in lines)


def test_the_order_of_what_is_named_does_not_matter() -> None:
    lock = small_lock()
    sources = {"other": lock.sources["sglang"], **lock.sources}
    turned = dict(reversed(sources.items()))
    assert list(turned) != list(sources)
    assert dump_lock(lock.model_copy(update={"sources": sources})) == dump_lock(
        lock.model_copy(update={"sources": turned})
    )


def test_a_url_cannot_enter_a_lock(tmp_path: Path) -> None:
    path = lock_path(tmp_path, "first", "cpu")
    path.parent.mkdir()
    path.write_text(dump_lock(small_lock()).replace('"numpy.whl"', '"https://index.invalid/numpy.whl"'))
    with pytest.raises(LockError) as caught:
        read_lock(path)
    assert caught.value.code == "lock-invalid"
    (finding,) = caught.value.findings
    assert finding.code == "invalid-value"
    assert finding.hint.endswith("make it again: nox -s lock")
    assert "https://index.invalid/numpy.whl" in finding.message
    assert finding.where is not None
    assert finding.where.startswith(f"{path}:")


def test_every_fault_of_a_lock_is_found(tmp_path: Path) -> None:
    path = lock_path(tmp_path, "first", "cpu")
    path.parent.mkdir()
    text = dump_lock(small_lock()).replace('variant = "cpu"', 'variants = "cpu"').replace(digest("numpy.whl"), "beef")
    path.write_text(text)
    with pytest.raises(LockError) as caught:
        read_lock(path)
    assert [finding.code for finding in caught.value.findings] == [
        "missing-key",
        "unknown-key",
        "invalid-value",
    ]
    assert caught.value.exit_code == 3


def test_a_missing_lock_says_how_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(LockError) as caught:
        read_lock(lock_path(tmp_path, "release-0.5.23", "sm120"))
    assert caught.value.code == "lock-missing"
    assert caught.value.message == "stack `release-0.5.23` has no lock for target `sm120`"
    assert caught.value.hint == "nox -s lock -- --stack release-0.5.23 --target sm120"


def test_a_lock_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "first.cpu.lock.toml"
    path.write_text(dump_lock(small_lock()).replace("format = 1", "format = 2"))
    with pytest.raises(LockError) as caught:
        read_lock(path)
    assert caught.value.findings[0].message == "`format`: 2 is none of 1"
