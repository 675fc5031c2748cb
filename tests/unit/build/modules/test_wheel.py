"""From a source folder to a stored wheel with its modules, and what the record says of them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from sglforge.base import runrecord
from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.proc import Completed
from sglforge.base.runrecord import RunRecord
from sglforge.base.workspace import Workspace
from sglforge.build.execute import BuildPython, execute
from sglforge.build.modules.make import ModuleTools, News
from sglforge.build.store import StoredWheel
from sglforge.config.lockfile import LockedModules, LockedRequirement, LockedTorch
from sglforge.config.model import ModuleSet, PackageRecipe, PathSource
from sglforge.host.cuda.model import CudaToolkit
from sglforge.keys.modules import PlannedModules
from sglforge.plan import Step
from sglforge.provision.uv import Uv

from .conftest import DRIVER, FILES, RECIPE, no_uv

PLANNED = PlannedModules(
    name="small",
    set=ModuleSet(description="All.", names=["*"]),
    driver="driver.py",
    driver_sha256=Sha256("0" * 64),
    into="toy/aot/{name}/{name}.so",
    architectures=("12.0f",),
    locked=LockedModules(torch=LockedTorch(version="1.0", variant="cpu", sha256=[]), requirements=[]),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A project whose wheel holds the toy package with its kernels."""
    folder = tmp_path / "catalog" / "toy"
    for name, text in {**FILES, "modules.json": json.dumps(RECIPE), "__init__.py": ""}.items():
        path = folder / "src" / "toy" / (f"{name}.txt" if name == "first/here" else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["toy-backend"]\nbuild-backend = "toy_backend"\n'
        '[project]\nname = "toy"\nversion = "1.0"\n'
    )
    return folder


class Builder:
    """Builds the project, as often as it is asked to; each time under another key."""

    def __init__(
        self, source: Path, backend: LockedRequirement, python: BuildPython, uv: Uv, workspace: Workspace
    ) -> None:
        self._source, self._backend, self._python, self._uv = source, backend, python, uv
        self._workspace, self.news = workspace, list[News]()
        self.record: RunRecord = runrecord.start(workspace.runs)

    def uv(self, *words: str | Path, log: Path | None = None) -> Completed:
        """Make the environment of the modules without a registry, and every other one with uv."""
        if any("modules-env" in str(word) for word in words):
            return no_uv(*words, log=log)
        return self._uv(*words, log=log)

    def __call__(self, number: int, tools: ModuleTools | None) -> StoredWheel:
        home = self._source.parent / "cuda"
        home.mkdir(exist_ok=True)
        parts = {"number": number, "target": {"name": "gpu"}, "toolchain": {"nvcc": "none"}}
        step = Step(
            package="toy",
            recipe=PackageRecipe(name="toy", description="A toy.", import_name="toy"),
            source=PathSource(kind="path", path="toy"),
            locked=None,
            build_requires=(self._backend,),
            key=BuildKey(digest(parts)),
            key_parts=parts,
            local_version="gpu.small",
            modules=PLANNED,
            state="miss",
            why="never built here",
        )
        return execute(
            step,
            catalog_root=self._source.parent,
            archive=None,
            series=None,
            python=self._python,
            workspace=self._workspace,
            record=self.record,
            uv=self.uv,
            toolkit=CudaToolkit(home=home, origin="lock", release="13.0", version="13.0.88", fingerprint="none"),
            modules=tools,
            told=self.news.append,
        )


@pytest.fixture
def build(source: Path, toy_backend: LockedRequirement, python: BuildPython, uv: Uv, tmp_path: Path) -> Builder:
    return Builder(source, toy_backend, python, uv, Workspace(root=tmp_path / "workspace"))


@pytest.fixture
def tools(tmp_path: Path) -> ModuleTools:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    return ModuleTools(driver=driver, torch_into=lambda environment, log: None)


def test_a_wheel_holds_its_modules_and_is_for_this_platform(build: Builder, tools: ModuleTools) -> None:
    stored = build(1, tools)
    assert stored.path.name.startswith("toy-1.0+gpu.small-py3-none-linux_")
    with zipfile.ZipFile(stored.path) as archive:
        names = archive.namelist()
        said = json.loads(archive.read("toy-1.0+gpu.small.dist-info/sglforge.json"))
        assert archive.getinfo("toy/aot/page/page.so").external_attr >> 16 & 0o111
    assert {"toy/aot/page/page.so", "toy/aot/norm/norm.so"} <= set(names)
    assert said["modules"] == {
        "set": "small",
        "architectures": ["12.0f"],
        "scope": "compiled",
        "names": ["norm", "page"],
        "left-out": {},
    }
    assert stored.provenance["compiled"]["modules"] == ["norm", "page"]  # type: ignore[index]
    phases = [json.loads(line) for line in (build.record.folder / "events.jsonl").read_text().splitlines()]
    assert [event["phase"] for event in phases if event["event"] == "build-phase"] == [
        "unpack",
        "patch",
        "build",
        "modules",
        "pack",
        "check",
        "store",
    ]


def test_another_build_of_the_same_sources_compiles_nothing(build: Builder, tools: ModuleTools, source: Path) -> None:
    first, second = build(1, tools), build(2, tools)
    assert second.provenance["compiled"]["modules"] == []  # type: ignore[index]
    (source / "src" / "toy" / "src" / "page.c").write_text("int page(void) { return 9; }\n")
    third = build(3, tools)
    assert third.provenance["compiled"]["modules"] == ["page"]  # type: ignore[index]
    assert first.sha256 != third.sha256


def test_modules_that_were_planned_are_never_left_out_in_silence(build: Builder, tools: ModuleTools) -> None:
    with pytest.raises(TypeError, match="nothing is there to compile them"):
        build(1, None)
    assert build(1, replace(tools)).provenance["compiled"]
