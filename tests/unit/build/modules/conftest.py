"""A toy package with modules of C, and everything that compiles them for real: driver, ninja, sandbox, compiler."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sglforge.base.ids import Sha256
from sglforge.base.proc import Completed, run
from sglforge.base.workspace import Workspace
from sglforge.build.modules.make import Made, ModuleTools, News, make_modules
from sglforge.config.lockfile import LockedFile, LockedModules, LockedRequirement, LockedTorch
from sglforge.config.model import ModuleSet
from sglforge.host.cuda.model import CudaToolkit
from sglforge.keys.modules import PlannedModules

NINJA = Path(sys.executable).parent / "ninja"

DRIVER = """
import fnmatch, json, os, sys
from pathlib import Path

request, answer = (Path(word) for word in sys.argv[1:])
wanted = json.loads(request.read_text())
tree, out = Path(os.environ["PYTHONPATH"]), Path(wanted["folder"]) / "made"
recipe = json.loads((tree / "toy" / "modules.json").read_text())
if recipe.get("fails"):
    raise SystemExit(recipe["fails"])
chosen = {n: m for n, m in recipe["modules"].items() if any(fnmatch.fnmatchcase(n, g) for g in wanted["names"])}
found = []
for name, module in chosen.items():
    folder = out / name
    folder.mkdir(parents=True)
    includes = " ".join(f"-I{tree}/toy/{place}" for place in recipe["includes"])
    lines = [
        f"flags = {includes} {module.get('flags', '')}",
        f"cc = {module.get('before', '').replace('PYTHON', sys.executable)} cc {module.get('trace', '-MD')} -O1 -fPIC",
        "rule compile",
        "  command = $cc -MF $out.d $flags -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {module.get('link', 'cc -shared -Wl,--build-id=none')} $in -o $out",
    ]
    objects = []
    for source in module["sources"]:
        objects.append(f"{folder}/{Path(source).stem}.o")
        lines.append(f"build {objects[-1]}: compile {tree}/toy/{source}")
    library = f"{folder}/{name}.so"
    lines += [f"build {library}: link {' '.join(objects)}", ""]
    (folder / "build.ninja").write_text("\\n".join(lines))
    found.append({"name": name, "statements": f"{folder}/build.ninja", "library": library})
unknown = [g for g in wanted["names"] if not any(fnmatch.fnmatchcase(n, g) for n in recipe["modules"])]
answer.write_text(json.dumps({"modules": found, "left_out": recipe.get("left_out", {}), "unknown": unknown}))
if "answer" in recipe:
    answer.write_text(recipe["answer"])
"""

FILES = {
    "include/common.h": "#define COMMON 1\n",
    "include/page.h": "#include <common.h>\n#define PAGE (COMMON + 1)\n",
    "include/unused.h": "#define UNUSED 1\n",
    "src/page.c": "#include <page.h>\nint page(void) { return PAGE; }\n",
    "src/norm.c": "#include <common.h>\n#if __has_include(<extra.h>)\n#include <extra.h>\n#endif\n"
    "int norm(void) { return COMMON * 10; }\n",
    "src/more.c": "int more(void) { return 7; }\n",
    "first/here": "",
}
RECIPE = {
    "includes": ["first", "include"],
    "modules": {"page": {"sources": ["src/page.c"]}, "norm": {"sources": ["src/norm.c", "src/more.c"]}},
}


def no_uv(*words: str | Path, log: Path | None = None) -> Completed:
    """Make an environment of this Python and this ninja; nothing is installed."""
    if words[0] == "venv":
        programs = Path(words[-1]) / "bin"
        programs.mkdir(parents=True)
        (programs / "python").symlink_to(sys.executable)
        shutil.copy(NINJA, programs / "ninja")
    return Completed(argv=tuple(map(str, words)), returncode=0, stdout="", stderr="", seconds=0.0)


def pin(version: str) -> LockedRequirement:
    file = LockedFile(name=f"ninja-{version}-py3-none-any.whl", sha256="0" * 64)
    return LockedRequirement(name="ninja", version=version, files=[file])


@dataclass(kw_only=True)
class Bench:
    """Makes modules of the toy package, each time in a new folder and from what ``files`` and ``recipe`` say then."""

    root: Path
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    recipe: dict[str, object] = field(default_factory=lambda: json.loads(json.dumps(RECIPE)))
    names: Sequence[str] = ("*",)
    toolkit: str = "none"
    pins: list[LockedRequirement] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    told: list[News] = field(default_factory=list)
    count: int = 0

    @property
    def workspace(self) -> Workspace:
        return Workspace(root=self.root / "workspace")

    @property
    def log(self) -> Path:
        return self.root / "modules.log"

    def tree(self, folder: Path) -> Path:
        """Write the package as an unpacked wheel."""
        for name, text in self.files.items():
            path = folder / "toy" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "toy" / "modules.json").write_text(json.dumps(self.recipe))
        return folder

    def make(self) -> tuple[Made, dict[str, bytes]]:
        """Return what was made, and the bytes of each module in the wheel's tree."""
        self.count += 1
        scratch = self.root / f"scratch-{self.count}"
        home, driver = self.root / "cuda", self.root / "driver.py"
        home.mkdir(parents=True, exist_ok=True)
        driver.write_text(DRIVER)
        tree = self.tree(scratch / "tree")
        planned = PlannedModules(
            name="all",
            set=ModuleSet(description="All.", names=list(self.names)),
            driver="driver.py",
            driver_sha256=Sha256("0" * 64),
            into="toy/aot/{name}.so",
            architectures=("12.0f",),
            locked=LockedModules(torch=LockedTorch(version="1.0", variant="cpu", sha256=[]), requirements=self.pins),
        )
        made = make_modules(
            "toy",
            planned,
            ModuleTools(driver=driver, torch_into=lambda environment, log: None),
            tree=tree,
            scratch=scratch,
            environment=self.environment,
            toolkit=CudaToolkit(home=home, origin="lock", release="13.0", version="13.0.88", fingerprint=self.toolkit),
            toolchain={"host-compiler": "gcc", "nvcc": self.toolkit},
            python=Path(sys.executable),
            uv=no_uv,
            workspace=self.workspace,
            log=self.log,
            run=run,
            reports=[],
            user=None,
            told=self.told.append,
        )
        libraries = {path.stem: path.read_bytes() for path in (tree / "toy" / "aot").glob("*.so")}
        shutil.rmtree(scratch)
        return made, libraries

    def compiled(self) -> set[str]:
        """Make modules, and return those that were compiled."""
        made, libraries = self.make()
        assert set(libraries) == {module.name for module in made.modules}
        return {module.name for module in made.modules if module.compiled}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(root=tmp_path)
