"""A small world in which everything decides about something: what a plan is drafted from, as plain values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sglforge import plan
from sglforge.config.lockfile import Lock
from sglforge.config.model import PackageRecipe, Stack, Target
from sglforge.plan import Draft, Known

World = dict[str, Any]
Place = tuple[str | int, ...]

WORLD: World = {
    "stack": {
        "name": "s",
        "description": "A set.",
        "packages": {
            "base": {"source": {"kind": "path", "path": "kernels/base"}},
            "released": {"source": {"kind": "wheel", "project": "released", "version": "1.0"}},
            "archive": {"source": {"kind": "sdist", "project": "archive", "version": "2.0"}},
            "engine": {
                "source": {
                    "kind": "git",
                    "url": "https://example.org/engine.git",
                    "ref": "main",
                    "subdirectory": "python",
                    "source_paths": ["python", "include"],
                    "version": "0.5.24.dev0",
                }
            },
            "alone": {"source": {"kind": "path", "path": "kernels/alone"}, "targets": ["gpu"]},
        },
        "environments": {
            "gpu": {
                "torch": {"version": "2.14.1", "variant": "cu130"},
                "pythons": ["3.12"],
                "requirements": ["numpy"],
                "relaxed": {"x": "because"},
                "smoke_profile": "tiny",
            }
        },
    },
    "target": {
        "name": "gpu",
        "description": "A GPU.",
        "kind": "cuda",
        "default_stack": "s",
        "arch_list": ["12.0f"],
        "toolkit": "cuda-13.0",
        "compute_capability": "12.0",
        "min_cores": 2,
        "min_memory_gib": 20.0,
        "min_disk_gib": 60.0,
        "min_glibc": "2.34",
        "waits_for": "nothing",
    },
    "recipes": {
        "base": {"name": "base", "description": "A base.", "import_name": "base"},
        "alone": {"name": "alone", "description": "Alone.", "import_name": "alone"},
        "released": {
            "name": "released",
            "description": "A wheel.",
            "import_name": "released",
            "exclude": {"released/*.so": "too big"},
            "environment": {"UNUSED": "1"},
            "depends": ["base"],
            "build_requires": ["hatchling"],
            "toolchain": ["python-abi"],
        },
        "archive": {"name": "archive", "description": "An archive.", "import_name": "archive"},
        "engine": {
            "name": "engine",
            "description": "The engine.",
            "import_name": "engine",
            "build_requires": ["cmake>=3"],
            "exclude": {"engine/tests/*": "tests"},
            "toolchain": ["python-abi", "glibc", "host-compiler", "nvcc", "torch"],
            "environment": {"ENGINE_VERSION": "{version}", "ENGINE_MODE": "fast"},
            "depends": ["base"],
            "waits_for": "a day",
            "cuda": {"programs": ["cuobjdump"], "headers": ["cuda.h"], "libraries": ["cublas"], "stubs": ["cuda"]},
            "refuses": {"other": "it is somebody else's"},
            "open-symbols": {"_ZN6engine*": "nobody calls it"},
            "modules": {
                "driver": "recipes/drivers/engine.py",
                "into": "engine/modules/{name}.so",
                "requires": ["numpy"],
                "torch": {"version": "2.13.0", "variant": "cpu"},
                "default_set": "small",
                "sets": {
                    "small": {
                        "description": "Few.",
                        "names": ["page"],
                        "claims": {"page": ["omma"]},
                        "cpu_minutes": 2.0,
                    },
                    "large": {"description": "Many.", "names": ["page", "norm"]},
                },
            },
        },
    },
    "lock": {
        "format": 1,
        "stack": "s",
        "target": "gpu",
        "sources": {
            "released": {
                "kind": "wheel",
                "project": "released",
                "version": "1.0",
                "files": [
                    {"name": "released-1.0-cp312-cp312-linux_x86_64.whl", "sha256": "1" * 64},
                    {"name": "released-1.0-cp313-cp313-linux_x86_64.whl", "sha256": "2" * 64},
                ],
            },
            "archive": {
                "kind": "sdist",
                "project": "archive",
                "version": "2.0",
                "files": [{"name": "archive-2.0.tar.gz", "sha256": "3" * 64}],
            },
            "engine": {
                "kind": "git",
                "url": "https://example.org/engine.git",
                "ref": "main",
                "commit": "a" * 40,
                "described": "v0.5.23-7-gaaaaaaa",
                "version": "0.5.24.dev0",
                "paths": [{"path": "python", "id": "b" * 40}, {"path": "include", "id": "c" * 40}],
                "submodules": [{"path": "include/deep", "url": "https://example.org/deep.git", "commit": "d" * 40}],
            },
        },
        "build_requires": {
            "engine": [
                {
                    "name": "cmake",
                    "version": "3.31.9",
                    "files": [{"name": "cmake-3.31.9-py3-none-any.whl", "sha256": "4" * 64}],
                },
                {
                    "name": "ninja",
                    "version": "1.13.0",
                    "files": [{"name": "ninja-1.13.0-py3-none-any.whl", "sha256": "5" * 64}],
                },
            ]
        },
        "toolkit": {
            "name": "cuda-13.0",
            "release": "13.0",
            "requires": ["nvcc==13.0.*"],
            "requirements": [
                {
                    "name": "nvcc",
                    "version": "13.0.88",
                    "files": [{"name": "nvcc-13.0.88-py3-none-any.whl", "sha256": "a" * 64}],
                }
            ],
        },
        "modules": {
            "engine": {
                "torch": {"version": "2.13.0", "variant": "cpu", "sha256": ["a" * 64]},
                "requirements": [
                    {
                        "name": "numpy",
                        "version": "2.3.0",
                        "files": [{"name": "numpy-2.3.0-cp312-cp312-linux_x86_64.whl", "sha256": "7" * 64}],
                    }
                ],
            }
        },
        "pythons": [
            {
                "minor": "3.12",
                "torch": {"version": "2.14.1", "variant": "cu130", "sha256": ["6" * 64]},
                "requirements": [
                    {
                        "name": "numpy",
                        "version": "2.3.0",
                        "files": [{"name": "numpy-2.3.0-cp312-cp312-linux_x86_64.whl", "sha256": "7" * 64}],
                    }
                ],
            }
        ],
    },
    "known": {
        "toolchain": {"glibc": "2.39", "host-compiler": "gcc 13", "nvcc": "13.0.88"},
        "compilers": {"CC": "gcc-13", "CXX": "g++-13"},
        "sources": {"base": "e" * 64, "alone": "f" * 64, "released": "1" * 64, "archive": "3" * 64},
        "series": {"engine": {"first-topic": "8" * 64, "second-topic": "9" * 64}},
        "drivers": {"engine": "b" * 64},
    },
}


@pytest.fixture
def world() -> World:
    return copy.deepcopy(WORLD)


def put(world: World, place: Place, value: object) -> None:
    """Change one value of a world; a function is called with the value that is there."""
    at: Any = world
    *words, last = place
    for word in words:
        at = at[word]
    at[last] = value(at[last]) if callable(value) else value


def drafted(world: World) -> dict[str, Draft]:
    """Draft a world."""
    lock = Lock.model_validate(world["lock"])
    drafts = plan.draft(
        stack=Stack.model_validate(world["stack"]),
        target=Target.model_validate(world["target"]),
        recipes={name: PackageRecipe.model_validate(recipe) for name, recipe in world["recipes"].items()},
        lock=lock,
        python=lock.pythons[0],
        known=Known(**world["known"]),
    )
    return {draft.package: draft for draft in drafts}
