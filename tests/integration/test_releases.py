"""Every locked release of SGLang, by its hash: the options of its server, and the patch series on its tree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import ROOT, Called, call

from sglforge.base import proc
from sglforge.base.treeid import tree_id
from sglforge.base.workspace import Workspace
from sglforge.config.releases import Release, read_releases, releases_path
from sglforge.errors import RenderError
from sglforge.host import package_index
from sglforge.patches.apply import apply_series
from sglforge.patches.drift import read_expectation
from sglforge.patches.series import load_series
from sglforge.patches.upstream import UpstreamTree, upstream_tree
from sglforge.patches.versions import holds
from sglforge.sources.fetch import fetch_file
from sglforge.trees.arguments.asked import ask_parser
from sglforge.trees.arguments.files import schema_files
from sglforge.trees.arguments.read import differences, read_arguments
from sglforge.trees.arguments.static import read_static
from sglforge.trees.version import tree_version

pytestmark = pytest.mark.integration

LOCKED = read_releases(releases_path(ROOT, "sglang"))
ALL = LOCKED.chosen(["all"])
COUNTS = {
    "0.5.9": (331, 341),
    "0.5.10": (354, 365),
    "0.5.10.post1": (354, 365),
    "0.5.11": (374, 387),
    "0.5.12": (387, 402),
    "0.5.12.post1": (387, 402),
    "0.5.13": (406, 419),
    "0.5.13.post1": (406, 419),
    "0.5.14": (420, 433),
    "0.5.15": (437, 451),
    "0.5.15.post1": (437, 451),
    "0.5.16": (460, 476),
    "0.5.17": (474, 491),
    "0.5.18": (488, 506),
    "0.5.19": (503, 521),
    "0.5.20": (494, 513),
    "0.5.21": (512, 532),
    "0.5.22": (521, 544),
    "0.5.23": (531, 559),
}
"""Options and option strings of each release."""
COPIED = LOCKED.chosen(["0.5.9", "0.5.16", "0.5.23"])
"""One of each shape."""


@pytest.fixture(scope="module", params=ALL, ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    found = request.param
    assert isinstance(found, Release)
    return found


@pytest.fixture(scope="module")
def tree(release: Release, workspace: Path) -> Iterator[UpstreamTree]:
    place = Workspace(root=workspace)
    source = LOCKED.source(release)
    archive = fetch_file(release.file, source, package="sglang", locations=package_index.read(), workspace=place)
    found = upstream_tree(archive, place)
    before = found.blobs
    yield found
    assert upstream_tree(archive, place).blobs == before


def test_both_readers_find_the_same_options(release: Release, tree: UpstreamTree, tmp_path: Path) -> None:
    files = schema_files(tree.root)
    static, asked = read_static(files), ask_parser(files)
    assert {argument.options for argument in static} == {argument.options for argument in asked}
    assert len(static) == len(asked)
    assert list(differences(static, asked)) == []
    schema = read_arguments(tree.root, workspace=Workspace(root=tmp_path))
    assert schema.version == release.version == tree_version(tree.root)
    assert (len(schema.arguments), len(schema.by_option)) == COUNTS[release.version]
    assert [argument.options for argument in schema.arguments if not argument.choices_known] == []
    assert [argument.options for argument in schema.arguments if not argument.default_known] == []
    assert [argument.options for argument in schema.arguments if argument.required] == [("--model-path", "--model")]


def test_known_facts_about_options(release: Release, tree: UpstreamTree, tmp_path: Path) -> None:
    schema = read_arguments(tree.root, workspace=Workspace(root=tmp_path))
    assert schema.argument("--tensor-parallel-size") == schema.argument("--tp-size")
    with pytest.raises(RenderError, match="argparse takes it for --tp-size"):
        schema.argument("--tp")
    assert schema.argument("--port").default == 30000
    assert "triton" in (schema.argument("--attention-backend").choices or ())
    assert ("--speculative-adaptive" in schema.by_option) == holds(">=0.5.11", release.version)
    assert "--enable-pcie-oneshot-allreduce" not in schema.by_option


@pytest.mark.parametrize("release", COPIED, indirect=True, ids=lambda release: release.version)
def test_a_try_is_what_writing_gives(release: Release, tree: UpstreamTree, tmp_path: Path) -> None:
    series = load_series(ROOT, "sglang")
    assert series is not None
    tried = apply_series(series, tree.root, version=release.version, write=False, known=tree.blobs)
    copy = Path(shutil.copytree(tree.root, tmp_path / "copy", symlinks=True))
    written = apply_series(series, copy, version=release.version)
    assert tried == written
    shutil.rmtree(copy)


@pytest.fixture(scope="module")
def matrix(workspace: Path) -> Called:
    return call("drift", "all", workspace=workspace)


def test_the_series_does_on_every_release_what_is_recorded(matrix: Called) -> None:
    assert (matrix.code, matrix.document["findings"]) == (0, []), matrix.talk
    recorded = read_expectation(ROOT / "patches/sglang/drift.json")
    assert {version for states in recorded.topics.values() for version in states} == set(COUNTS)
    cells = matrix.document["cells"]
    assert isinstance(cells, list)
    assert {(cell["topic"], cell["version"]): cell["state"] for cell in cells} == {
        (topic, version): state for topic, states in recorded.topics.items() for version, state in states.items()
    }


def test_an_unpatched_release_has_the_id_of_its_tree(matrix: Called, workspace: Path) -> None:
    versions = matrix.document["versions"]
    assert isinstance(versions, list)
    applied = {cell["version"] for cell in matrix.document["cells"] if cell["state"] == "applied"}  # type: ignore[attr-defined]
    bare = [entry for entry in versions if entry["version"] not in applied and entry["tree_id"]]
    for entry in bare[:2]:
        assert tree_id(workspace / "trees" / entry["sha256"] / "tree") == entry["tree_id"]


ASK = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs

def plain(value):
    return sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)

parser = argparse.ArgumentParser(add_help=False)
ServerArgs.add_cli_args(parser)
json.dump([
    [a.option_strings, a.dest, a.nargs, None if a.choices is None else plain(a.choices), a.required, repr(a.default)]
    for a in parser._actions
], open(sys.argv[1], "w"))
"""


def test_the_installed_parser_with_torch_says_the_same(built: Called, workspace: Path, tmp_path: Path) -> None:
    environment = built.document["environment"]
    assert isinstance(environment, dict)
    python = Path(environment["python"])
    answer = tmp_path / "answer.json"
    proc.run([python, "-P", "-c", ASK, answer], timeout_s=600)
    (installed,) = python.parents[1].glob("lib/python3*/site-packages")
    schema = read_arguments(installed, workspace=Workspace(root=tmp_path))
    ours = [
        [
            list(argument.options),
            argument.dest,
            argument.nargs,
            None if argument.choices is None else list(argument.choices),
            argument.required,
            repr(list(argument.default) if isinstance(argument.default, tuple) else argument.default),
        ]
        for argument in schema.arguments
    ]
    assert ours == json.loads(answer.read_text())
