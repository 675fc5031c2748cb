"""What decides nothing changes no key: order, other packages, processes, locales; and labels survive commits."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.base.files import digest

from .conftest import WORLD, World, drafted, put

GOLDEN = Path(__file__).with_name("golden.json")
CONFTEST = Path(__file__).with_name("conftest.py")


def keys(world: World) -> dict[str, str]:
    return {name: draft.key for name, draft in drafted(world).items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    return keys(WORLD)


# Lists whose order is a matter of how a lock was written.
UNORDERED = frozenset({"files", "paths", "submodules", "engine", "source_paths"})


def shuffled(value: Any, order: random.Random, name: str = "") -> Any:
    """Return a value with tables, and lists that are sets, in another order."""
    if isinstance(value, dict):
        names = list(value)
        if name != "engine" or "first-topic" not in value:  # the order of a series decides
            order.shuffle(names)
        return {key: shuffled(value[key], order, key) for key in names}
    if isinstance(value, list):
        entries = [shuffled(entry, order, name) for entry in value]
        if name in UNORDERED:
            order.shuffle(entries)
        return entries
    return value


@given(st.randoms(use_true_random=False))
def test_order_decides_nothing_where_it_means_nothing(expected: dict[str, str], order: random.Random) -> None:
    world = shuffled(WORLD, order)
    # the order of a stack is that of its builds: what is built with another package stands behind it
    packages = world["stack"]["packages"]
    world["stack"]["packages"] = {"base": packages.pop("base"), **packages}
    assert keys(world) == expected


@given(st.sets(st.sampled_from(["released", "archive", "alone"])), st.sets(st.sampled_from("abc")))
def test_other_packages_decide_nothing(expected: dict[str, str], gone: set[str], more: set[str]) -> None:
    world = copy.deepcopy(WORLD)
    for name in gone:
        del world["stack"]["packages"][name]
    for name in more:
        world["stack"]["packages"][name] = {"source": {"kind": "path", "path": name}}
        world["recipes"][name] = {"name": name, "description": "x", "import_name": name}
        world["known"]["sources"][name] = digest(name)
    found = keys(world)
    assert {name: found[name] for name in expected if name not in gone} == {
        name: key for name, key in expected.items() if name not in gone
    }


WORDS = st.text(max_size=20)
HEX40 = st.text("0123456789abcdef", min_size=40, max_size=40)


@given(description=WORDS, reason=WORDS, waits=st.none() | WORDS, cores=st.integers(1, 999), commit=HEX40)
def test_words_jobs_and_commits_decide_nothing(
    expected: dict[str, str], description: str, reason: str, waits: str | None, cores: int, commit: str
) -> None:
    world = copy.deepcopy(WORLD)
    for place in (("stack",), ("target",), *(("recipes", name) for name in world["recipes"])):
        put(world, (*place, "description"), description)
    put(world, ("recipes", "engine", "waits_for"), waits)
    put(world, ("recipes", "engine", "exclude", "engine/tests/*"), reason)
    put(world, ("target", "min_cores"), cores)
    put(world, ("lock", "sources", "engine", "commit"), commit)
    put(world, ("lock", "sources", "engine", "described"), f"v0.5.23-{cores}-g{commit[:7]}")
    found = drafted(world)
    assert {name: draft.key for name, draft in found.items()} == expected
    # labels neither: a commit that leaves the paths alone gives the same wheel under the same name
    assert {name: draft.local_version for name, draft in found.items()} == {
        name: draft.local_version for name, draft in drafted(WORLD).items()
    }


@given(st.dictionaries(st.sampled_from(["gcc", "nvcc", "host-compiler", "glibc"]), WORDS))
def test_a_toolchain_that_a_recipe_does_not_name_decides_nothing(
    expected: dict[str, str], toolchain: dict[str, str]
) -> None:
    world = copy.deepcopy(WORLD)
    world["known"]["toolchain"] |= toolchain
    found = keys(world)
    assert {name: found[name] for name in expected if name != "engine"} == {
        name: key for name, key in expected.items() if name != "engine"
    }


def test_labels_name_cuda_target_tree_and_patches(world: World) -> None:
    def labels() -> dict[str, str]:
        return {name: draft.local_version for name, draft in drafted(world).items()}

    before = labels()
    parts = digest([("first-topic", "8" * 64), ("second-topic", "9" * 64)])[:8]
    assert before["base"] == "cu130.gpu.teeeeeeee"
    assert before["released"] == "cu130.gpu.t11111111"
    assert before["engine"].startswith("cu130.gpu.t")
    assert before["engine"].endswith(f".p{parts}.small")
    put(world, ("lock", "sources", "engine", "paths", 0, "id"), "0" * 40)
    assert labels()["engine"] != before["engine"]
    # one tree is named as git names it
    put(world, ("lock", "sources", "engine", "submodules"), [])
    put(world, ("lock", "sources", "engine", "paths"), [{"path": "python", "id": "abcdef0123" * 4}])
    assert labels()["engine"] == f"cu130.gpu.tabcdef01.p{parts}.small"
    put(world, ("known", "series"), {})
    put(world, ("target", "kind"), "cpu")
    put(world, ("target", "name"), "cpu-x")
    put(world, ("stack", "packages", "alone", "targets"), [])
    assert labels()["engine"] == "cpu.x.tabcdef01.small"


def test_keys_are_those_of_yesterday() -> None:
    """Whoever changes them on purpose counts up KEY_FORMAT: every store has to build everything again."""
    found = {name: {"key": draft.key, "parts": draft.key_parts} for name, draft in drafted(WORLD).items()}
    assert json.loads(json.dumps(found)) == json.loads(GOLDEN.read_text())


SCRIPT = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("world", sys.argv[1])
world = importlib.util.module_from_spec(spec)
spec.loader.exec_module(world)
print(json.dumps({name: draft.key for name, draft in world.drafted(world.WORLD).items()}))
"""


@pytest.mark.parametrize(
    "surroundings",
    [
        {"PYTHONHASHSEED": "1", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "4711", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"},
        {"PYTHONHASHSEED": "random", "PYTHONUTF8": "0", "PYTHONOPTIMIZE": "2", "USER": "x", "HOME": "/nowhere"},
    ],
)
def test_another_process_finds_the_same_keys(
    expected: dict[str, str], surroundings: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, CONFTEST],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), **surroundings},
        umask=0o077,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == expected
