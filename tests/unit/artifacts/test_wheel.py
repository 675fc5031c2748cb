"""Checking wheels: every kind of lie is found, and all of them in one pass."""

from __future__ import annotations

import stat
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglforge.artifacts.pack import pack
from sglforge.artifacts.wheel import check_wheel, read_wheel
from sglforge.errors import CheckError

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
INFO = "toy_pack-0.5.23.dist-info"

Members = dict[str, bytes]


@pytest.fixture
def wheel(tree: Path, tmp_path: Path) -> Path:
    return pack(tree, tmp_path / "out", local_version="", exclude={}, summary={})


def rewrite(wheel: Path, change: Callable[[Members], None], name: str | None = None) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    change(members)
    target = wheel.with_name(name or wheel.name)
    with zipfile.ZipFile(target, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return target


def codes(wheel: Path, **more: Any) -> set[str]:
    return {finding.code for finding in check_wheel(wheel, python_minor=MINOR, **more)}


def test_a_wheel_is_read(wheel: Path) -> None:
    info = read_wheel(wheel)
    assert (info.name, str(info.version), info.build) == ("toy-pack", "0.5.23", "")
    assert sorted(map(str, info.tags)) == ["py2-none-any", "py3-none-any"]
    assert info.root_is_purelib
    assert info.dist_info == INFO


def test_a_good_wheel_has_no_findings(wheel: Path) -> None:
    assert codes(wheel, project="toy.pack", import_name="toy_pack.sub") == set()


def test_a_file_that_changed_is_found(wheel: Path) -> None:
    def change(members: Members) -> None:
        members["toy_pack/__init__.py"] += b"evil()\n"

    (finding,) = check_wheel(rewrite(wheel, change), python_minor=MINOR)
    assert finding.code == "wheel-record"
    assert finding.message == "toy_pack/__init__.py is not what was recorded"


def test_files_beside_record_and_missing_ones_are_found(wheel: Path) -> None:
    def change(members: Members) -> None:
        members["toy_pack/extra.py"] = b""
        del members["toy_pack/tool"]

    (finding,) = check_wheel(rewrite(wheel, change), python_minor=MINOR)
    assert finding.detail == ("toy_pack/tool is missing", "toy_pack/extra.py is not recorded")


@pytest.mark.parametrize("record", [None, b"no table", b"\xff\xfe", b"toy_pack/tool,md5=abc,4\n"])
def test_a_record_that_proves_nothing_is_found(wheel: Path, record: bytes | None) -> None:
    def change(members: Members) -> None:
        del members[f"{INFO}/RECORD"]
        if record is not None:
            members[f"{INFO}/RECORD"] = record

    assert codes(rewrite(wheel, change)) == {"wheel-record"}


def test_a_long_list_is_cut(wheel: Path) -> None:
    def change(members: Members) -> None:
        members.update({f"toy_pack/extra_{number}.py": b"" for number in range(30)})

    (finding,) = check_wheel(rewrite(wheel, change), python_minor=MINOR)
    assert finding.detail[-1] == "and 10 more"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("METADATA", b"Version: 0.5.23", b"Version: 0.5.24"),
        ("METADATA", b"Name: toy.Pack", b"Name: other"),
        ("METADATA", b"Version: 0.5.23", b"Version: none at all"),
        ("WHEEL", b"Wheel-Version: 1.0", b"Wheel-Version: 2.0"),
    ],
)
def test_metadata_that_says_something_else_is_found(wheel: Path, file: str, old: bytes, new: bytes) -> None:
    def change(members: Members) -> None:
        members[f"{INFO}/{file}"] = members[f"{INFO}/{file}"].replace(old, new, 1)

    assert codes(rewrite(wheel, change)) == {"wheel-metadata", "wheel-record"}


