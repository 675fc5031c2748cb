"""Two readers of three shapes: each option as it is, and both the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from option_trees import SHAPES, plant, server_args

from sglforge.errors import RenderError
from sglforge.trees.arguments.asked import ask_parser
from sglforge.trees.arguments.files import schema_files
from sglforge.trees.arguments.model import Argument, Default, Plain
from sglforge.trees.arguments.read import differences, read_twice
from sglforge.trees.arguments.static import read_static


def option(
    *options: str,
    dest: str = "",
    reads: str | None = "str",
    nargs: int | str | None = None,
    action: str = "store",
    choices: tuple[Plain, ...] | None = None,
    default: Default = None,
    required: bool = False,
    deprecated: bool = False,
    replacement: str = "",
    refusal: str = "",
    hidden: bool = False,
    text: str = "",
) -> Argument:
    return Argument(
        options=options,
        dest=dest or options[0][2:].replace("-", "_"),
        type=reads,
        nargs=nargs,
        action=action,
        choices=choices,
        default=default,
        required=required,
        deprecated=deprecated,
        replacement=replacement,
        refusal=refusal,
        hidden=hidden,
        help=text,
    )


OF_CALLS = {
    option("--model-path", "--model", required=True, text="Where."),
    option("--load-format", choices=("auto", "safetensors"), default="auto", text="How."),
    option("--context-length", reads="human_readable_int"),
    option("--max-tokens", reads="int", default=4096, text="At most 4096."),
    option("--urls", nargs="*", default=()),
    option("--trust", reads=None, nargs=0, action="store_true", default=False, text="100% trust"),
    option("--layers", reads="int", nargs="+", choices=(1, 2, 3)),
    option(
        "--strict", "--no-strict", reads=None, nargs=0, action="BooleanOptionalAction", default=True, text="Strict."
    ),
    option("--backend", choices=("flashinfer", "triton"), default="triton"),
    option("--reasoning", choices=("auto", "deepseek", "kimi")),
    option("--extra", reads="json.loads", hidden=True),
    option(
        "--old", reads=None, nargs=0, action="DeprecatedAction", deprecated=True, refusal="gone: use --new", text="Old."
    ),
    option(
        "--draft-fmt",
        dest="draft_format",
        action="DeprecatedAliasAction",
        choices=("auto", "safetensors", "none"),
        deprecated=True,
        replacement="--draft-format",
    ),
    option("-d", "--depth", dest="depth", reads="int", nargs=2, deprecated=True, text="Deprecated."),
    option("--more", reads="float", default=-1),
}
OF_FIELDS = {
    option("--model-path", "--model", required=True, text="Where."),
    option("--load-format", choices=("auto", "safetensors"), default="auto", text="How."),
    option("--context-length", reads="human_readable_int", text="How long."),
    option("--max-tokens", reads="int", default=4096, text="At most."),
    option("--urls", nargs="*", default=(), text="Some."),
    option("--trust", reads=None, nargs=0, action="store_true", default=False, text="Trust."),
    option("--layers", reads="int", nargs="+", choices=(1, 2, 3)),
    option(
        "--strict", "--no-strict", reads=None, nargs=0, action="BooleanOptionalAction", default=True, text="Strict."
    ),
    option("--mode", choices=("a", "b"), default="a", text="Mode."),
    option("--level", reads="int", choices=(1, 2), text="Level."),
    option("--lora", nargs="*", action="LoRAAction"),
    option("--tensor-parallel-size", "--tp", dest="tp_size", reads="int", default=1, text="Size."),
    option("--marked", reads="float", default=0.5, text="Marked."),
    option("--twice", default="2", text="Second."),
    option("--config", text="A file."),
    option("--old", reads=None, nargs=0, action="DeprecatedAction", deprecated=True, text="Old."),
}
EXPECTED = {"calls": OF_CALLS, "dataclass": OF_FIELDS, "structs": OF_FIELDS}


def by_name(arguments: tuple[Argument, ...]) -> dict[str, Argument]:
    return {argument.options[0]: argument for argument in arguments}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_option_is_what_it_is(shape: str, tmp_path: Path) -> None:
    read = read_twice(schema_files(plant(tmp_path, SHAPES[shape])))
    wanted = {argument.options[0]: argument for argument in EXPECTED[shape]}
    assert by_name(read) == wanted
    assert len(read) == len(wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_repository_has_it_under_python(shape: str, tmp_path: Path) -> None:
    plant(tmp_path / "python", SHAPES[shape])
    assert len(read_twice(schema_files(tmp_path))) == len(EXPECTED[shape])


@pytest.mark.parametrize("shape", SHAPES)
def test_each_reader_alone_finds_the_same_options(shape: str, tmp_path: Path) -> None:
    files = schema_files(plant(tmp_path, SHAPES[shape]))
    static, asked = read_static(files), ask_parser(files)
    assert {argument.options for argument in static} == {argument.options for argument in asked}
    assert list(differences(static, asked)) == []


def test_what_one_reader_cannot_tell_the_other_does(tmp_path: Path) -> None:
    files = schema_files(plant(tmp_path, SHAPES["calls"]))
    static, asked = by_name(read_static(files)), by_name(ask_parser(files))
    assert not static["--backend"].choices_known  # changed under a condition
    assert asked["--backend"].choices == ("flashinfer", "triton")
    assert static["--reasoning"].choices == ("auto", "deepseek", "kimi")


def test_choices_of_a_module_that_does_not_run_come_from_its_source(tmp_path: Path) -> None:
    files = {**SHAPES["calls"], "sglang/srt/parser/reasoning_parser.py": REASONING_THAT_FAILS}
    read = by_name(read_twice(schema_files(plant(tmp_path, files))))
    assert read["--reasoning"].choices == ("auto", "deepseek")
    assert read["--reasoning"].choices_known


REASONING_THAT_FAILS = """\
import re


