"""Small trees of our own in the three shapes that SGLang has written its options in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ACTIONS = """\
import argparse


class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, error_message=None, nargs=0, **kwargs):
        self.error_message = error_message
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        pass


class DeprecatedAliasAction(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, **kwargs):
        self.new_flag = new_flag
        super().__init__(option_strings, dest, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)
"""
CHOICES = """\
FORMATS = ["auto", "safetensors"]
DRAFT_FORMATS = [*FORMATS, "none"]
BACKENDS = {"triton", "flashinfer"}


def add_format(name):
    FORMATS.append(name)
"""
CALLS = """\
from __future__ import annotations

import argparse
import dataclasses
import json
from typing import List, Optional

import torch
from sglang.srt.arg_groups.argparse_actions import DeprecatedAction, DeprecatedAliasAction
from sglang.srt.arg_groups.choices import BACKENDS, DRAFT_FORMATS, FORMATS
from sglang.srt.environ import envs
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.srt.utils.common import human_readable_int, is_hip

LIMIT = 4 * 1024
IS_HIP = is_hip()


@dataclasses.dataclass
class ServerArgs:
    model_path: str
    load_format: str = "auto"
    context_length: Optional[int] = None
    max_tokens: int = LIMIT
    urls: List[str] = dataclasses.field(default_factory=list)
    trust: bool = False
    layers: Optional[List[int]] = None
    gpu: bool = dataclasses.field(default_factory=lambda: is_hip())

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        parser.add_argument("--model-path", "--model", type=str, help="Where. It lies.", required=True)
        parser.add_argument("--load-format", type=str, default=ServerArgs.load_format, choices=FORMATS, help="How.")
        parser.add_argument("--context-length", type=human_readable_int, default=ServerArgs.context_length)
        parser.add_argument("--max-tokens", type=int, default=ServerArgs.max_tokens, help=f"At most {LIMIT}.")
        group = parser.add_argument_group("more")
        group.add_argument("--urls", type=str, nargs="*", default=[])
        group.add_argument("--trust", action="store_true", help="100%% trust")
        group.add_argument("--layers", type=int, nargs="+", choices=[1, 2, 3])
        parser.add_argument("--strict", action=argparse.BooleanOptionalAction, default=True, help="Strict.")
        backends = set(BACKENDS)
        if envs.SGLANG_ORACLE.get():
            backends.add("oracle")
        parser.add_argument("--backend", type=str, choices=backends, default="triton")
        names = list(ReasoningParser.DetectorMap.keys())
        parser.add_argument("--reasoning", type=str, choices=["auto"] + names)
        parser.add_argument("--extra", type=json.loads, help=argparse.SUPPRESS)
        parser.add_argument("--old", action=DeprecatedAction, error_message="gone: use --new", help="Old.")
        parser.add_argument("--draft-fmt", dest="draft_format", action=DeprecatedAliasAction,
                            new_flag="--draft-format", default=argparse.SUPPRESS, type=str, choices=DRAFT_FORMATS)
        parser.add_argument("-d", "--depth", type=int, nargs=2, help="Deprecated. Use nothing.")
        more_options(parser)


def more_options(into):
    into.add_argument("--more", type=float, default=-1)
