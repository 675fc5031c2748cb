"""Locked releases: which are meant, and the file that names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.config.lockfile import LockedFile
from sglforge.config.releases import Release, Releases, dump_releases, merged, read_releases, releases_path
from sglforge.errors import ConfigError, LockError

ROOT = Path(__file__).parents[3]


def release(version: str, digit: str = "0") -> Release:
    return Release(version=version, file=LockedFile(name=f"toy-{version}-py3-none-any.whl", sha256=digit * 64))


def releases(*versions: str) -> Releases:
    return merged("toy", (), [release(version) for version in versions])


def names(found: tuple[Release, ...]) -> list[str]:
    return [entry.version for entry in found]


def test_final_is_the_last_upload_of_each_version() -> None:
    known = releases("0.5.10", "0.5.9", "0.5.10.post2", "0.5.10.post10", "0.6.0rc1", "0.6.0")
    assert names(known.chosen([])) == ["0.5.9", "0.5.10.post10", "0.6.0rc1", "0.6.0"]
    assert names(known.chosen(["final"])) == names(known.chosen([]))
    assert names(known.chosen(["all"])) == ["0.5.9", "0.5.10", "0.5.10.post2", "0.5.10.post10", "0.6.0rc1", "0.6.0"]


def test_named_ones_come_in_the_order_of_versions_and_once() -> None:
    assert names(releases("1.2", "1.10", "1.9").chosen(["1.10", "1.2", "1.10"])) == ["1.2", "1.10"]


def test_one_that_is_not_locked_is_named_with_a_way_out() -> None:
    with pytest.raises(ConfigError) as caught:
        releases("0.5.22", "0.5.23").chosen(["0.5.24"])
    assert (caught.value.code, caught.value.exit_code) == ("unknown-release", 2)
    assert "--lock 0.5.24" in caught.value.hint


def test_locking_again_replaces_that_version_only() -> None:
    known = merged("toy", [release("1.0"), release("2.0")], [release("1.0", "a"), release("1.5")])
    assert [(entry.version, entry.file.sha256[0]) for entry in known.releases] == [
        ("1.0", "a"),
        ("1.5", "0"),
        ("2.0", "0"),
    ]


@given(st.lists(st.from_regex(r"[0-9]{1,3}\.[0-9]{1,2}(\.post[0-9])?", fullmatch=True), min_size=1, unique=True))
def test_what_is_written_is_read_the_same(versions: list[str]) -> None:
    made = releases(*versions)
    text = dump_releases(made)
    assert "://" not in text
    assert dump_releases(made) == text


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = releases_path(tmp_path, "toy")
    path.parent.mkdir()
    path.write_text(dump_releases(releases("0.5.9", "0.5.10.post1")))
    assert read_releases(path) == releases("0.5.9", "0.5.10.post1")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "lock-missing"),
        ("format = 2\n", "lock-invalid"),
        ("not toml", "lock-invalid"),
        ('format = 1\nproject = "toy"\nreleases = []\n', "lock-invalid"),
        (
            'format = 1\nproject = "toy"\n[[releases]]\nversion = "1"\nfile = { name = "a/b", sha256 = "0" }\n',
            "lock-invalid",
        ),
    ],
)
def test_a_broken_file_is_said_with_its_place(text: str | None, code: str, tmp_path: Path) -> None:
    path = tmp_path / "releases.toy.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LockError) as caught:
        read_releases(path)
    assert (caught.value.code, caught.value.exit_code) == (code, 3)
    assert str(path) in (caught.value.where or "")


def test_the_shipped_releases_are_those_that_the_series_is_tried_on() -> None:
    shipped = read_releases(releases_path(ROOT, "sglang"))
    assert len(shipped.chosen(["all"])) == 19
    assert names(shipped.chosen([])) == [
        "0.5.9", "0.5.10.post1", "0.5.11", "0.5.12.post1", "0.5.13.post1", "0.5.14", "0.5.15.post1",
        *(f"0.5.{minor}" for minor in range(16, 24)),
    ]  # fmt: skip
    assert dump_releases(shipped) == releases_path(ROOT, "sglang").read_text()