class ReasoningParser:
    DetectorMap = {"deepseek": object}


raise RuntimeError("needs a tokenizer")
"""


def test_choices_that_nobody_can_tell_are_said_to_be_unknown(tmp_path: Path) -> None:
    body = 'parser.add_argument("--a", choices=tokens())\nparser.add_argument("--b", choices=list(tokens.of))'
    top = "from sglang.srt.utils.common import tokens\n"
    read = by_name(read_twice(schema_files(plant(tmp_path, server_args(body, top=top)))))
    assert [(read[name].choices, read[name].choices_known) for name in ("--a", "--b")] == [(None, False)] * 2


@pytest.mark.parametrize(
    ("body", "top", "choices"),
    [
        ("choices=A + ['c']", "A = ['a']\n", ("a", "c")),
        ("choices=(*A, 'c')", "A = ['a']\n", ("a", "c")),
        ("choices=sorted(A)", "A = {'b': 1, 'a': 2}\n", ("a", "b")),
        ("choices=[A[0], A[-1]]", "A = ['a', 'b', 'c']\n", ("a", "c")),
        ("choices=Kind.ALL", "class Kind:\n    ONE = 'a'\n    ALL = (ONE, 'b')\n", ("a", "b")),
        ("choices=range(3)", "", (0, 1, 2)),
        ("choices=A", "A = ['a']\nA.append('b')\n", ("a", "b")),
        ("choices=A", "A = ['a']\nA += ['b']\n", ("a", "b")),
        ("choices=A", "try:\n    A = ['a']\nexcept ImportError:\n    A = []\n", ("a",)),
        ("choices=[m.name for m in M]", "import enum\n\n\nclass M(enum.Enum):\n    x = 1\n", ("x",)),
        ("choices=A", "A = B\nB = A\n", None),
    ],
)
def test_choices_are_read_or_left_to_the_parser(
    body: str, top: str, choices: tuple[Plain, ...] | None, tmp_path: Path
) -> None:
    tree = plant(tmp_path, server_args(f'parser.add_argument("--x", {body})', top=top))
    if choices is None:
        with pytest.raises(RenderError) as caught:
            read_twice(schema_files(tree))
        assert caught.value.code == "arguments-failed"  # a name that is made of itself does not run either
        return
    (found,) = read_twice(schema_files(tree))
    assert (found.choices, found.choices_known) == (choices, True)


def test_a_value_that_doubles_itself_is_not_computed(tmp_path: Path) -> None:
    top = "A0 = ['x'] * 1\nB0 = ['x', 'y']\n" + "".join(f"B{n} = [*B{n - 1}, *B{n - 1}]\n" for n in range(1, 60))
    top += "C0 = ('x',)\n" + "".join(f"C{n} = (C{n - 1}, C{n - 1})\n" for n in range(1, 60))
    files = schema_files(plant(tmp_path, server_args('parser.add_argument("--x", choices=B59, default=C59)', top=top)))
    (found,) = read_static(files)
    assert (found.choices_known, found.default_known) == (False, False)


def test_options_under_a_condition_are_a_contradiction_not_a_guess(tmp_path: Path) -> None:
    body = 'if os.environ.get("SGLANG_X"):\n    parser.add_argument("--hidden-one")\nparser.add_argument("--there")'
    with pytest.raises(RenderError) as caught:
        read_twice(schema_files(plant(tmp_path, server_args(body, top="import os"))))
    assert caught.value.code == "arguments-differ"
    assert "--hidden-one: only the source has it" in caught.value.context["difference"]


def test_a_contradiction_about_a_value_is_one_too(tmp_path: Path) -> None:
    files = schema_files(plant(tmp_path, SHAPES["calls"]))
    asked = ask_parser(files)
    changed = tuple(
        option(*argument.options, reads="int", required=True) if argument.options[0] == "--model-path" else argument
        for argument in asked
    )
    assert [line.split(" is ")[0] for line in differences(changed, asked)] == ["--model-path/--model: type"]
