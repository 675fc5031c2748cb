"""What a topic declares about its contracts.

The descriptions are the reference: the JSON schema is generated from them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from sglforge.config.model import MODULE, QUALIFIED_NAME, FileModel


def _is_a_specifier(value: str) -> str:
    from sglforge.patches.versions import common, parse_specifier

    parse_specifier(value)
    if common(value, value) is None:
        raise ValueError("no version is in that range")
    return value


Text = Annotated[str, Field(min_length=1)]
Attribute = Annotated[str, Field(pattern=MODULE)]
Classes = Annotated[
    list[Annotated[str, Field(pattern=QUALIFIED_NAME)]],
    Field(description="qualified names of those subclasses", min_length=1),
]
Versions = Annotated[str, Field(min_length=1), AfterValidator(_is_a_specifier)]
OwnVersions = Annotated[
    Versions | None,
    Field(description="PEP 440 specifier of the upstream versions that have these subclasses; left out: the topic's"),
]
Waivable = Literal["attribute-set", "subclass-assigned", "flag-exists", "evidence-exists"]


class Refusal(FileModel):
    """Subclasses that never run a topic's assignment, and the error that refuses its setting for them."""

    attribute: Annotated[Attribute, Field(description="attribute that stays at its class default in the subclasses")]
    classes: Classes
    setting: Annotated[
        Attribute, Field(description="name that the condition of the refusal reads: the field of the setting")
    ]
    message: Annotated[Text, Field(description="text in the message of the `raise` that refuses it")]
    versions: OwnVersions = None


class Default(FileModel):
    """Subclasses that never run a topic's assignment, and for which the class default is right."""

    attribute: Annotated[Attribute, Field(description="attribute that stays at its class default in the subclasses")]
    classes: Classes
    reason: Annotated[Text, Field(description="why the default is right there")]
    versions: OwnVersions = None


class Waiver(FileModel):
    """A contract that is switched off for a topic; it shows as a warning."""

    contract: Annotated[Waivable, Field(description="name of the contract")]
    reason: Annotated[Text, Field(description="why it need not hold")]


class Contracts(FileModel):
    """What a topic declares about its contracts; most of them hold without being declared."""

    flags: Annotated[
        list[Annotated[str, Field(pattern=r"^--[a-z0-9][a-z0-9-]*$")]],
        Field(description="options that the patched tree's own parser must know", default_factory=list),
    ]
    refused: Annotated[
        list[Refusal], Field(description="subclasses that refuse a setting at start-up", default_factory=list)
    ]
    defaulted: Annotated[
        list[Default], Field(description="subclasses for which a class default is right", default_factory=list)
    ]
    waive: Annotated[list[Waiver], Field(description="contracts that are switched off", default_factory=list)]