"""
ARG_UTILS = '''\
from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

{imports}

A = Annotated


{arg}


def fields_of(cls):
    {fields}


def add_cli_args_from_dataclass(parser, cls):
    """The rules of SGLang in our words: one option for each field with a help text or an Arg."""
    hints = get_type_hints(cls, include_extras=True)
    for field in fields_of(cls):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue
        inner, *metadata = get_args(hint)
        found = [Arg(help=item) if isinstance(item, str) else item for item in metadata]
        found = [item for item in found if isinstance(item, Arg)]
        if not found or found[0].no_cli:
            continue
        register(parser, field, inner, found[0])


def register(parser, field, inner, arg):
    names = [arg.cli_name or "--" + field.name.replace("_", "-"), *(arg.aliases or [])]
    words = {{"dest": field.name, "help": arg.help}}
    missing = True
    for default in (field.default, field.default_factory):
        if default is not dataclasses.MISSING and repr(default) != "NODEFAULT":
            words["default"] = default() if default is field.default_factory else default
            missing = False
    if arg.action is not None:
        parser.add_argument(*names, action=arg.action, **words, **(arg.action_kwargs or {{}}))
        return
    if get_origin(inner) is Union:
        kept = [kind for kind in get_args(inner) if kind is not type(None)]
        inner = kept[0] if len(kept) == 1 else inner
    reads = {{str: str, int: int, float: float}}
    if get_origin(inner) is Literal:
        values = list(get_args(inner))
        parser.add_argument(*names, type=arg.type_parser or reads.get(type(values[0]), str),
                            choices=arg.choices or values, **words)
    elif get_origin(inner) is list and arg.type_parser is None:
        if arg.choices:
            words["choices"] = arg.choices
        parser.add_argument(*names, type=reads.get(get_args(inner)[0], str), nargs=arg.nargs or "+", **words)
    elif inner is bool:
        parser.add_argument(*names, action="store_true", **words)
    else:
        if arg.choices:
            words["choices"] = arg.choices
        if arg.nargs:
            words["nargs"] = arg.nargs
        if arg.required is True or (arg.required is None and missing):
            words["required"] = True
        parser.add_argument(*names, type=arg.type_parser or reads.get(inner, str), **words)
'''
ARG_FIELDS = """\
    help: str = ""
    choices: Any = None
    aliases: Any = None
    cli_name: Any = None
    type_parser: Any = None
    nargs: Any = None
    required: Any = None
    action: Any = None
    action_kwargs: Any = None
    no_cli: bool = False
"""
DATACLASS_UTILS = ARG_UTILS.format(
    imports="import numpy",
    arg=f"@dataclasses.dataclass(frozen=True)\nclass Arg:\n{ARG_FIELDS}",
    fields="return dataclasses.fields(cls)",
)
STRUCT_UTILS = ARG_UTILS.format(
    imports="import msgspec\nimport msgspec.structs",
    arg=f"class Arg(msgspec.Struct, frozen=True):\n{ARG_FIELDS}",
    fields="return msgspec.structs.fields(cls)",
)
FIELDS = """\
    model_path: A[str, Arg(help="Where. It lies.", aliases=["--model"])]
    load_format: A[str, Arg(help="How.", choices=FORMATS)] = "auto"
    context_length: A[Optional[int], Arg(help="How long.", type_parser=human_readable_int)] = None
    max_tokens: A[int, "At most."] = 4 * 1024
    urls: A[List[str], Arg(help="Some.", nargs="*")] = {list_field}
    trust: A[bool, "Trust."] = False
    layers: A[Optional[List[int]], Arg(choices=[1, 2, 3])] = None
    strict: A[bool, Arg(help="Strict.", action=argparse.BooleanOptionalAction)] = True
    mode: A[Literal["a", "b"], "Mode."] = "a"
    level: A[Optional[Literal[1, 2]], "Level."] = None
    lora: A[Optional[List[str]], Arg(action=LoRAAction, action_kwargs={{"type": str, "nargs": "*"}})] = None
    tp_size: A[int, Arg(help="Size.", cli_name="--tensor-parallel-size", aliases=["--tp"])] = 1
    inner: A[int, Arg(no_cli=True)] = 0
    plain: int = 7
    marked: A[float, NS("x"), "Marked."] = 0.5
    twice: A[int, "First."] = 1
    twice: A[str, "Second."] = "2"
"""
LORA = "\n\nclass LoRAAction(argparse.Action):\n    def __call__(self, *_):\n        pass\n"
DATACLASS = (
    """\
from __future__ import annotations

import argparse
import dataclasses
from typing import List, Literal, Optional

import torch
from sglang.srt.arg_groups.arg_utils import A, Arg, add_cli_args_from_dataclass
from sglang.srt.arg_groups.argparse_actions import DeprecatedAction, LoRAAction
from sglang.srt.arg_groups.choices import FORMATS
from sglang.srt.utils.common import NS, human_readable_int


