"""Toy projects, and a real uv that may use nothing but a folder of wheels."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sglforge.base.files import sha256_file
from sglforge.base.index_locations import IndexLocations
from sglforge.build.execute import BuildPython
from sglforge.build.pep517 import build_wheel
from sglforge.config.lockfile import LockedFile, LockedRequirement
from sglforge.provision.uv import Uv, open_uv
from sglforge.sources.paths import copy_folder

PACKAGES = Path(__file__).parents[2] / "packages"


@pytest.fixture
def python() -> BuildPython:
    version = sys.version_info
    return BuildPython(path=Path(sys.executable), minor=f"{version.major}.{version.minor}")


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """The one folder that the test's uv finds wheels in."""
    folder = tmp_path / "links"
    folder.mkdir()
    return folder


@pytest.fixture
def uv(links: Path) -> Uv:
    return open_uv(IndexLocations(find_links=(str(links),), no_index=True), offline=True)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[str], Path]:
    """Copies a toy project, because builds may write into it."""

    def copy(name: str) -> Path:
        copy_folder(PACKAGES / name, tmp_path / "projects" / name)
        return tmp_path / "projects" / name

    return copy


@pytest.fixture
def toy_backend(
    links: Path, copy_of: Callable[[str], Path], python: BuildPython, uv: Uv, tmp_path: Path
) -> LockedRequirement:
    """The toy backend as a wheel in the folder of wheels, and its pin."""
    scratch = tmp_path / "toy-backend-scratch"
    scratch.mkdir()
    wheel = build_wheel(
        copy_of("toy-backend"),
        links,
        package="toy-backend",
        requires=(),
        python=python.path,
        python_minor=python.minor,
        uv=uv,
        scratch=scratch,
        log=tmp_path / "toy-backend.log",
    )
    file = LockedFile(name=wheel.name, sha256=sha256_file(wheel))
    return LockedRequirement(name="toy-backend", version="1.0", files=[file])


@pytest.fixture
def sdist_of(tmp_path: Path) -> Callable[[str], Path]:
    """Packs a toy project as its source archive."""

    def make(name: str) -> Path:
        archive = tmp_path / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as stream:
            stream.add(PACKAGES / name, arcname=name)
        return archive

    return make
