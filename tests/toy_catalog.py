"""A catalog of two toy packages that really build, without a network: `engine` is built with `base`."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from sglforge.base.files import sha256_file

BACKEND = Path(__file__).parent / "packages" / "toy-backend" / "toy_backend.py"
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
PIN = "pin-1.0-py3-none-any.whl"

RECIPE = """\
name = "{name}"
description = "A toy."
import-name = "{name}"
build-requires = ["pin"]
{more}
"""
STACK = """\
name = "toys"
description = "Two toys."

[packages.base]
source = { kind = "path", path = "kernels/base" }

[packages.engine]
source = { kind = "path", path = "kernels/engine" }

[environments.cpu]
torch = { version = "2.13.0", variant = "cpu" }
"""
TARGET = """\
name = "cpu"
description = "Any machine."
kind = "cpu"
default-stack = "toys"
min-memory-gib = 0.1
min-disk-gib = 0.1
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "{backend}"
backend-path = ["."]

[project]
name = "{name}"
version = "1.0"
"""
ENGINE_BACKEND = '''\
"""Writes down what the build sees."""
import os
from pathlib import Path

import base
import toy_backend


def build_wheel(*arguments, **more):
    seen = f"MODE = {os.environ['ENGINE_MODE']!r}\\nBASE = {base.WORD!r}\\n"
    Path("src/engine/seen.py").write_text(seen)
    return toy_backend.build_wheel(*arguments, **more)
'''
LOCK = """\
format = 1
stack = "toys"
target = "cpu"

{requires}
[[pythons]]
minor = "{minor}"
requirements = []

[pythons.torch]
version = "2.13.0"
variant = "cpu"
sha256 = ["{torch}"]
"""
REQUIRES = """\
[[build-requires."{package}"]]
name = "pin"
version = "1.0"
files = [{{ name = "{file}", sha256 = "{sha256}" }}]
"""


def write_catalog(root: Path) -> Path:
    """Write the catalog and a folder `links` with the one wheel that it pins; return its root."""
    links = root / "links"
    links.mkdir(parents=True)
    members = {
        "pin.py": "",
        "pin-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pin\nVersion: 1.0\n",
        "pin-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "pin-1.0.dist-info/RECORD": "pin.py,,\n",
    }
    with zipfile.ZipFile(links / PIN, "w") as wheel:
        for name, text in members.items():
            wheel.writestr(zipfile.ZipInfo(name), text)  # the same bytes every time
    requires = [
        REQUIRES.format(package=package, file=PIN, sha256=sha256_file(links / PIN)) for package in ("base", "engine")
    ]
    more = 'depends = ["base"]\n\n[environment]\nENGINE_MODE = "fast"'
    files = {
        "recipes/packages/base.toml": RECIPE.format(name="base", more=""),
        "recipes/packages/engine.toml": RECIPE.format(name="engine", more=more),
        "recipes/stacks/toys.toml": STACK + f'pythons = ["{MINOR}"]\n',
        "recipes/targets/cpu.toml": TARGET,
        "locks/toys.cpu.lock.toml": LOCK.format(requires="\n".join(requires), minor=MINOR, torch="0" * 64),
        "kernels/base/pyproject.toml": PROJECT.format(name="base", backend="toy_backend"),
        "kernels/base/toy_backend.py": BACKEND.read_text(),
        "kernels/base/src/base/__init__.py": 'WORD = "first"\n',
        "kernels/engine/pyproject.toml": PROJECT.format(name="engine", backend="engine_backend"),
        "kernels/engine/engine_backend.py": ENGINE_BACKEND,
        "kernels/engine/toy_backend.py": BACKEND.read_text(),
        "kernels/engine/src/engine/__init__.py": "",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def offline(root: Path) -> dict[str, str]:
    """Return the variables with which pip and uv find the catalog's own wheel and nothing else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(root / "links"), "PIP_CONFIG_FILE": "/dev/null"}
