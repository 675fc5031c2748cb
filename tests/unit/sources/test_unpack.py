"""Archives, honest and hostile: what is refused leaves nothing behind, inside or outside."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.errors import FetchError
from sglforge.sources.unpack import Limits, unpack, unsafe_name

Member = tuple[str | tarfile.TarInfo, bytes]


def make_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def make_tar(path: Path, *members: Member) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            if info.isreg():
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def tar_info(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def zip_info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder whose whole content the hostile tests watch."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def refused(archive: Path, home: Path, *, code: str = "unsafe-archive", **more: Limits) -> str:
    before = sorted(home.rglob("*"))
    with pytest.raises(FetchError) as caught:
        unpack(archive, home / "into", **more)
    assert caught.value.code == code
    assert sorted(home.rglob("*")) == before
    return caught.value.message


def test_a_wheel_is_unpacked_with_its_executable_bits(tmp_path: Path) -> None:
    program = zip_info("toy/run.sh", stat.S_IFREG | 0o775)
    wheel = make_zip(tmp_path / "toy-1-py3-none-any.whl", ("toy/__init__.py", b"x"), (program, b"y"), ("toy/e/", b""))
    root = unpack(wheel, tmp_path / "into")
    assert root == tmp_path / "into"
    assert (root / "toy" / "__init__.py").read_bytes() == b"x"
    assert (root / "toy" / "e").is_dir()
    assert stat.S_IMODE((root / "toy" / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "toy" / "__init__.py").stat().st_mode) == 0o644


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_source_archive_is_its_top_folder(kind: str, tmp_path: Path) -> None:
    if kind == "tar":
        set_id = tarfile.TarInfo("toy-1/run.sh")
        set_id.mode = 0o6755
        folder = tar_info("toy-1/", tarfile.DIRTYPE)
        dot = tar_info("./", tarfile.DIRTYPE)
        archive = make_tar(
            tmp_path / "toy-1.tar.gz", (dot, b""), (folder, b""), ("toy-1/setup.py", b"x"), (set_id, b"y")
        )
    else:
        program = zip_info("toy-1/run.sh", stat.S_IFREG | 0o6755)
        archive = make_zip(tmp_path / "toy-1.zip", ("toy-1/setup.py", b"x"), (program, b"y"))
    root = unpack(archive, tmp_path / "into")
    assert root == tmp_path / "into" / "toy-1"
    assert (root / "setup.py").read_bytes() == b"x"
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o755


def test_links_inside_survive(tmp_path: Path) -> None:
    archive = make_tar(
        tmp_path / "toy-1.tar.gz",
        (tar_info("toy-1/docs/link", tarfile.SYMTYPE, "../README"), b""),
        ("toy-1/README", b"x"),
        (tar_info("toy-1/dangling", tarfile.SYMTYPE, "nowhere"), b""),
    )
    root = unpack(archive, tmp_path / "into")
    assert (root / "docs" / "link").read_bytes() == b"x"
    assert (root / "dangling").is_symlink()


NAMES = {
    "traversal": "../evil",
    "traversal in the middle": "toy/../../evil",
    "absolute": "/tmp/evil",
    "drive": "C:evil",
    "backslash": "..\\evil",
    "control character": "toy/a\nb",
    "too long": "toy/" + "x" * 256,
    "only dots": "..",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_hostile_names(name: str, tmp_path: Path, home: Path) -> None:
    refused(make_tar(tmp_path / "a.tar.gz", ("toy/fine", b"x"), (name, b"evil")), home)
    refused(make_zip(tmp_path / "a.whl", ("toy/fine", b"x"), (name, b"evil")), home)


@pytest.mark.parametrize("name", [b"toy/a\0b", b"\0oy/aXb"])
def test_a_name_with_nul_is_refused(name: bytes, tmp_path: Path, home: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", ("toy/aXb", b"x"))
    wheel.write_bytes(wheel.read_bytes().replace(b"toy/aXb", name))
    refused(wheel, home)


LINKS = {
    "symlink out": [tar_info("toy/l", tarfile.SYMTYPE, "../../evil")],
    "symlink absolute": [tar_info("toy/l", tarfile.SYMTYPE, "/etc/passwd")],
    "symlink over another one": [
        tar_info("a/b/up", tarfile.SYMTYPE, "../.."),
        tar_info("out", tarfile.SYMTYPE, "a/b/up/../home"),
    ],
    "symlink circle": [tar_info("a", tarfile.SYMTYPE, "b"), tar_info("b", tarfile.SYMTYPE, "a")],
    "file through a symlink": [tar_info("toy/l", tarfile.SYMTYPE, ".."), tarfile.TarInfo("toy/l/evil")],
    "file that a symlink replaces": [tarfile.TarInfo("toy/l"), tar_info("toy/l", tarfile.SYMTYPE, "x")],
    "folder that a symlink replaces": [tarfile.TarInfo("toy/l/x"), tar_info("toy/l", tarfile.SYMTYPE, "..")],
    "hard link out": [tar_info("toy/l", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link": [tarfile.TarInfo("toy/a"), tar_info("toy/b", tarfile.LNKTYPE, "toy/a")],
    "character device": [tar_info("toy/null", tarfile.CHRTYPE)],
    "block device": [tar_info("toy/disk", tarfile.BLKTYPE)],
    "pipe": [tar_info("toy/pipe", tarfile.FIFOTYPE)],
    "folder over a file": [tarfile.TarInfo("toy"), tar_info("toy", tarfile.DIRTYPE)],
    "file under a file": [tarfile.TarInfo("toy"), tarfile.TarInfo("toy/x")],
}


@pytest.mark.parametrize("members", LINKS.values(), ids=LINKS)
def test_hostile_members(members: list[tarfile.TarInfo], tmp_path: Path, home: Path) -> None:
    refused(make_tar(tmp_path / "a.tar.gz", *((member, b"evil") for member in members)), home)


def test_a_symlink_in_a_wheel_is_refused(tmp_path: Path, home: Path) -> None:
    refused(make_zip(tmp_path / "a.whl", (zip_info("toy/l", stat.S_IFLNK | 0o777), b"../../evil")), home)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("toy/a", "toy/a"),
        ("toy/a", "toy//a"),
        ("toy/a", "toy/./a"),
        ("toy/a", "Toy/A"),
        ("\u00e9", "e\u0301"),
    ],
)
def test_names_that_collide(first: str, second: str, tmp_path: Path, home: Path) -> None:
    refused(make_zip(tmp_path / "a.whl", (first, b"1"), (second, b"2")), home)
    refused(make_tar(tmp_path / "a.tar.gz", (first, b"1"), (second, b"2")), home)


def test_an_encrypted_member_is_refused(tmp_path: Path, home: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", ("toy/a", b"x"))
    data = bytearray(wheel.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    wheel.write_bytes(data)
    assert "encrypted" in refused(wheel, home)


def test_a_zip_bomb_is_refused_before_it_is_written(tmp_path: Path, home: Path) -> None:
    wheel = make_zip(tmp_path / "bomb.whl", ("toy/zeros", bytes(128 * 2**20)))
    assert wheel.stat().st_size < 2**20
    assert "128 MiB" in refused(wheel, home)


def test_a_zip_that_understates_its_size_is_corrupt(tmp_path: Path, home: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", ("toy/a", bytes(100_000)))
    data = wheel.read_bytes().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    wheel.write_bytes(data)
    refused(wheel, home, code="archive-corrupt")


def test_a_tar_bomb_is_refused_before_it_is_written(tmp_path: Path, home: Path) -> None:
    header = tarfile.TarInfo("toy/zeros")
    header.size = 10 * 2**30
    archive = tmp_path / "bomb.tar.gz"
    with gzip.open(archive, "wb") as stream:
        stream.write(header.tobuf())
        stream.write(bytes(1024))
    assert "10240 MiB" in refused(archive, home)


def test_a_tar_header_that_asks_for_memory_is_refused(tmp_path: Path, home: Path) -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 4 * 2**30
    archive = tmp_path / "bomb.tar.gz"
    with gzip.open(archive, "wb") as stream:
        stream.write(header.tobuf())
        stream.write(bytes(1024))
    assert "block" in refused(archive, home)


def test_many_files_are_too_many(tmp_path: Path, home: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", *((f"toy/{n}", b"") for n in range(11)))
    assert "10 files" in refused(wheel, home, limits=Limits(files=10))
    assert unpack(wheel, home / "into", limits=Limits(files=12)) == home / "into"


@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
@pytest.mark.parametrize("keep", [0, 20, 0.5, 0.9])
def test_cut_archives_are_corrupt(suffix: str, keep: float, tmp_path: Path, home: Path) -> None:
    content = os.urandom(50_000)
    make = make_zip if suffix == ".whl" else make_tar
    archive = make(tmp_path / f"a{suffix}", ("toy/a", content))
    data = archive.read_bytes()
    archive.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    refused(archive, home, code="archive-corrupt")


def test_a_flipped_bit_is_corrupt(tmp_path: Path, home: Path) -> None:
    wheel = make_zip(tmp_path / "a.whl", ("toy/a", os.urandom(50_000)))
    data = bytearray(wheel.read_bytes())
    data[25_000] ^= 1
    wheel.write_bytes(data)
    refused(wheel, home, code="archive-corrupt")


def test_a_full_disk_is_named(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one fault here that is not real: filling a disk is not what a unit test does."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copyfileobj", full)
    refused(make_zip(tmp_path / "a.whl", ("toy/a", b"x")), home, code="disk-full")


@pytest.mark.parametrize("make", [make_zip, make_tar])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.text(alphabet="ab./\\:\n\u00c4\u00e4 ", min_size=1, max_size=12), max_size=4))
def test_whatever_the_names_nothing_is_written_outside(
    make: Callable[..., Path], names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "home").mkdir()
    suffix = ".whl" if make is make_zip else ".tar.gz"
    archive = make(folder / f"a{suffix}", *((name, b"x") for name in dict.fromkeys(names)))
    code = outcome(archive, folder / "home" / "into")
    assert code in {"", "unsafe-archive", "archive-corrupt"}
    assert code or all(unsafe_name(name) is None for name in names)
    assert {path.name for path in folder.iterdir()} == {"home", archive.name}
    assert [path.name for path in (folder / "home").iterdir()] == ([] if code else ["into"])


def outcome(archive: Path, into: Path) -> str:
    try:
        unpack(archive, into)
    except FetchError as error:
        return error.code
    return ""
