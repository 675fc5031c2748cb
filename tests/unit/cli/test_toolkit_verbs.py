"""The verbs around a CUDA toolkit, on a toy of one: lock, plan, fetch, build, doctor, gc."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from calling import Called, call
from git_catalog import BACKEND, MINOR, Mini, make_mini
from toy_toolkit import CUDA_H, wheel_files, write_toolkit, write_wheel

from sglforge.config.load import load_catalog
from sglforge.errors import ConfigError

TARGET = """\
name = "gpu"
description = "A GPU."
kind = "cuda"
arch-list = ["12.0f"]
toolkit = "cuda-13.0"
min-memory-gib = 0.1
min-disk-gib = 0.1
waits-for = "the rest"
"""
TOOLKIT = """\
name = "cuda-13.0"
description = "A toy."
release = "13.0"
newest-gcc = 15
requires = ["toy-nvcc==13.0.*"]
driver-symbols = ["cuInit"]

[cuda]
programs = ["nvcc", "cicc"]
headers = ["cuda.h"]
libraries = ["cudart"]
stubs = ["cuda"]
"""
RECIPE = """\
name = "kernels"
description = "A toy."
import-name = "kernels"
build-requires = ["pin"]
toolchain = ["nvcc"]

[cuda]
programs = ["cuobjdump"]
"""
STACK = """\
name = "toys"
description = "Toys."

[packages.kernels]
source = {{ kind = "path", path = "kernels" }}

[packages.toy.source]
kind = "git"
url = "{url}"
ref = "main"

