"""Any set of options, written as calls, as fields of a dataclass or of structs: both readers find just that set."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from option_trees import SHAPES, plant

from sglforge.trees.arguments.files import schema_files
from sglforge.trees.arguments.read import read_twice

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
VALUES: dict[str, st.SearchStrategy[object]] = {
    "str": TEXT,
    "int": st.integers(-(2**40), 2**40),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.just(False),
}
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(_[a-z0-9]{1,5})?", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in {"help", "argparse", "dataclasses", "msgspec"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    name: str
    kind: str
    default: object
    choices: tuple[object, ...] | None
    many: bool

    @property
    def annotation(self) -> str:
        inner = f"List[{self.kind}]" if self.many else self.kind
        hint = f"Optional[{inner}]" if self.default is None else inner
        choices = f", choices={list(self.choices)!r}" if self.choices else ""
        return f"    {self.name}: A[{hint}, Arg(help='h'{choices})] = {self.default!r}"

    @property
    def call(self) -> str:
        words = [f"'--{self.name.replace('_', '-')}'", f"default={self.default!r}", "help='h'"]
        if self.kind == "bool":
            words.append("action='store_true'")
        else:
            words.append(f"type={self.kind}")
        if self.many:
            words.append("nargs='+'")
        if self.choices:
            words.append(f"choices={list(self.choices)!r}")
        return f"        parser.add_argument({', '.join(words)})"


@st.composite
def wanted(draw: st.DrawFn) -> Wanted:
    kind = draw(st.sampled_from(sorted(VALUES)))
    many = kind != "bool" and draw(st.booleans())
    listed = st.lists(VALUES[kind], min_size=1, max_size=3, unique=True).map(tuple)
    choices = draw(st.none() | listed) if kind != "bool" else None
    default = None if many else draw(st.none() | (st.sampled_from(choices) if choices else VALUES[kind]))
    return Wanted(name=draw(NAMES), kind=kind, default=default, choices=choices, many=many)


def source(shape: str, options: list[Wanted]) -> dict[str, str]:
    files = dict(SHAPES[shape])
    where = "sglang/srt/arg_groups/fields/model.py" if shape == "structs" else "sglang/srt/server_args.py"
    text = files[where]
    if shape == "calls":
        head = text.index("        parser.add_argument(")
        files[where] = text[:head] + "\n".join([option.call for option in options] + ["        return parser"]) + "\n"
        return files
    begin = text.index("    model_path: ")
    end = text.index("    @staticmethod") if "@staticmethod" in text else len(text)
    files[where] = text[:begin] + "\n".join(option.annotation for option in options) + "\n\n" + text[end:]
    return files


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(options=st.lists(wanted(), min_size=1, max_size=8, unique_by=lambda option: option.name.replace("_", "-")))
def test_what_is_written_is_read(shape: str, options: list[Wanted], tmp_path_factory: pytest.TempPathFactory) -> None:
    tree = plant(tmp_path_factory.mktemp("tree"), source(shape, options))
    fixed = {"config", "old"}
    found = {argument.dest: argument for argument in read_twice(schema_files(tree))}
    assert found.keys() - fixed == {option.name for option in options} - fixed
    for option in options:
        if option.name in fixed:
            continue
        argument = found[option.name]
        assert argument.options == (f"--{option.name.replace('_', '-')}",)
        assert argument.type == (None if option.kind == "bool" else option.kind)
        assert argument.nargs == (0 if option.kind == "bool" else "+" if option.many else None)
        assert argument.choices == option.choices
        assert argument.default == option.default
        assert not argument.required
