"""A whole catalog of tiny packages in a folder, with everything that it takes from outside beside it.

One package of every kind of source, a patch series, a torch of one line and two plain requirements. Nothing comes over
a network, and a package builds in a second.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TOY_BACKEND = Path(__file__).parents[1] / "packages" / "toy-backend"
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
EPOCH = 1_700_000_000

TARGET = """\
name = "cpu"
description = "Any machine."
kind = "cpu"
default-stack = "mini"
min-memory-gib = 0.1
min-disk-gib = 0.001
"""
RECIPE = """\
name = "{name}"
description = "A toy."
import-name = "{module}"
build-requires = ["toy-backend>=1"]
toolchain = ["python-abi"]
"""
STACK = """\
name = "mini"
description = "Tiny packages of every kind."
{packages}
[environments.cpu]
torch = {{ version = "1.0.0", variant = "cpu" }}
pythons = ["{minor}"]
requirements = ["plain-one", "plain-two==2.0"]
"""
TOPIC = """\
description = "Give a second answer."
origin = "sglforge"
reason = "One is not enough."
reference = "toy_wheel/__init__.py"
forwarded = "not-needed"
versions = ">=1"

[[edits]]
kind = "python"
file = "toy_wheel/__init__.py"
operation = "append-to-body"
payload = "payload/more.py"
"""
PROJECT = """\
[build-system]
requires = ["toy-backend>=1"]
build-backend = "toy_backend"

[project]
name = "{name}"
version = "{version}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniCatalog:
    """The catalog's root, the folder of wheels that it takes from, and its packages in build order."""

    root: Path
    links: Path
    packages: tuple[str, ...]

    @property
    def lock(self) -> Path:
        return self.root / "locks" / "mini.cpu.lock.toml"

    def environment(self) -> dict[str, str]:
        """Return the variables that keep pip and uv to the folder of wheels."""
        return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.links)}


def make(folder: Path) -> MiniCatalog:
    """Write the catalog, without a lock, the wheels, and the repository."""
    links, root = folder / "links", folder / "catalog"
    links.mkdir(parents=True)
    _wheels(links)
    url = _repository(folder / "upstream")
    paths = 'source-paths = ["python", "shared"], subdirectory = "python"'
    sources = {
        "toy-wheel": 'source = { kind = "wheel", project = "toy-wheel", version = "1.0" }',
        "toy-sdist": 'source = { kind = "sdist", project = "toy-sdist", version = "1.1" }',
        "toy-folder": 'source = { kind = "path", path = "kernels/toy-folder" }',
        "toy-git": f'source = {{ kind = "git", url = "{url}", ref = "main", {paths} }}',
    }
    packages = "".join(f"\n[packages.{name}]\n{source}\n" for name, source in sources.items())
    files = {
        "recipes/targets/cpu.toml": TARGET,
        "recipes/stacks/mini.toml": STACK.format(packages=packages, minor=MINOR),
        "patches/toy-wheel/series.toml": 'topics = ["one-more"]\n',
        "patches/toy-wheel/one-more/patch.toml": TOPIC,
        "patches/toy-wheel/one-more/payload/more.py": "def more():\n    return answer() + 1\n",
        "kernels/toy-folder/pyproject.toml": PROJECT.format(name="toy-folder", version="0.3"),
        "kernels/toy-folder/src/toy_folder/__init__.py": "NAME = 'folder'\n",
    }
    files |= {
        f"recipes/packages/{name}.toml": RECIPE.format(name=name, module=name.replace("-", "_")) for name in sources
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for shelf in ("recipes/profiles", "locks", "templates"):
        (root / shelf).mkdir(parents=True)
    return MiniCatalog(root=root, links=links, packages=tuple(sources))


def _wheels(links: Path) -> None:
    _wheel(links, "toy-wheel", "1.0", {"toy_wheel/__init__.py": "def answer():\n    return 41\n"})
    _wheel(links, "plain-one", "1.5", {"plain_one.py": "ONE = 1\n"})
    _wheel(links, "plain-two", "2.0", {"plain_two/__init__.py": "", "plain_two/data.txt": "two\n" * 500})
    torch = {"torch/__init__.py": "", "torch/version.py": "__version__ = '1.0.0+cpu'\ncuda = None\n"}
    _wheel(links, "torch", "1.0.0+cpu", torch)
    _wheel(links, "toy-backend", "1.0", {"toy_backend.py": (TOY_BACKEND / "toy_backend.py").read_text()})
    project = PROJECT.format(name="toy-sdist", version="1.1")
    _sdist(links, "toy_sdist-1.1", {"pyproject.toml": project, "src/toy_sdist/__init__.py": "NAME = 'sdist'\n"})


def _wheel(links: Path, project: str, version: str, files: Mapping[str, str]) -> None:
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_hash(text)},{len(text.encode())}\n" for path, text in content.items()]
    content[f"{info}/RECORD"] = "".join(rows) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(links / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)


def _sdist(links: Path, top: str, files: Mapping[str, str]) -> None:
    with tarfile.open(links / f"{top}.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size, entry.mtime = len(text.encode()), EPOCH
            archive.addfile(entry, io.BytesIO(text.encode()))


def _repository(folder: Path) -> str:
    """Make a repository with one tagged commit; the build of `python/` reads `shared/` beside it."""
    files = {
        "python/pyproject.toml": PROJECT.format(name="toy-git", version="1.2.0"),
        "python/src/toy_git/__init__.py": "NAME = 'git'\n",
        "shared/note.txt": "shared\n",
        "unrelated/readme.txt": "nobody builds this\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    stamps = {f"GIT_{who}_DATE": f"{EPOCH} +0000" for who in ("AUTHOR", "COMMITTER")}
    names = {
        f"GIT_{who}_{what}": "toy@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **stamps, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        ("commit", "-q", "-m", "A toy"),
        ("tag", "v1.2.0"),
    ):
        subprocess.run(("git", *words), cwd=folder, env=environment, check=True)
    return folder.as_uri()


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