[environments.gpu]
torch = {{ version = "2.14.1", variant = "cu130" }}
pythons = ["{minor}"]
requirements = []
"""
SEES = '''\
"""Writes down what the build sees of its toolkit."""
import os
import shutil
import subprocess
from pathlib import Path

import toy_backend


def build_wheel(*arguments, **more):
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    home = Path(os.environ["CUDA_HOME"])
    try:
        (home / "written").write_text("x")
    except OSError:
        written = False
    else:
        written = True
    seen = {
        "version": said.split()[-1],
        "home": str(home),
        "nvcc": shutil.which("nvcc"),
        "path": os.environ["CUDA_PATH"],
        "header": (home / "include/cuda.h").is_file(),
        "stub": (home / "lib64/stubs/libcuda.so").is_file(),
        "written": written,
    }
    Path("src/kernels/seen.py").write_text(f"SEEN = {seen!r}\\n")
    return toy_backend.build_wheel(*arguments, **more)
'''


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    made = make_mini(tmp_path, "toy")
    write_wheel(made.links, "toy_nvcc", "13.0.88", wheel_files())
    write_wheel(made.links, "pin", "1.0", {"pin.py": ""})
    (made.root / "recipes/toolkits").mkdir()
    files = {
        "recipes/targets/gpu.toml": TARGET,
        "recipes/toolkits/cuda-13.0.toml": TOOLKIT,
        "recipes/packages/kernels.toml": RECIPE,
        "recipes/stacks/toys.toml": STACK.format(url=made.repository.url, minor=MINOR),
        "kernels/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "sees"\nbackend-path = ["."]\n\n'
        '[project]\nname = "kernels"\nversion = "1.0"\n',
        "kernels/toy_backend.py": BACKEND,
        "kernels/sees.py": SEES,
        "kernels/src/kernels/__init__.py": "",
    }
    for name, text in files.items():
        (made.root / name).parent.mkdir(parents=True, exist_ok=True)
        (made.root / name).write_text(text)
    shutil.rmtree(tmp_path / "upstream")  # the repository cannot be reached
    return made


def run(mini: Mini, *words: str, env: Mapping[str, str] | None = None) -> Called:
    more = ("--stack", "toys", "--target", "gpu", "--catalog", str(mini.root))
    no_toolkit = {"CUDA_HOME": "", "CUDA_PATH": "", "CONDA_PREFIX": "", "VIRTUAL_ENV": ""}
    return call(*words, *more, workspace=mini.workspace, env={**mini.env(), **no_toolkit, **(env or {})}, timeout_s=120)


def steps(called: Called) -> dict[str, Any]:
    found = called.document["steps"]
    assert isinstance(found, list)
    return {step["package"]: step for step in found}


def test_a_package_is_locked_fetched_and_built_beside_a_repository_that_cannot_be_reached(mini: Mini) -> None:
    lock = mini.root / "locks/toys.gpu.lock.toml"
    refused = run(mini, "lock")
    assert (refused.code, refused.codes, lock.exists()) == (3, {"git-repository-missing"}, False)
    assert "--update kernels" in refused.talk
    locked = run(mini, "lock", "--update", "kernels")
    assert (locked.code, locked.codes) == (0, {"git-not-pinned"})
    assert 'name = "toy-nvcc"\nversion = "13.0.88"' in lock.read_text()

    planned = run(mini, "plan")
    toolkit: Any = planned.document["toolkit"]
    assert (planned.code, toolkit["origin"], toolkit["version"]) == (0, "lock", "13.0")
    assert steps(planned)["kernels"]["key_parts"]["toolchain"] == {"nvcc": toolkit["fingerprint"]}
    assert not (mini.workspace / "toolkits").exists()
    assert run(mini, "fetch", "toy").codes == {"git-not-pinned"}

    fetched = run(mini, "fetch", "kernels")
    assert fetched.code == 0, fetched.talk
    assert fetched.document["torch"] is None
    (mini.links / "toy_nvcc-13.0.88-py3-none-any.whl").unlink()
    built = run(mini, "build", "kernels", "--offline")
    assert built.code == 0, built.talk
    seen = seen_by(mini)
    assert seen["version"] == "V13.0.88"
    assert (seen["path"], seen["nvcc"]) == (seen["home"], f"{seen['home']}/bin/nvcc")
    assert (seen["header"], seen["stub"]) == (True, True)
    assert not (Path(toolkit["home"]) / "written").exists() or seen["written"]
    assert steps(run(mini, "plan"))["kernels"]["state"] == "hit"
    (entry,) = (mini.workspace / "store/entries").iterdir()
    assert json.loads(entry.read_text())["provenance"]["toolkit"] == {
        "origin": "lock",
        "version": "13.0",
        "fingerprint": toolkit["fingerprint"],
    }

    (mini.root / "recipes/toolkits/cuda-13.0.toml").write_text(TOOLKIT.replace('["cuInit"]', '["cuMemAlloc_v2"]'))
    moved = steps(run(mini, "plan", "--explain"))["kernels"]
    assert [change["part"] for change in moved["changes"]] == ["toolchain.nvcc"]
    (mini.root / "recipes/toolkits/cuda-13.0.toml").write_text(TOOLKIT)
    installed = Path(toolkit["home"]).parent
    assert collected(mini) == set()
    (mini.root / "recipes/toolkits/cuda-13.0.toml").write_text(TOOLKIT.replace('["cuInit"]', '["cuMemAlloc_v2"]'))
    assert collected(mini) == {str(installed)}
    assert not installed.exists()
    (mini.root / "recipes/toolkits/cuda-13.0.toml").write_text(TOOLKIT.replace("13.0.*", "13.0.88"))
    assert run(mini, "plan").codes == {"lock-stale"}


def collected(mini: Mini) -> set[str]:
    """Collect what is old and return the toolkits among it."""
    more = ("--keep-days", "0", "--catalog", str(mini.root))
    called = call("store", "gc", *more, workspace=mini.workspace, env=mini.env(), timeout_s=120)
    assert called.code == 0, called.talk
    removed: Any = called.document["removed"]
    return {item["path"] for item in removed if item["kind"] == "toolkit"}


def seen_by(mini: Mini) -> dict[str, Any]:
    (wheel,) = (mini.workspace / "store/objects").rglob("kernels-*.whl")
    names: dict[str, Any] = {}
    with zipfile.ZipFile(wheel) as archive:
        exec(archive.read("kernels/seen.py"), names)
    found: dict[str, Any] = names["SEEN"]
    return found


def test_a_toolkit_of_the_machine_is_taken_where_it_fits(mini: Mini, tmp_path: Path) -> None:
    assert run(mini, "lock", "--update", "cuda-13.0").code == 0
    home = write_toolkit(tmp_path / "cuda")
    own = {"CUDA_HOME": str(home)}
    planned = run(mini, "plan", env=own)
    toolkit: Any = planned.document["toolkit"]
    assert (toolkit["home"], toolkit["origin"]) == (str(home), "CUDA_HOME")
    built = run(mini, "build", "kernels", env=own)
    assert built.code == 0, built.talk
    assert seen_by(mini)["version"] == "V13.0.88"
    assert [path.name for path in (mini.workspace / "toolkits").iterdir()] == ["found"]
    (home / "include/cuda.h").write_text(CUDA_H + "int more;\n")
    assert steps(run(mini, "plan", env=own))["kernels"]["state"] == "miss"
    (home / "bin/cuobjdump").unlink()
    doctor = run(mini, "doctor", env=own)
    toolkits: Any = doctor.document["toolkits"]
    first = toolkits["found"][0]
    assert (first["home"], first["why_not"]) == (str(home), "it lacks program cuobjdump")
    assert toolkits["taken"]["origin"] == "lock"
    assert toolkits["taken"]["installed"] is False
    assert "toolkit-incomplete" in doctor.codes


def test_what_no_recipe_can_mean(mini: Mini) -> None:
    for name, old, new, code in (
        ("targets/gpu.toml", '"cuda-13.0"', '"cuda-13.1"', "unknown-toolkit"),
        ("targets/gpu.toml", 'kind = "cuda"', 'kind = "cpu"', "invalid-value"),
        ("toolkits/cuda-13.0.toml", '"toy-nvcc==13.0.*"', '"toy nvcc"', "bad-requirement"),
        ("toolkits/cuda-13.0.toml", "driver-symbols = ", "driver-symbol = ", "unknown-key"),
        ("toolkits/cuda-13.0.toml", '"cuda.h"', '"../cuda.h"', "invalid-value"),
        ("toolkits/cuda-13.0.toml", '"13.0"\n', '"13"\n', "invalid-value"),
        ("packages/kernels.toml", 'toolchain = ["nvcc"]', "toolchain = []", "invalid-value"),
        ("stacks/toys.toml", "cu130", "cu129", "torch-cuda-mismatch"),
        ("stacks/toys.toml", "cu130", "cpu", "torch-cuda-mismatch"),
    ):
        path = mini.root / "recipes" / name
        before = path.read_text()
        path.write_text(before.replace(old, new))
        with pytest.raises(ConfigError) as caught:
            load_catalog(mini.root)
        path.write_text(before)
        found = [finding for finding in caught.value.as_findings() if finding.code == code]
        assert found, (name, new)
        assert f"{path}:" in (found[0].where or "")
    load_catalog(mini.root)