def test_another_project_version_or_module_is_found(wheel: Path) -> None:
    findings = check_wheel(wheel, python_minor=MINOR, project="other", version="0.0.0", import_name="other")
    assert [finding.code for finding in findings] == ["wheel-metadata", "wheel-import"]
    assert findings[0].detail == (
        "it is of project toy-pack, wanted is other",
        "it is version 0.5.23, wanted is 0.0.0",
    )
    assert codes(wheel, version="0.5.23+cu130") == set()


@pytest.mark.parametrize("tag", ["any", "py3-none", "\u00fc-none-any"])
def test_a_tag_that_is_none_is_found(wheel: Path, tag: str) -> None:
    def change(members: Members) -> None:
        members[f"{INFO}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {tag}\n".encode()
        members[f"{INFO}/METADATA"] = b"Name: \xff\nVersion: \xff\n"

    assert codes(rewrite(wheel, change)) == {"wheel-metadata", "wheel-record", "wheel-tags"}


def test_a_renamed_wheel_is_found(wheel: Path) -> None:
    renamed = rewrite(wheel, lambda _: None, "toy_pack-0.5.24-py2.py3-none-any.whl")
    assert codes(renamed) == {"wheel-metadata"}
    renamed = rewrite(wheel, lambda _: None, "toy_pack-0.5.23-py3-none-any.whl")
    assert codes(renamed) == {"wheel-tags"}


def test_a_wheel_for_another_machine_is_found(tree: Path, tmp_path: Path) -> None:
    text = "Wheel-Version: 1.0\nTag: cp311-cp311-win_amd64\n"
    (tree / INFO / "WHEEL").write_text(text)
    wheel = pack(tree, tmp_path / "out", local_version="", exclude={}, summary={})
    (finding,) = check_wheel(wheel, python_minor="3.11")
    assert finding.code == "wheel-tags"
    assert "does not fit Python 3.11" in finding.message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicates_and_unsafe_names_are_found(wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("toy_pack/__init__.py", b"second")
        archive.writestr("../evil.py", b"")
    findings = {finding.code: finding for finding in check_wheel(wheel, python_minor=MINOR)}
    assert set(findings["wheel-members"].detail) == {
        "toy_pack/__init__.py is there 2 times",
        "'../evil.py' climbs out of the folder",
    }


def test_a_link_in_a_wheel_is_found(wheel: Path) -> None:
    link = zipfile.ZipInfo("toy_pack/link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert codes(wheel) == {"wheel-members", "wheel-record"}


def test_what_is_no_wheel_is_said(tmp_path: Path, wheel: Path) -> None:
    text = tmp_path / "toy-1.0-py3-none-any.whl"
    text.write_text("a login page")
    assert codes(text) == {"wheel-unreadable"}
    assert codes(tmp_path / "absent-1.0-py3-none-any.whl") == {"wheel-unreadable"}
    assert codes(tmp_path / "no-wheel-name.whl") == {"wheel-metadata"}
    bare = tmp_path / "bare-1.0-py3-none-any.whl"
    with zipfile.ZipFile(bare, "w") as archive:
        archive.writestr("bare.py", "")
    assert codes(bare) == {"wheel-metadata"}
    with pytest.raises(CheckError, match="wheel-metadata"):
        read_wheel(bare)

    def no_wheel_file(members: Members) -> None:
        del members[f"{INFO}/WHEEL"]

    def no_metadata_file(members: Members) -> None:
        del members[f"{INFO}/METADATA"]

    assert codes(rewrite(wheel, no_metadata_file)) == {"wheel-metadata", "wheel-record"}
    assert codes(rewrite(wheel, no_wheel_file)) == {"wheel-metadata"}


def test_damaged_and_encrypted_content_is_said(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    start = data.index(b"toy_pack/big.bin") + 2000
    good = bytes(data)
    data[start : start + 50] = bytes(50)
    wheel.write_bytes(data)
    assert codes(wheel) == {"wheel-unreadable"}
    data = bytearray(good)
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    wheel.write_bytes(data)
    assert codes(wheel) == {"wheel-unreadable"}
