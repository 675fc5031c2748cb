"""Against the package index that this machine's pip uses: pin, fetch, unpack, build with real backends."""

from __future__ import annotations

import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sglforge.artifacts.wheel import check_wheel
from sglforge.base.files import sha256_file
from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.build.pep517 import build_wheel
from sglforge.config.lockfile import LockedRequirement
from sglforge.config.model import SdistSource, WheelSource
from sglforge.errors import FetchError
from sglforge.host.package_index import read
from sglforge.provision.uv import open_uv
from sglforge.sources.fetch import fetch
from sglforge.sources.paths import copy_folder
from sglforge.sources.pin import pin
from sglforge.sources.unpack import unpack

pytestmark = pytest.mark.integration

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = Path(__file__).parents[1] / "packages"


@pytest.fixture(scope="module")
def locations() -> IndexLocations:
    return read()


def requires(project: str) -> list[LockedRequirement]:
    pins: Mapping[str, list[object]] = tomllib.loads((PACKAGES / "build-requires.toml").read_text())
    return [LockedRequirement.model_validate(pin) for pin in pins[project]]


def test_a_released_wheel_is_pinned_fetched_and_fit(locations: IndexLocations, tmp_path: Path) -> None:
    source = WheelSource(kind="wheel", project="packaging", version="25.0")
    locked = pin(source, [MINOR], locations)
    (file,) = locked.files
    assert file.name == "packaging-25.0-py3-none-any.whl"
    assert file.sha256 == requires("pure-hatchling")[1].files[0].sha256
    archive = fetch(
        locked,
        package="packaging",
        python_minor=MINOR,
        locations=locations,
        workspace=Workspace(root=tmp_path),
    )
    assert check_wheel(archive.path, python_minor=MINOR, project="packaging", import_name="packaging") == ()


def test_a_released_sdist_is_fetched_as_a_file_and_unpacked(locations: IndexLocations, tmp_path: Path) -> None:
    source = SdistSource(kind="sdist", project="packaging", version="25.0")
    locked = pin(source, [MINOR], locations)
    archive = fetch(
        locked,
        package="packaging",
        python_minor=MINOR,
        locations=locations,
        workspace=Workspace(root=tmp_path),
    )
    root = unpack(archive.path, tmp_path / "tree")
    assert (root / "pyproject.toml").is_file()
    assert root.name == "packaging-25.0"


def test_a_release_that_does_not_exist_is_said(locations: IndexLocations) -> None:
    with pytest.raises(FetchError) as caught:
        pin(WheelSource(kind="wheel", project="packaging", version="0.0.0.1"), [MINOR], locations)
    assert caught.value.code == "not-on-index"


def hatchling_folder(tmp_path: Path) -> Path:
    copy_folder(PACKAGES / "pure-hatchling", tmp_path / "source")
    return tmp_path / "source"


def cpu_kernels(tmp_path: Path) -> Path:
    copy_folder(PACKAGES.parents[1] / "kernels" / "sgl-kernel-cpu", tmp_path / "source")
    return tmp_path / "source"


def setuptools_sdist(tmp_path: Path) -> Path:
    archive = tmp_path / "toy-setuptools-2.0.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        stream.add(PACKAGES / "setuptools-sdist", arcname="toy-setuptools-2.0")
    return unpack(archive, tmp_path / "source")


@pytest.mark.parametrize(
    ("project", "bring", "name", "module"),
    [
        ("pure-hatchling", hatchling_folder, "toy_hatchling-1.2-py3-none-any.whl", "toy_hatchling"),
        ("pure-hatchling", cpu_kernels, "sglforge_sgl_kernel_cpu-0.1.0-py3-none-any.whl", "sgl_kernel"),
        ("setuptools-sdist", setuptools_sdist, "toy_setuptools-2.0-py3-none-any.whl", "toy_setuptools"),
    ],
)
def test_real_backends_build_the_same_wheel_twice_then_offline(
    project: str,
    bring: Callable[[Path], Path],
    name: str,
    module: str,
    locations: IndexLocations,
    tmp_path: Path,
) -> None:
    hashes = set()
    for number, offline in enumerate((False, True)):
        folder = tmp_path / str(number)
        (folder / "scratch").mkdir(parents=True)
        wheel = build_wheel(
            bring(folder),
            folder / "out",
            package=project,
            requires=requires(project),
            python=Path(sys.executable),
            python_minor=MINOR,
            uv=open_uv(locations, offline=offline),
            scratch=folder / "scratch",
            log=folder / "build.log",
        )
        assert wheel.name == name
        assert check_wheel(wheel, python_minor=MINOR, import_name=module) == ()
        hashes.add(sha256_file(wheel))
    assert len(hashes) == 1
