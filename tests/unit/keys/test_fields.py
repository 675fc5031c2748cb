"""Every field of every model that a plan is drafted from: it decides about keys, or it does not.

A field that is added must be added here: somebody has to say which of the two it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import get_args

import pytest

from sglforge.config.lockfile import (
    Lock,
    LockedArchive,
    LockedFile,
    LockedGit,
    LockedModules,
    LockedPath,
    LockedPython,
    LockedRequirement,
    LockedSubmodule,
    LockedToolkit,
    LockedTorch,
)
from sglforge.config.model import (
    CompileMemory,
    CudaNeeds,
    FileModel,
    GitSource,
    Modules,
    ModuleSet,
    PackageRecipe,
    PathSource,
    SdistSource,
    Stack,
    StackEnvironment,
    StackPackage,
    Target,
    TorchPin,
    WheelSource,
)
from sglforge.errors import SglforgeError
from sglforge.keys.changes import changes
from sglforge.plan import Known

from .conftest import Place, World, drafted, put


@dataclass(frozen=True)
class Row:
    """Changes of the world, and the parts of the key that differ then, by package; none: no key differs."""

    sets: tuple[tuple[Place, object], ...]
    parts: dict[str, set[str]]


def row(*sets: tuple[Place, object], **parts: set[str]) -> Row:
    return Row(sets, parts)


def engine(place: str, value: object, *parts: str) -> Row:
    """A change of the recipe of the engine."""
    return row((("recipes", "engine", place), value), **({"engine": set(parts)} if parts else {}))


def nothing(*sets: tuple[Place, object]) -> Row:
    return Row(sets, {})


ENGINE: Place = ("stack", "packages", "engine", "source")
GIT: Place = ("lock", "sources", "engine")
RELEASED: Place = ("stack", "packages", "released", "source")
LOCKED: Place = ("lock", "sources", "released")
ARCHIVE: Place = ("stack", "packages", "archive", "source")
PINS: Place = ("lock", "build_requires", "engine")
PYTHON: Place = ("lock", "pythons", 0)
GPU: Place = ("stack", "environments", "gpu")
ALL = ("base", "released", "archive", "engine", "alone")
TARGET = {name: {"target"} for name in ALL} | {"engine": {"target", "depends"}}
OWN_TEST = Row((), {})
"""Of a field whose change needs more than a value: a test of its own has it."""

MODULES: Place = ("recipes", "engine", "modules")
LOCKED_MODULES: Place = ("lock", "modules", "engine")


def modules(*sets: tuple[Place, object]) -> Row:
    """A change of the modules of the engine."""
    return row(*sets, engine={"modules"})


TABLE: dict[type[FileModel], dict[str, Row]] = {
    PackageRecipe: {
        "name": OWN_TEST,
        "description": nothing((("recipes", "engine", "description"), "In other words.")),
        "import_name": engine("import_name", "other", "recipe"),
        # what the lock pins of them decides
        "build_requires": nothing((("recipes", "engine", "build_requires"), ["cmake>=3.20", "Ninja"])),
        "exclude": engine("exclude", {"engine/docs/*": "docs"}, "recipe"),
        # without a host compiler, the user's CC is not passed on
        "toolchain": engine("toolchain", ["glibc"], "toolchain", "environment"),
        "environment": engine("environment", {"ENGINE_VERSION": "{version}"}, "environment"),
        "depends": engine("depends", ["base", "archive"], "depends"),
        "memory": nothing((("recipes", "engine", "memory"), CompileMemory(default=9.0))),
        "waits_for": nothing((("recipes", "engine", "waits_for"), "two days")),
        # they decide which toolkit is taken, and that one's fingerprint decides
        "cuda": nothing((("recipes", "engine", "cuda"), None)),
        "modules": engine("modules", None, "modules"),
        "refuses": nothing((("recipes", "engine", "refuses"), {})),
        "open_symbols": nothing((("recipes", "engine", "open-symbols"), {})),
    },
    CudaNeeds: {
        name: nothing((("recipes", "engine", "cuda", name), ["other"]))
        for name in ("programs", "headers", "libraries", "stubs")
    },
    CompileMemory: {
        "default": nothing((("recipes", "engine", "memory"), CompileMemory(default=9.0))),
        "units": nothing((("recipes", "engine", "memory"), CompileMemory(units={"*": 9.0}))),
    },
    Modules: {
        # its content decides, and that is Known.drivers
        "driver": nothing(((*MODULES, "driver"), "recipes/drivers/moved.py")),
        "into": modules(((*MODULES, "into"), "engine/{name}.so")),
        # what the lock pins of them decides
        "requires": nothing(((*MODULES, "requires"), ["Numpy>=2"])),
        "torch": OWN_TEST,
        "default_set": modules(((*MODULES, "default_set"), "large")),
        "sets": nothing(((*MODULES, "sets"), lambda sets: {"small": sets["small"]})),
    },
    ModuleSet: {
        "description": nothing(((*MODULES, "sets", "small", "description"), "In other words.")),
        "names": modules(((*MODULES, "sets", "small", "names"), ["page", "rope"])),
        "claims": modules(((*MODULES, "sets", "small", "claims"), {"page": ["qmma"]})),
        "cpu_minutes": nothing(((*MODULES, "sets", "small", "cpu_minutes"), 3.0)),
    },
    Target: {
        "name": row((("target", "name"), "gpu2"), (("stack", "packages", "alone", "targets"), ["gpu2"]), **TARGET),
        "description": nothing((("target", "description"), "In other words.")),
        "kind": row((("target", "kind"), "cpu"), **TARGET),
        "default_stack": nothing((("target", "default_stack"), "t")),
        "arch_list": row((("target", "arch_list"), ["12.0f", "10.0f"]), **TARGET),
        "toolkit": nothing((("target", "toolkit"), "cuda-13.1")),
        "compute_capability": nothing((("target", "compute_capability"), "12.1")),
        "min_cores": nothing((("target", "min_cores"), 3)),
        "min_memory_gib": nothing((("target", "min_memory_gib"), 21.0)),
        "min_disk_gib": nothing((("target", "min_disk_gib"), 61.0)),
        "min_glibc": nothing((("target", "min_glibc"), "2.35")),
        "waits_for": nothing((("target", "waits_for"), "something")),
    },
    WheelSource: {
        "kind": row(
            ((*RELEASED, "kind"), "sdist"),
            ((*LOCKED, "kind"), "sdist"),
            (("recipes", "released", "build_requires"), []),
            released={"recipe", "source", "environment", "depends"},
        ),
        "project": row(((*RELEASED, "project"), "r"), ((*LOCKED, "project"), "r"), released={"source"}),
        "version": row(((*RELEASED, "version"), "1.1"), ((*LOCKED, "version"), "1.1"), released={"source"}),
    },
    SdistSource: {
        "kind": row(
            ((*ARCHIVE, "kind"), "wheel"),
            (("lock", "sources", "archive", "kind"), "wheel"),
            archive={"recipe", "source"},
        ),
        "project": row(
            ((*ARCHIVE, "project"), "a"), (("lock", "sources", "archive", "project"), "a"), archive={"source"}
        ),
        "version": row(
            ((*ARCHIVE, "version"), "2.1"), (("lock", "sources", "archive", "version"), "2.1"), archive={"source"}
        ),
    },
    PathSource: {
        "kind": OWN_TEST,
        "path": row(
            (("stack", "packages", "base", "source", "path"), "kernels/other"), base={"source"}, engine={"depends"}
        ),
    },
    GitSource: {
        "kind": OWN_TEST,
        "url": nothing(
            ((*ENGINE, "url"), "https://example.org/moved.git"), ((*GIT, "url"), "https://example.org/moved.git")
        ),
        "ref": nothing(((*ENGINE, "ref"), "release"), ((*GIT, "ref"), "release")),
        "subdirectory": row(((*ENGINE, "subdirectory"), None), engine={"source"}),
        # what the lock says of them decides
        "source_paths": nothing(((*ENGINE, "source_paths"), ["include", "python"])),
        "version": nothing(((*ENGINE, "version"), None)),
    },
    StackPackage: {"source": OWN_TEST, "targets": nothing((("stack", "packages", "engine", "targets"), ["gpu"]))},
    Stack: {
        "name": nothing((("stack", "name"), "t")),
        "description": nothing((("stack", "description"), "In other words.")),
        "packages": nothing((("stack", "packages"), lambda packages: {"alone": packages["alone"], **packages})),
        "environments": OWN_TEST,
    },
    # what the lock says of an environment decides, and only its torch
    StackEnvironment: {
        "torch": OWN_TEST,
        "pythons": nothing(((*GPU, "pythons"), ["3.12", "3.13"])),
        "requirements": nothing(((*GPU, "requirements"), ["six"])),
        "relaxed": nothing(((*GPU, "relaxed"), {})),
        "smoke_profile": nothing(((*GPU, "smoke_profile"), None)),
    },
    TorchPin: {
        "version": nothing(((*GPU, "torch", "version"), "2.15.0")),
        "variant": nothing(((*GPU, "torch", "variant"), "cu132")),
    },
    Lock: {
        "format": OWN_TEST,
        "stack": nothing((("lock", "stack"), "t")),
        "target": nothing((("lock", "target"), "t")),
        "sources": OWN_TEST,
        "build_requires": row((PINS, lambda pins: [*pins, {**pins[0], "name": "meson"}]), engine={"build-requires"}),
        # what it is reaches keys as part of the toolchain: test_toolkit.py of provision
        "toolkit": nothing((("lock", "toolkit"), None)),
        "modules": OWN_TEST,
        "pythons": OWN_TEST,
    },
    LockedToolkit: {
        "name": nothing((("lock", "toolkit", "name"), "cuda-13.1")),
        "release": nothing((("lock", "toolkit", "release"), "13.1")),
        "requires": nothing((("lock", "toolkit", "requires"), ["other"])),
        "requirements": nothing((("lock", "toolkit", "requirements", 0, "version"), "13.1.0")),
    },
    LockedModules: {
        "torch": OWN_TEST,
        "requirements": modules(((*LOCKED_MODULES, "requirements", 0, "version"), "2.3.1")),
    },
    LockedArchive: {
        "kind": OWN_TEST,
        "project": OWN_TEST,
        "version": OWN_TEST,
        # of several files the one for this Python decides
        "files": nothing(((*LOCKED, "files"), lambda files: files[:1])),
    },
    LockedFile: {
        "name": row(
            ((*LOCKED, "files", 0, "name"), "released-1.0-1-cp312-cp312-linux_x86_64.whl"), released={"source"}
        ),
        "sha256": row(
            ((*LOCKED, "files", 0, "sha256"), "0" * 64),
            (("known", "sources", "released"), "0" * 64),
            released={"source"},
        ),
    },
    LockedGit: {
        "kind": OWN_TEST,
        "url": nothing(((*ENGINE, "url"), "https://example.org/b.git"), ((*GIT, "url"), "https://example.org/b.git")),
        "ref": nothing(((*ENGINE, "ref"), "release"), ((*GIT, "ref"), "release")),
        "commit": nothing(((*GIT, "commit"), "0" * 40)),
        "described": nothing(((*GIT, "described"), "v0.5.23-8-g0000000")),
        # the version is also in a variable of the recipe
        "version": row(((*GIT, "version"), "0.5.25.dev0"), engine={"source", "environment"}),
        "paths": row(((*GIT, "paths"), lambda paths: paths[:1]), engine={"source"}),
        "submodules": row(((*GIT, "submodules"), []), engine={"source"}),
    },
    LockedPath: {
        "path": row(((*GIT, "paths", 1, "path"), "included"), engine={"source"}),
        "id": row(((*GIT, "paths", 1, "id"), "0" * 40), engine={"source"}),
    },
    LockedSubmodule: {
        "path": row(((*GIT, "submodules", 0, "path"), "include/other"), engine={"source"}),
        "url": nothing(((*GIT, "submodules", 0, "url"), "https://example.org/moved.git")),
        "commit": row(((*GIT, "submodules", 0, "commit"), "0" * 40), engine={"source"}),
    },
    LockedRequirement: {
        "name": row((PINS, lambda pins: [pins[0], {**pins[1], "name": "samurai"}]), engine={"build-requires"}),
        "version": row(((*PINS, 0, "version"), "3.31.10"), engine={"build-requires"}),
        "files": row(
            ((*PINS, 0, "files"), lambda files: [*files, {"name": "cmake.whl", "sha256": "0" * 64}]),
            engine={"build-requires"},
        ),
    },
    # of the environment, Python and torch: what else is installed is no matter of a wheel
    LockedPython: {
        "minor": row(((*PYTHON, "minor"), "3.13"), released={"toolchain"}, engine={"toolchain"}),
        "torch": OWN_TEST,
        "requirements": nothing(((*PYTHON, "requirements"), [])),
    },
    LockedTorch: {
        "version": row(((*PYTHON, "torch", "version"), "2.15.0"), engine={"toolchain"}),
        # it is also the CUDA of the wheels' labels
        "variant": row(
            ((*PYTHON, "torch", "variant"), "cu132"),
            **(TARGET | {"engine": {"target", "toolchain", "depends"}}),
        ),
        "sha256": nothing(((*PYTHON, "torch", "sha256"), [])),
    },
}
"""By model and field: what a change of it changes."""

KNOWN = {
    "toolchain": row((("known", "toolchain", "nvcc"), "13.1.2"), engine={"toolchain"}),
    "compilers": row((("known", "compilers", "CC"), "clang"), engine={"environment"}),
    "sources": row((("known", "sources", "base"), "0" * 64), base={"source"}, engine={"depends"}),
    "series": row((("known", "series", "engine", "first-topic"), "0" * 64), engine={"patches"}),
    "drivers": modules((("known", "drivers", "engine"), "0" * 64)),
    "module_set": modules((("known", "module_set"), "large")),
}
ROWS = [
    pytest.param(found, id=f"{owner}.{name}")
    for owner, rows in [*((model.__name__, rows) for model, rows in TABLE.items()), ("Known", KNOWN)]
    for name, found in rows.items()
    if found is not OWN_TEST
]


@pytest.mark.parametrize("model", TABLE, ids=lambda model: model.__name__)
def test_somebody_has_decided_about_every_field(model: type[FileModel]) -> None:
    assert set(TABLE[model]) == set(model.model_fields)


def test_somebody_has_decided_about_every_model() -> None:
    """Whatever a recipe, a target, a stack or a lock is made of is in the table."""
    seen: set[type[FileModel]] = set()
    open_: list[object] = [PackageRecipe, Target, Stack, Lock]
    while open_:
        found = open_.pop()
        if isinstance(found, type) and issubclass(found, FileModel):
            if found not in seen:
                seen.add(found)
                open_ += [field.annotation for field in found.model_fields.values()]
        else:
            open_ += get_args(found)
    assert seen == set(TABLE)


def test_somebody_has_decided_about_everything_that_a_machine_brings() -> None:
    assert set(KNOWN) == {field.name for field in dataclasses.fields(Known)}


@pytest.mark.parametrize("row_", ROWS)
def test_a_field_changes_the_keys_that_it_decides_about_and_no_other(row_: Row, world: World) -> None:
    before = drafted(world)
    for place, value in row_.sets:
        put(world, place, value)
    after = drafted(world)
    differing = {name for name in before if before[name].key != after[name].key}
    assert differing == set(row_.parts)
    for name, parts in row_.parts.items():
        found = changes(before[name].key_parts, after[name].key_parts)
        assert {change.place[0] for change in found} == parts


def test_another_name_is_another_package(world: World) -> None:
    before = drafted(world)["engine"]
    for place in (("recipes",), ("stack", "packages"), ("lock", "sources"), ("lock", "build_requires")):
        put(world, place, lambda named: {**named, "motor": named["engine"]})
    for place in (("lock", "modules"), ("known", "series"), ("known", "drivers")):
        put(world, place, lambda named: {**named, "motor": named["engine"]})
    put(world, ("recipes", "motor"), lambda recipe: {**recipe, "name": "motor"})
    after = drafted(world)["motor"]
    (change,) = changes(before.key_parts, after.key_parts)
    assert (change.part, change.before, change.after) == ("package", "engine", "motor")


def test_the_kind_of_a_source_decides(world: World) -> None:
    before = drafted(world)
    put(world, ("stack", "packages", "engine", "source"), {"kind": "path", "path": "kernels/engine"})
    put(world, ("stack", "packages", "base", "source"), {"kind": "sdist", "project": "archive", "version": "2.0"})
    put(world, ("lock", "sources", "base"), world["lock"]["sources"]["archive"])
    put(world, ("known", "sources", "base"), "3" * 64)
    after = drafted(world)
    for name in ("base", "engine"):
        assert "source.kind" in {change.part for change in changes(before[name].key_parts, after[name].key_parts)}


def test_a_repository_that_is_not_pinned_is_keyed_by_what_is_asked_for(world: World) -> None:
    pinned = drafted(world)["engine"]
    put(world, ("lock", "sources"), lambda sources: {k: v for k, v in sources.items() if k != "engine"})
    wanted = drafted(world)["engine"]
    put(world, (*ENGINE, "ref"), "release")
    assert len({pinned.key, wanted.key, drafted(world)["engine"].key}) == 3


def test_the_torch_of_modules_decides_with_its_pin(world: World) -> None:
    before = drafted(world)["engine"]
    for place in ((*MODULES, "torch", "version"), (*LOCKED_MODULES, "torch", "version")):
        put(world, place, "2.14.0")
    (change,) = changes(before.key_parts, drafted(world)["engine"].key_parts)
    assert (change.part, change.before, change.after) == ("modules.torch", "2.13.0+cpu", "2.14.0+cpu")


def test_the_name_of_a_set_is_in_version_and_key(world: World) -> None:
    before = drafted(world)["engine"]
    put(world, (*MODULES, "sets"), lambda sets: {"tiny": sets["small"]})
    put(world, (*MODULES, "default_set"), "tiny")
    after = drafted(world)["engine"]
    assert [change.part for change in changes(before.key_parts, after.key_parts)] == ["modules.set"]
    assert after.local_version == before.local_version.replace("small", "tiny")


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (("known", "module_set"), "huge", "unknown-module-set"),
        (("lock", "modules"), {}, "lock-stale"),
        ((*LOCKED_MODULES, "requirements"), [], "lock-stale"),
        ((*LOCKED_MODULES, "torch", "variant"), "cu130", "lock-stale"),
        (("recipes", "engine", "refuses"), {"numpy": "because"}, "foreign-package"),
    ],
)
def test_what_does_not_go_together_is_refused(world: World, place: Place, value: object, code: str) -> None:
    put(world, place, value)
    with pytest.raises(SglforgeError) as caught:
        drafted(world)
    assert caught.value.code == code


def test_a_target_without_gpu_architectures_has_no_modules(world: World) -> None:
    put(world, ("target", "arch_list"), [])
    assert drafted(world)["engine"].modules is None
    put(world, ("known", "module_set"), "small")
    with pytest.raises(SglforgeError, match="has modules for target"):
        drafted(world)
