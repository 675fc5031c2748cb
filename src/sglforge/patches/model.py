"""The models of a topic and of a series.

The descriptions are the reference: the JSON schemas are generated from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sglforge.config.model import DOTTED_NAME, MODULE, QUALIFIED_NAME, FileModel, Folder, HexSha256, Name, Version
from sglforge.patches.contracts.model import Contracts, Versions

Text = Annotated[str, Field(min_length=1)]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _are_different(value: dict[str, int]) -> dict[str, int]:
    if len(set(value.values())) < len(value):
        raise ValueError("two names stand for one parameter")
    return value


Files = Annotated[
    list[Folder], BeforeValidator(_as_list, json_schema_input_type=Folder | list[Folder]), Field(min_length=1)
]
Parameters = Annotated[
    dict[Annotated[str, Field(pattern=MODULE)], Annotated[int, Field(ge=0)]], AfterValidator(_are_different)
]


class StatementQuery(FileModel):
    """One statement in the anchored object's body, by its kind and a name; it must match exactly once."""

    type: Annotated[
        Literal["assign", "call", "for", "if", "import", "raise", "return", "try", "while", "with"],
        Field(description="kind of the statement; `call` is a call whose result is not used"),
    ]
    name: Annotated[
        str | None,
        Field(
            description="dotted name that it assigns, calls, imports, tests, iterates, opens or returns; the "
            "last parts are enough: `init_cuda_graphs` finds `self.init_cuda_graphs()`",
            pattern=DOTTED_NAME,
        ),
    ] = None
    literal: Annotated[
        str | None,
        Field(
            description="text that the statement's call has as its first argument: `--flag` finds one of many "
            '`parser.add_argument("--flag", ...)`; for `call`, `assign`, `return`, `raise` and `with`'
        ),
    ] = None
    nested: Annotated[
        bool,
        Field(description="look inside `if`, `for`, `with`, `try` and `match` blocks too, never inside a def"),
    ] = False

    @model_validator(mode="after")
    def _has_a_call(self) -> Self:
        if self.literal is not None and self.type not in {"call", "assign", "return", "raise", "with"}:
            raise ValueError(f"`literal` is the first argument of a call, which `{self.type}` is not")
        return self


class _Edit(FileModel):
    versions: Annotated[
        Versions | None,
        Field(description="PEP 440 specifier of the upstream versions that it is made for; left out: the topic's"),
    ] = None


class _FileEdit(_Edit):
    file: Annotated[
        Files,
        Field(
            description="file to edit, relative to the tree's root; or a list of places that it had in different "
            "versions, of which one must be there"
        ),
    ]


class _PythonEdit(_FileEdit):
    kind: Annotated[Literal["python"], Field(description="an edit of a Python file, anchored on its structure")]
    payload: Annotated[Folder, Field(description="code file of ours, relative to the topic's folder")]


class _FunctionEdit(_PythonEdit):
    parameters: Annotated[
        Parameters,
        Field(
            description="names in the payload that stand for parameters of the anchored function, by their index (0 "
            "is `self`), whatever upstream calls them",
            default_factory=dict,
        ),
    ]

    generator: Annotated[
        bool,
        Field(description="the payload makes the function a generator, or takes that from it, and that is meant"),
    ] = False

    @model_validator(mode="after")
    def _has_a_function(self) -> Self:
        if self.parameters and getattr(self, "anchor", None) is None:
            raise ValueError("`parameters` are those of an anchored function: name it as `anchor`")
        return self


class _InsertedEdit(_FunctionEdit):
    leaves: Annotated[
        bool,
        Field(
            description="the payload always returns or raises, so that upstream's code below it never runs, and that "
            "is meant"
        ),
    ] = False


class BodyEdit(_InsertedEdit):
    """Put statements at the start or the end of a body."""

    operation: Annotated[
        Literal["prepend-to-body", "append-to-body"],
        Field(description="where: after the docstring (and `__future__` imports), or after the last statement"),
    ]
    anchor: Annotated[
        str | None,
        Field(
            description="qualified name of the function or class; left out: the module",
            pattern=QUALIFIED_NAME,
        ),
    ] = None


class ClassAttributeEdit(_PythonEdit):
    """Put assignments at the top of a class body."""

    operation: Annotated[Literal["add-class-attribute"], Field(description="assignments, above everything else")]
    anchor: Annotated[str, Field(description="qualified name of the class", pattern=QUALIFIED_NAME)]


class InsertEdit(_InsertedEdit):
    """Put statements before or after the anchored object, or a statement in its body."""

    operation: Annotated[Literal["insert-before", "insert-after"], Field(description="which side of it")]
    anchor: Annotated[
        str | None,
        Field(
            description="qualified name of the function or class; left out: the module, with a `statement`",
            pattern=QUALIFIED_NAME,
        ),
    ] = None
    statement: Annotated[
        StatementQuery | None,
        Field(description="a statement in the anchored object's body; left out: the object"),
    ] = None

    @model_validator(mode="after")
    def _is_inside_the_function(self) -> Self:
        if self.parameters and self.statement is None:
            raise ValueError("`parameters` are not known beside the function: name a `statement` in it")
        return self


