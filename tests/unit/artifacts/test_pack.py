"""Packing: judged by what other tools do with the result, not by our own reading of it."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from sglforge.artifacts.pack import extend_version, pack
from sglforge.artifacts.wheel import check_wheel
from sglforge.base.files import sha256_file
from sglforge.errors import BuildError

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
LABEL = "cpu.t0123abcd.p89abcdef"
NAME = f"toy_pack-0.5.23+{LABEL}-py2.py3-none-any.whl"
INFO = f"toy_pack-0.5.23+{LABEL}.dist-info"


def packed(tree: Path, out: Path, **exclude: str) -> Path:
    return pack(tree, out, local_version=LABEL, exclude=exclude, summary={"kind": "re-packed wheel"})


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.parametrize(
    ("version", "label", "expected"),
    [
        ("0.5.23", LABEL, f"0.5.23+{LABEL}"),
        ("2.13.0+cu130", LABEL, f"2.13.0+cu130.{LABEL}"),
        ("1!2.0RC1+Ubuntu-1", "sm-120.t00000001", "1!2.0rc1+ubuntu.1.sm.120.t00000001"),
        ("1.0.post1.dev2", "cpu.t12345678", "1.0.post1.dev2+cpu.t12345678"),
    ],
)
def test_versions_are_extended_and_normal(version: str, label: str, expected: str) -> None:
    assert extend_version(version, label) == expected
    assert extend_version(expected, "x").startswith(expected)


def test_our_own_check_finds_nothing(tree: Path, tmp_path: Path) -> None:
    wheel = packed(tree, tmp_path / "out")
    assert wheel == tmp_path / "out" / NAME
    assert check_wheel(wheel, python_minor=MINOR, project="Toy-Pack", import_name="toy_pack") == ()
    assert [path.name for path in wheel.parent.iterdir()] == [NAME]


def test_only_the_version_line_of_metadata_changes(tree: Path, tmp_path: Path) -> None:
    before = (tree / "toy_pack-0.5.23.dist-info" / "METADATA").read_bytes()
    wheel = packed(tree, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        after = archive.read(f"{INFO}/METADATA")
    assert after == before.replace(b"\nVersion: 0.5.23\r", f"\nVersion: 0.5.23+{LABEL}\r".encode())
    assert (tree / "toy_pack-0.5.23.dist-info" / "METADATA").read_bytes() == before


def test_record_is_right_by_an_independent_reading(tree: Path, tmp_path: Path) -> None:
    wheel = packed(tree, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        rows = list(csv.reader(archive.read(f"{INFO}/RECORD").decode().splitlines()))
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert len(rows) == len({row[0] for row in rows}) == len(contents)
    for name, digest, size in rows:
        if name.endswith("/RECORD"):
            assert (digest, size) == ("", "")
            continue
        plain = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).decode().rstrip("=")
        assert (digest, size) == (f"sha256={plain}", str(len(contents[name])))
    assert "toy_pack/sub/a, b.txt" in contents
    assert not [name for name in contents if name.endswith(".jws") or "0.5.23.d" in name]


def test_the_same_tree_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = packed(tree, tmp_path / "one")
    twin = tmp_path / "elsewhere" / "twin"
    shutil.copytree(tree, twin, copy_function=shutil.copy)
    for path in sorted(twin.rglob("*"), reverse=True):
        os.utime(path, (1_700_000_000, 1_700_000_000))
        if path.is_file() and not path.name.startswith("to"):
            path.chmod(0o600)
    (twin / "toy_pack" / "__pycache__").mkdir()
    (twin / "toy_pack" / "__pycache__" / "x.pyc").write_bytes(os.urandom(9))
    assert sha256_file(packed(twin, tmp_path / "two")) == sha256_file(first)
    (twin / "toy_pack" / "tool").chmod(0o644)
    assert sha256_file(packed(twin, tmp_path / "three")) != sha256_file(first)


def test_times_modes_and_order_are_fixed(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed(tree, tmp_path)) as archive:
        members = archive.infolist()
    assert {member.date_time for member in members} == {(1980, 1, 1, 0, 0, 0)}
    modes = {member.filename: stat.filemode(member.external_attr >> 16) for member in members}
    assert modes.pop("toy_pack/tool") == "-rwxr-xr-x"
    assert modes.pop(f"toy_pack-0.5.23+{LABEL}.data/scripts/toy-script") == "-rwxr-xr-x"
    assert set(modes.values()) == {"-rw-r--r--"}
    assert members[-1].filename == f"{INFO}/RECORD"
    content = [member.filename for member in members if not member.filename.startswith(INFO)]
    assert content == sorted(content)


def test_the_wheel_says_what_it_is(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed(tree, tmp_path)) as archive:
        assert json.loads(archive.read(f"{INFO}/sglforge.json")) == {"kind": "re-packed wheel"}


def test_packing_what_was_packed_extends_the_label(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed(tree, tmp_path)) as archive:
        archive.extractall(tmp_path / "again")
    wheel = pack(tmp_path / "again", tmp_path / "out", local_version="more", exclude={}, summary={})
    assert wheel.name == f"toy_pack-0.5.23+{LABEL}.more-py2.py3-none-any.whl"
    assert check_wheel(wheel, python_minor=MINOR) == ()
    same = pack(tmp_path / "again", tmp_path / "same", local_version="", exclude={}, summary={})
    assert same.name == NAME


def test_a_build_tag_stays(tree: Path, tmp_path: Path) -> None:
    info = tree / "toy_pack-0.5.23.dist-info" / "WHEEL"
    info.write_text(info.read_text() + "Build: 7local\n")
    assert packed(tree, tmp_path).name == f"toy_pack-0.5.23+{LABEL}-7local-py2.py3-none-any.whl"


def test_excluded_files_are_left_out_everywhere(tree: Path, tmp_path: Path) -> None:
    wheel = pack(tree, tmp_path, local_version=LABEL, exclude={"toy_pack/*.bin": "too big"}, summary={})
    assert "toy_pack/big.bin" not in names(wheel)
    assert check_wheel(wheel, python_minor=MINOR) == ()


@pytest.mark.parametrize("glob", ["toy_pack/*.so", "*.dist-info/METADATA"])
def test_an_exclude_that_does_nothing_is_an_error(glob: str, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="exclude-without-effect"):
        pack(tree, tmp_path / "out", local_version=LABEL, exclude={glob: "x"}, summary={})
    assert not (tmp_path / "out").exists()


def no_info(tree: Path) -> None:
    shutil.rmtree(tree / "toy_pack-0.5.23.dist-info")


def two_infos(tree: Path) -> None:
    (tree / "other-1.dist-info").mkdir()


def no_metadata(tree: Path) -> None:
    (tree / "toy_pack-0.5.23.dist-info" / "METADATA").unlink()


def no_version(tree: Path) -> None:
    (tree / "toy_pack-0.5.23.dist-info" / "METADATA").write_text("Name: x\n\nVersion: 1\n")


def bad_version(tree: Path) -> None:
    (tree / "toy_pack-0.5.23.dist-info" / "METADATA").write_text("Name: x\nVersion: one\n")


def bytes_version(tree: Path) -> None:
    (tree / "toy_pack-0.5.23.dist-info" / "METADATA").write_bytes(b"Name: x\nVersion: \xff\n")


def no_tags(tree: Path) -> None:
    (tree / "toy_pack-0.5.23.dist-info" / "WHEEL").write_text("Wheel-Version: 1.0\n")


def odd_tags(tree: Path) -> None:
    (tree / "toy_pack-0.5.23.dist-info" / "WHEEL").write_text("Tag: py2-none-any\nTag: cp311-abi3-linux_x\n")


def link(tree: Path) -> None:
    (tree / "toy_pack" / "link").symlink_to("/etc/passwd")


def folder_link(tree: Path) -> None:
    (tree / "toy_pack" / "link").symlink_to("/etc")


BROKEN = [
    no_info,
    two_infos,
    no_metadata,
    no_version,
    bad_version,
    bytes_version,
    no_tags,
    odd_tags,
    link,
    folder_link,
]


@pytest.mark.parametrize("harm", BROKEN)
def test_what_is_no_wheel_tree_is_refused(harm: object, tree: Path, tmp_path: Path) -> None:
    assert callable(harm)
    harm(tree)
    with pytest.raises(BuildError) as caught:
        packed(tree, tmp_path / "out")
    assert caught.value.code == "not-a-wheel-tree"


READ_BACK = """
import base64, hashlib, importlib.metadata as m, json
dist = m.distribution("toy-pack")
for file in dist.files:
    if file.hash is None:
        assert file.name.endswith((".pyc", "RECORD")) or "dist-info" in str(file), file
        continue
    found = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
    assert base64.urlsafe_b64encode(found).decode().rstrip("=") == file.hash.value, file
    assert file.locate().stat().st_size == file.size, file
print(json.dumps([dist.version, sorted(e.name for e in dist.entry_points), len(dist.files)]))
"""


@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.integration)])
def test_installers_take_it_and_agree_with_record(installer: str, tree: Path, tmp_path: Path) -> None:
    wheel = packed(tree, tmp_path / "out")
    env = tmp_path / "env"
    python = env / "bin" / "python"
    if installer == "uv":
        uv = find_uv_bin()
        run(uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(env))
        run(uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel))
    else:
        run(sys.executable, "-m", "venv", str(env))
        run(str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    version, commands, count = json.loads(run(str(python), "-I", "-c", READ_BACK))
    assert (version, commands) == (f"0.5.23+{LABEL}", ["toy-main"])
    assert count >= len(names(wheel))
    assert run(str(env / "bin" / "toy-main")) == "hello from the toy\n"
    assert run(str(env / "bin" / "toy-script")) == "from the script\n"
    assert (env / "etc" / "toy.conf").read_text() == "x"


def run(*argv: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    done = subprocess.run(argv, env=clean, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
