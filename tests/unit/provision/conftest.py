"""Toy wheels, a toy lock and a real uv that installs them without a network."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.base.files import sha256_file
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Runner
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedFile, LockedPython, LockedRequirement, LockedTorch
from sglforge.config.model import PathSource, Stack, StackEnvironment, StackPackage, Target, TorchPin
from sglforge.plan import BuildPlan
from sglforge.provision.install import Check, install
from sglforge.provision.progress import Progress, silent
from sglforge.provision.python import Interpreter, running_interpreter
from sglforge.provision.receipt import Environment
from sglforge.provision.uv import Uv, open_uv
from sglforge.provision.verify import quick

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
CP = f"cp{MINOR.replace('.', '')}"
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A built wheel, as the store returns it."""

    key: BuildKey
    path: Path
    sha256: Sha256


@dataclass(slots=True, kw_only=True)
class Toys:
    """A folder of wheels that pip's find-links would name, a workspace, and a plan over them."""

    root: Path
    requirements: list[LockedRequirement] = field(default_factory=list)
    wheels: list[Wheel] = field(default_factory=list)
    torch_hashes: list[str] = field(default_factory=list)
    relaxed: dict[str, str] = field(default_factory=dict)
    key: str = "e" * 64
    minor: str = MINOR
    native_tag: str = f"{CP}-{CP}-{PLATFORM}"

    @property
    def links(self) -> Path:
        """The folder that find-links names."""
        return self.root / "links"

    @property
    def workspace(self) -> Workspace:
        return Workspace(root=self.root / "workspace")

    @property
    def log(self) -> Path:
        return self.root / "uv.log"

    @property
    def folder(self) -> Path:
        """The folder of the environment."""
        return self.workspace.environments / self.key

    @property
    def locations(self) -> IndexLocations:
        return IndexLocations(no_index=True, find_links=(str(self.links),))

    @property
    def uv(self) -> Uv:
        return open_uv(self.locations)

    @property
    def interpreter(self) -> Interpreter:
        return running_interpreter()

    @property
    def pin(self) -> LockedTorch:
        return LockedTorch(version="9.9.0", variant="cpu", sha256=self.torch_hashes)

    @property
    def plan(self) -> BuildPlan:
        environment = StackEnvironment(
            torch=TorchPin(version="9.9.0", variant="cpu"), pythons=[self.minor], relaxed=self.relaxed
        )
        package = StackPackage(source=PathSource(kind="path", path="toyserver"))
        return BuildPlan(
            stack=Stack(
                name="toys",
                description="toys",
                packages={"toyserver": package},
                environments={"cpu": environment},
            ),
            target=Target(name="cpu", description="cpu", kind="cpu"),
            python=LockedPython(minor=self.minor, torch=self.pin, requirements=self.requirements),
            steps=(),
            environment_key=BuildKey(self.key),
        )

    def install(
        self,
        *,
        name: str = "toys",
        locations: IndexLocations | None = None,
        offline: bool = False,
        progress: Progress = silent,
        run: Runner = proc.run,
        check: Check = quick,
    ) -> Environment:
        """Install the plan."""
        return install(
            self.plan,
            self.wheels,
            name=name,
            interpreter=self.interpreter,
            workspace=self.workspace,
            locations=locations or self.locations,
            offline=offline,
            log=self.log,
            progress=progress,
            run=run,
            check=check,
        )

    def make_wheel(
        self,
        name: str,
        version: str,
        files: Mapping[str, str],
        *,
        folder: Path | None = None,
        requires: Sequence[str] = (),
        tag: str = "py3-none-any",
    ) -> Path:
        """Write a small, correct wheel, by default into the folder of links."""
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        members = {
            **files,
            f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {line}\n" for line in requires),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: {tag}\n",
        }
        record = ""
        for path, text in members.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
        wheel = (folder or self.links) / f"{name}-{version}-{tag}.whl"
        wheel.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in {**members, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
                archive.writestr(zipfile.ZipInfo(path), text)
        return wheel

    def make_torch(
        self,
        *,
        version: str = "9.9.0+cpu",
        cuda: str | None = None,
        folder: Path | None = None,
        tag: str = "",
    ) -> Path:
        """Write a torch that says which CUDA it was built with."""
        files = {
            "torch/__init__.py": "from torch.version import __version__, cuda\nimport toydep\n",
            "torch/version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\n",
        }
        return self.make_wheel("torch", version, files, folder=folder, requires=["toydep"], tag=tag or self.native_tag)

    def make_server(self, files: Mapping[str, str] | None = None, *, requires: Sequence[str]) -> Wheel:
        """Write the package that counts as built by us, into a folder of its own."""
        files = files or {
            "toyserver/__init__.py": "import toydep\nANSWER = toydep.ANSWER\n",
            "toyserver/extra.py": "X = 1\n",
        }
        path = self.make_wheel("toyserver", "1.0+cpu.t1", files, folder=self.root / "store", requires=requires)
        return Wheel(key=BuildKey("b" * 64), path=path, sha256=sha256_file(path))

    def locked(self, *wheels: Path) -> LockedRequirement:
        """Return the lock entry of one release."""
        name, version, *_ = wheels[0].name.split("-")
        files = [LockedFile(name=path.name, sha256=sha256_file(path)) for path in wheels]
        return LockedRequirement(name=name, version=version, files=files)


@pytest.fixture(autouse=True)
def _own_uv_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give uv a cache of its own, and nothing of the machine's settings."""
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def toys(tmp_path: Path) -> Toys:
    """Return a complete set: torch, one requirement, one built package."""
    toys = Toys(root=tmp_path)
    toys.torch_hashes = [sha256_file(toys.make_torch())]
    toys.requirements = [toys.locked(toys.make_wheel("toydep", "1.2", {"toydep.py": "ANSWER = 42\n"}))]
    requires = [
        "toydep>=1",
        "torch==9.8.0",
        "absent>=3",
        'winonly; sys_platform == "win32"',
        'e; extra == "x"',
    ]
    toys.wheels = [toys.make_server(requires=requires)]
    toys.relaxed = {"torch": "the CPU build has another version", "absent": "GPU only"}
    return toys
