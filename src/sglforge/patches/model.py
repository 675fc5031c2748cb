"""The models of a topic and of a series.

The descriptions are the reference: the JSON schemas are generated from them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from sglforge.config.model import DOTTED_NAME, QUALIFIED_NAME, FileModel, Folder, HexSha256, Name

Text = Annotated[str, Field(min_length=1)]


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
    nested: Annotated[
        bool,
        Field(description="look inside `if`, `for`, `with`, `try` and `match` blocks too, never inside a def"),
    ] = False


class _PythonEdit(FileModel):
    kind: Annotated[Literal["python"], Field(description="an edit of a Python file, anchored on its structure")]
    file: Annotated[Folder, Field(description="file to edit, relative to the tree's root")]
    payload: Annotated[Folder, Field(description="code file of ours, relative to the topic's folder")]


class BodyEdit(_PythonEdit):
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


class InsertEdit(_PythonEdit):
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


class ReplaceEdit(_PythonEdit):
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
Edit = Annotated[PythonEdit, Field(discriminator="operation")]


class PatchFile(FileModel):
    """One topic (`patches/<package>/<topic>/patch.toml`): why it exists and what it edits."""

    description: Annotated[Text, Field(description="what it changes, in a sentence (DEP-3)")]
    origin: Annotated[Text, Field(description="who wrote it: `sglforge`, or the URL it was taken from (DEP-3)")]
    reason: Annotated[Text, Field(description="what fails without it")]
    reference: Annotated[Text, Field(description="where the fact behind it can be read: a file, an issue, a URL")]
    forwarded: Annotated[Text, Field(description="`no`, `not-needed` or the URL of the upstream request (DEP-3)")]
    versions: Annotated[Text, Field(description="PEP 440 specifier of the upstream versions that it is for")]
    superseded: Annotated[str, Field(description="what upstream would have to do for it to go")] = ""
    evidence: Annotated[str, Field(description="text in the server's log that shows it at work")] = ""
    edits: Annotated[list[Edit], Field(description="edits, in the order in which they are made", min_length=1)]

    @field_validator("versions")
    @classmethod
    def _is_a_specifier(cls, value: str) -> str:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            raise ValueError("not a version specifier such as `>=0.5.9,<0.5.13`") from None
        return value


class SeriesFile(FileModel):
    """The order of a package's topics (`patches/<package>/series.toml`)."""

    topics: Annotated[
        list[Name], Field(description="folders beside this file, the first is applied first", min_length=1)
    ]
