"""A small catalog that is right, for tests that make it wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sglforge.config.load import load_catalog
from sglforge.errors import ConfigError

Spoil = Callable[..., list[str]]

FILES = {
    "packages/engine.toml": """\
name = "engine"
description = "The engine."
import-name = "engine"
build-requires = ["hatchling"]
""",
    "targets/cpu.toml": """\
name = "cpu"
description = "No GPU."
kind = "cpu"
default-stack = "first"
min-cores = 2
""",
    "stacks/first.toml": """\
name = "first"
description = "The first set."

[packages.engine]
source = { kind = "path", path = "kernels/engine" }

[environments.cpu]
torch = { version = "2.13.0", variant = "cpu" }
pythons = ["3.11", "3.12"]
requirements = [
  "numpy",
  "pillow>=10,<12",
]
smoke-profile = "tiny"
""",
    "profiles/tiny.toml": """\
name = "tiny"
description = "A tiny model."
target = "cpu"
model = "catalog:models/tiny"
port = 30000

[flags]
device = "cpu"
disable-cuda-graph = true

[smoke]
long-prompt = "Once"
json-prompt = "As JSON"
json-schema = '{"type": "object"}'
""",
}


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Return the root of a catalog without a fault."""
    for name, text in FILES.items():
        path = tmp_path / "recipes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "kernels/engine").mkdir(parents=True)
    (tmp_path / "models/tiny").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def spoil(catalog: Path) -> Spoil:
    """Return a function that replaces text in files of the catalog and returns its faults as lines."""

    def load(*changes: tuple[str, str, str]) -> list[str]:
        for name, old, new in changes:
            path = catalog / "recipes" / name
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new, 1))
        return faults_of(catalog)

    return load


def faults_of(root: Path) -> list[str]:
    """Return the faults of a catalog, one line each, with paths relative to its recipes."""
    with pytest.raises(ConfigError) as caught:
        load_catalog(root)
    assert caught.value.exit_code == 2
    return [
        f"{finding.where} {finding.code}: {finding.message} | {finding.hint}".replace(f"{root}/recipes/", "")
        for finding in caught.value.as_findings()
    ]
