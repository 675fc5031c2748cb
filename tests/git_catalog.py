"""A catalog of toys that needs no package registry: sources are git repositories and a folder of files."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from calling import Called, call
from git_repositories import Repository, make_repository

PACKAGES = Path(__file__).parent / "packages"
MINOR = f"3.{sys.version_info.minor}"
BACKEND = (PACKAGES / "toy-backend" / "toy_backend.py").read_text()
PYPROJECT = """\
[build-system]
requires = []
build-backend = "toy_backend"
backend-path = ["."]

[project]
name = "{name}"
version = "1.0"
"""


@dataclass(frozen=True, kw_only=True)
class Mini:
    """The catalog, its workspace, the folder of files that pip is told to look into, and the repository."""

    root: Path
    workspace: Path
    links: Path
    home: Path
    repository: Repository

    def env(self) -> Mapping[str, str]:
        """Return the environment in which nothing of this machine's configuration counts."""
        return {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.links),
            "PIP_INDEX_URL": "",
            "PIP_EXTRA_INDEX_URL": "",
            "UV_CACHE_DIR": str(self.home / "uv"),
            "GIT_CONFIG_GLOBAL": str(self.home / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            **dict.fromkeys(("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"), ""),
        }

    def call(self, *words: str) -> Called:
        """Call a verb on the catalog."""
        more = ("--stack", "toys", "--target", "cpu", "--catalog", self.root)
        return call(*words, *more, workspace=self.workspace, env=self.env(), timeout_s=120)

    def stack(self, packages: str, requirements: str = "[]") -> None:
        """Write the stack: its packages as TOML."""
        text = f'name = "toys"\ndescription = "Toys."\n\n{packages}\n\n[environments.cpu]\n'
        text += f'torch = {{ version = "2.13.0", variant = "cpu" }}\npythons = ["{MINOR}"]\n'
        (self.root / "recipes/stacks/toys.toml").write_text(f"{text}requirements = {requirements}\n")

    def git_stack(self, *names: str, ref: str = "main", url: str = "", more: str = "") -> None:
        """Write a stack of packages that lie side by side in the repository."""
        entries = [
            f'[packages.{name}.source]\nkind = "git"\nurl = "{url or self.repository.url}"\nref = "{ref}"\n'
            f'subdirectory = "{name}"\nsource-paths = ["{name}"]\n{more}'
            for name in names
        ]
        self.stack("\n".join(entries))

    def recipe(self, name: str, *lines: str) -> None:
        """Write a package's recipe."""
        module = name.replace("-", "_")
        text = f'name = "{name}"\ndescription = "A toy."\nimport-name = "{module}"\n'
        (self.root / f"recipes/packages/{name}.toml").write_text(text + "\n".join(lines) + "\n")

    def lock_text(self) -> str:
        return (self.root / "locks/toys.cpu.lock.toml").read_text()


def toy_files(name: str, code: str = "def answer():\n    return 42\n") -> dict[str, str]:
    """Return the files of a package that builds itself, in a folder of its name."""
    module = name.replace("-", "_")
    return {
        f"{name}/pyproject.toml": PYPROJECT.format(name=name),
        f"{name}/toy_backend.py": BACKEND,
        f"{name}/src/{module}/__init__.py": code,
    }


def make_mini(folder: Path, *packages: str) -> Mini:
    """Make a catalog with packages from one git repository, which has a tag v1.0."""
    root = folder / "catalog"
    for name in ("packages", "targets", "stacks", "profiles"):
        (root / "recipes" / name).mkdir(parents=True)
    (root / "locks").mkdir()
    (root / "recipes/targets/cpu.toml").write_text(
        'name = "cpu"\ndescription = "No GPU."\nkind = "cpu"\nmin-memory-gib = 0.1\nmin-disk-gib = 0.1\n'
    )
    (folder / "links").mkdir()
    (folder / "home").mkdir()
    write_wheel(folder / "links", "torch", "2.13.0+cpu", {"torch/__init__.py": "__version__ = '2.13.0+cpu'\n"})
    repository = make_repository(folder / "upstream")
    repository.commit({name: text for package in packages for name, text in toy_files(package).items()}, "first")
    repository.git("tag", "v1.0")
    mini = Mini(
        root=root, workspace=folder / "workspace", links=folder / "links", home=folder / "home", repository=repository
    )
    for package in packages:
        mini.recipe(package)
    mini.git_stack(*packages)
    return mini


def write_wheel(folder: Path, project: str, version: str, files: Mapping[str, str]) -> Path:
    """Write a pure wheel that holds some files."""
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    content = {path: text.encode() for path, text in files.items()}
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode()
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{path},sha256={_hash(raw)},{len(raw)}\n" for path, raw in content.items()]
    content[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, raw in content.items():
            archive.writestr(path, raw)
    return wheel


def write_sdist(folder: Path, project: str, version: str, source: Path) -> Path:
    """Pack a folder as a source archive."""
    archive = folder / f"{project.replace('-', '_')}-{version}.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        stream.add(source, arcname=f"{project}-{version}")
    return archive


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
