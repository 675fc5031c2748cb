"""The schema: exact look-up, and what is kept of it in the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from option_trees import SHAPES, plant, server_args

from sglforge.base import proc
from sglforge.base.workspace import Workspace
from sglforge.errors import RenderError
from sglforge.trees.arguments.read import read_arguments

VERSION = {"sglang-0.5.16.dist-info/METADATA": "Name: sglang\nVersion: 0.5.16\n"}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "workspace")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree", {**SHAPES["dataclass"], **VERSION})


def never(*_: object, **__: object) -> proc.Completed:
    raise AssertionError("no process should have been started")


def test_every_option_string_leads_to_its_argument(tree: Path, workspace: Workspace) -> None:
    schema = read_arguments(tree, workspace=workspace)
    assert schema.version == "0.5.16"
    assert schema.argument("--tp") is schema.argument("--tensor-parallel-size")
    assert schema.argument("--no-strict").dest == "strict"
    assert schema.argument("--trust").is_switch
    assert schema.argument("--layers").takes_many
    assert not schema.argument("--config").takes_many


@pytest.mark.parametrize(
    ("word", "told", "hint"),
    [
        (
            "--tensor-parallel",
            "argparse takes it for --tensor-parallel-size",
            "write --tensor-parallel-size in full",
        ),
        ("--load_format", "no option --load_format", "did you mean `--load-format`?"),
        ("--contexts-length", "no option --contexts-length", "did you mean `--context-length`?"),
        ("load-format", "no option load-format", "did you mean `--load-format`?"),
        ("--m", "5 begin with it: --marked, --max-tokens, --mode, --model, --model-path", "did you mean"),
        ("--zzz", "no option --zzz", "--help"),
        ("", "no option", "--help"),
    ],
)
def test_an_option_that_is_not_there(word: str, told: str, hint: str, tree: Path, workspace: Workspace) -> None:
    schema = read_arguments(tree, workspace=workspace)
    with pytest.raises(RenderError) as caught:
        schema.argument(word, where="profile.toml:3")
    error = caught.value
    assert (error.code, error.where) == ("unknown-option", "profile.toml:3")
    assert "SGLang 0.5.16" in error.message
    assert told in error.message
    assert hint in error.hint


def test_a_second_reading_only_hashes(tree: Path, workspace: Workspace) -> None:
    first = read_arguments(tree, workspace=workspace)
    assert read_arguments(tree, workspace=workspace, run=never) == first
    (tree / "sglang/srt/models.py").write_text("what options do not depend on\n")
    assert read_arguments(tree, workspace=workspace, run=never) == first


def test_the_version_is_read_anew(tree: Path, workspace: Workspace) -> None:
    read_arguments(tree, workspace=workspace)
    plant(tree, {name: text.replace("0.5.16", "0.5.17") for name, text in VERSION.items()})
    assert read_arguments(tree, workspace=workspace, run=never).version == "0.5.17"
    (tree / next(iter(VERSION))).unlink()
    assert "unknown version" in read_arguments(tree, workspace=workspace, run=never).version


def test_each_file_that_counts_is_read_again_when_it_changes(tree: Path, workspace: Workspace) -> None:
    before = read_arguments(tree, workspace=workspace)
    choices = tree / "sglang/srt/arg_groups/choices.py"
    choices.write_text(choices.read_text().replace('"safetensors"', '"gguf"'))
    after = read_arguments(tree, workspace=workspace)
    assert after.files != before.files
    assert after.argument("--load-format").choices == ("auto", "gguf")
    plant(tree, {"sglang/srt/arg_groups/new.py": ""})
    assert read_arguments(tree, workspace=workspace).files != after.files


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"digest": "", "arguments": []}', "\x00"])
def test_what_is_damaged_is_read_again(damage: str, tree: Path, workspace: Workspace) -> None:
    first = read_arguments(tree, workspace=workspace)
    (kept,) = workspace.arguments.iterdir()
    text = kept.read_text()
    for content in (damage, text.replace("--model-path", "--model-psth"), text[: len(text) // 2]):
        kept.write_text(content)
        assert read_arguments(tree, workspace=workspace) == first
        assert kept.read_text() == text


def test_nothing_is_kept_of_a_tree_that_cannot_be_read(tmp_path: Path, workspace: Workspace) -> None:
    with pytest.raises(RenderError):
        read_arguments(plant(tmp_path / "bad", server_args("helper(parser)")), workspace=workspace)
    assert not workspace.root.exists()