@dataclasses.dataclass
class ServerArgs:
"""
    + FIELDS.format(list_field="dataclasses.field(default_factory=list)")
    + """
    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--config", type=str, help="A file.")
        parser.add_argument("--old", action=DeprecatedAction, help="Old.")
"""
)
STRUCTS = """\
from __future__ import annotations

import argparse

import msgspec

from sglang.srt.arg_groups.arg_utils import add_cli_args_from_dataclass, fields_of
from sglang.srt.arg_groups.argparse_actions import DeprecatedAction
from sglang.srt.arg_groups.fields import collect_input_fields
from sglang.srt.arg_groups.fields.model import Model
from sglang.srt.arg_groups.overrides import resolve


class ServerArgs:
    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--config", type=str, help="A file.")
        parser.add_argument("--old", action=DeprecatedAction, help="Old.")


_NAMESPACES = [Model]
_annotations, _defaults = collect_input_fields(_NAMESPACES)
ServerArgs = msgspec.defstruct(
    "ServerArgs",
    [(name, hint, _defaults[name]) if name in _defaults else (name, hint) for name, hint in _annotations.items()],
    namespace={key: value for key, value in vars(ServerArgs).items() if not key.startswith("__")},
    dict=True,
)
"""
COLLECT = """\
from typing import get_type_hints

import msgspec
import msgspec.structs


def collect_input_fields(sources):
    annotations, defaults = {}, {}
    for source in sources:
        hints = get_type_hints(source, include_extras=True)
        for field in msgspec.structs.fields(source):
            annotations[field.name] = hints[field.name]
            if field.default is not msgspec.NODEFAULT:
                defaults[field.name] = field.default
            elif field.default_factory is not msgspec.NODEFAULT:
                defaults[field.name] = msgspec.field(default_factory=field.default_factory)
    return annotations, defaults
"""
MODEL_STRUCT = """\
from __future__ import annotations

import argparse
from typing import List, Literal, Optional

import msgspec

from sglang.srt.arg_groups.arg_utils import A, Arg
from sglang.srt.arg_groups.argparse_actions import LoRAAction
from sglang.srt.arg_groups.choices import FORMATS
from sglang.srt.utils.common import NS, human_readable_int


class Model(msgspec.Struct):
    _NS_PATH = "model"
""" + FIELDS.format(list_field="msgspec.field(default_factory=list)")
REASONING = """\
import transformers


class ReasoningParser:
    DetectorMap = {"deepseek": transformers.Deep, "kimi": transformers.Kimi}
"""
GROUPS = "sglang/srt/arg_groups"
SHAPES: Mapping[str, Mapping[str, str]] = {
    "calls": {
        "sglang/srt/server_args.py": CALLS,
        f"{GROUPS}/argparse_actions.py": ACTIONS,
        f"{GROUPS}/choices.py": CHOICES,
        "sglang/srt/parser/reasoning_parser.py": REASONING,
    },
    "dataclass": {
        "sglang/srt/server_args.py": DATACLASS,
        f"{GROUPS}/arg_utils.py": DATACLASS_UTILS,
        f"{GROUPS}/argparse_actions.py": ACTIONS + LORA,
        f"{GROUPS}/choices.py": CHOICES,
    },
    "structs": {
        "sglang/srt/server_args.py": STRUCTS,
        f"{GROUPS}/arg_utils.py": STRUCT_UTILS,
        f"{GROUPS}/argparse_actions.py": ACTIONS + LORA,
        f"{GROUPS}/choices.py": CHOICES,
        f"{GROUPS}/fields/__init__.py": COLLECT,
        f"{GROUPS}/fields/model.py": MODEL_STRUCT,
        f"{GROUPS}/overrides.py": "import torch\n\ntorch.cuda.must_not_be_run = 1 / 0\n",
    },
}


def plant(tree: Path, files: Mapping[str, str]) -> Path:
    """Write a tree's files and return it."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree


def server_args(body: str = "pass", *, top: str = "") -> Mapping[str, str]:
    """Return a tree of one file: what `add_cli_args` does, and what stands above the class."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = f"import argparse\n{top}\n\nclass ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n{lines}\n"
    return {"sglang/srt/server_args.py": text}