class ReplaceEdit(_FunctionEdit):
    """Put other statements, or another function, in the place of upstream's."""

    operation: Annotated[
        Literal["replace-body", "replace-function"],
        Field(description="the statements below the docstring, or signature and body; decorators stay"),
    ]
    anchor: Annotated[str, Field(description="qualified name of the function", pattern=QUALIFIED_NAME)]
    replaces: Annotated[
        HexSha256,
        Field(
            description="sha256 of the upstream text that is replaced; when another text is there, the topic "
            "has drifted and the finding gives its sha256"
        ),
    ]


PythonEdit = BodyEdit | ClassAttributeEdit | InsertEdit | ReplaceEdit


class TextEdit(_FileEdit):
    """Put lines before, after or in the place of lines of a text file: CMake, CUDA, shell."""

    kind: Annotated[Literal["text"], Field(description="an edit of a text file, anchored on whole lines")]
    operation: Annotated[
        Literal["insert-before", "insert-after", "replace"], Field(description="which side of the anchor, or instead")
    ]
    anchor: Annotated[
        Text,
        Field(description="lines of the file, whole and with their indentation; they must be there exactly once"),
    ]
    payload: Annotated[Folder, Field(description="text file of ours, relative to the topic's folder")]


class TomlEdit(_FileEdit):
    """Change one value of a TOML file; comments and layout stay."""

    kind: Annotated[Literal["toml"], Field(description="an edit of a TOML file, by key")]
    operation: Annotated[
        Literal["set", "append", "remove"],
        Field(description="give a key a value, add a value to an array, or take a key, or a value of an array, away"),
    ]
    key: Annotated[Text, Field(description="dotted key, as TOML writes it: `project.dependencies`")]
    value: Annotated[Any, Field(description="the value to set or append, or the array's value to remove")] = None
    replaces: Annotated[
        Any,
        Field(
            description="the old value, for a key that is set anew or removed; when another value is there, the topic "
            "has drifted"
        ),
    ] = None

    @field_validator("key")
    @classmethod
    def _is_a_key(cls, key: str) -> str:
        from sglforge.patches.tomledits import key_path

        try:
            key_path(key)
        except ValueError:
            raise ValueError("not a dotted key such as `project.dependencies`") from None
        return key

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        match self.operation:
            case "set" if self.value is None:
                raise ValueError("`set` needs a `value`")
            case "append" if self.value is None or self.replaces is not None:
                raise ValueError("`append` needs a `value`, and takes no `replaces`")
            case "remove" if (self.value is None) == (self.replaces is None):
                raise ValueError("`remove` needs either the array's `value` that goes, or what the key `replaces`")
            case _:
                return self


class DiffEdit(_Edit):
    """Apply a unified diff: git apply, exact context, every file of it or none."""

    kind: Annotated[Literal["diff"], Field(description="a unified diff, for a change that is carried as it is")]
    payload: Annotated[Folder, Field(description="the diff, relative to the topic's folder")]
    strip: Annotated[int, Field(description="folders to strip off the names in the diff, as for `patch -p`", ge=0)] = 1
    exclude: Annotated[
        list[Text],
        Field(
            description="globs of files in the diff that are left out, because the tree does not have them: `test/*`",
            default_factory=list,
        ),
    ]


AnyPythonEdit = Annotated[PythonEdit, Field(discriminator="operation")]
Edit = Annotated[AnyPythonEdit | TextEdit | TomlEdit | DiffEdit, Field(discriminator="kind")]
AnyEdit = PythonEdit | TextEdit | TomlEdit | DiffEdit


class Unsupported(FileModel):
    """Versions that a topic would be needed for and is not written for."""

    versions: Annotated[Versions, Field(description="PEP 440 specifier of those upstream versions")]
    reason: Annotated[Text, Field(description="why it does not work there")]


class PatchFile(FileModel):
    """One topic (`patches/<package>/<topic>/patch.toml`): why it exists and what it edits."""

    description: Annotated[Text, Field(description="what it changes, in a sentence (DEP-3)")]
    origin: Annotated[Text, Field(description="who wrote it: `sglforge`, or the URL it was taken from (DEP-3)")]
    reason: Annotated[Text, Field(description="what fails without it")]
    reference: Annotated[Text, Field(description="where the fact behind it can be read: a file, an issue, a URL")]
    forwarded: Annotated[Text, Field(description="`no`, `not-needed` or the URL of the upstream request (DEP-3)")]
    versions: Annotated[Versions, Field(description="PEP 440 specifier of the upstream versions that it is for")]
    superseded: Annotated[str, Field(description="what upstream would have to do, or did, for it to go")] = ""
    superseded_from: Annotated[
        Version | None,
        Field(description="upstream version from which something else does its work: `superseded` says what"),
    ] = None
    upstreamed_from: Annotated[
        Version | None, Field(description="upstream version from which upstream has the change itself")
    ] = None
    unsupported: Annotated[
        list[Unsupported],
        Field(
            description="upstream versions that would need the topic and that nobody has written it for",
            default_factory=list,
        ),
    ]
    evidence: Annotated[str, Field(description="text in the server's log that shows it at work")] = ""
    contracts: Annotated[
        Contracts, Field(description="what it promises beyond the contracts of every topic", default_factory=Contracts)
    ]
    edits: Annotated[list[Edit], Field(description="edits, in the order in which they are made", min_length=1)]


class SeriesFile(FileModel):
    """The order of a package's topics (`patches/<package>/series.toml`)."""

    topics: Annotated[
        list[Name], Field(description="folders beside this file, the first is applied first", min_length=1)
    ]
