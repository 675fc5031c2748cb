"""Rules of a target: what a profile must say, and must not say, on one kind of GPU with one version of SGLang.

The descriptions are the reference: the JSON schema is generated from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from sglforge.config.model import LINE, FileModel, Name, Version
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError
from sglforge.launch.written import rules_path
from sglforge.patches.contracts.model import Versions
from sglforge.patches.versions import holds

OPTION = r"^[a-z0-9][a-z0-9-]*$"
VARIABLE = r"^[A-Z][A-Z0-9_]*$"

Option = Annotated[str, Field(pattern=OPTION)]
Line = Annotated[str, Field(pattern=LINE)]


class Refusal(FileModel):
    """An option that cannot work, or some of its values."""

    flag: Annotated[Option, Field(description="server option without dashes")]
    values: Annotated[
        list[str], Field(description="values that are refused; empty: the option itself is", default_factory=list)
    ]


class Rule(FileModel):
    """What holds for some versions of SGLang on a target, and where it comes from."""

    versions: Annotated[Versions, Field(description="PEP 440 specifier of the versions of SGLang that it holds for")]
    superseded_from: Annotated[
        Version | None, Field(description="version from which upstream does the same, or the cause is gone")
    ] = None
    origin: Annotated[Line, Field(description="who wrote it: `sglforge`, or the URL it was taken from")]
    reason: Annotated[Line, Field(description="what goes wrong without it")]
    reference: Annotated[Line, Field(description="where the fact behind it can be read: files, issues")]
    tensor_parallel: Annotated[
        list[int],
        Field(description="tensor-parallel sizes that it holds for; empty: every one", default_factory=list),
    ]
    environment: Annotated[
        dict[Annotated[str, Field(pattern=VARIABLE)], Line],
        Field(description="environment variables that it sets", default_factory=dict),
    ]
    flags: Annotated[
        dict[Option, Line], Field(description="server options that it sets, without dashes", default_factory=dict)
    ]
    refuses: Annotated[
        list[Refusal], Field(description="server options that it does not let through", default_factory=list)
    ]

    @model_validator(mode="after")
    def _is_a_rule(self) -> Self:
        if not (self.environment or self.flags or self.refuses):
            raise ValueError("a rule sets or refuses something")
        if self.superseded_from and holds(self.versions, self.superseded_from):
            raise ValueError("`versions` holds `superseded-from`")
        return self

    def settings(self) -> str:
        """Return what the rule sets and refuses, in one line."""
        sets = [f"{name}={value}" for name, value in self.environment.items()]
        sets += [f"--{name} {value}" for name, value in self.flags.items()]
        refuses = [f"no --{refusal.flag} {' or '.join(refusal.values)}".rstrip() for refusal in self.refuses]
        return ", ".join([*sets, *refuses])


class RulesFile(FileModel):
    """The rules of one target (`recipes/rules/<target>.toml`)."""

    target: Annotated[Name, Field(description="target that they are for, equal to the file's name")]
    read_for: Annotated[
        Versions, Field(description="versions of SGLang that they were read for; others are not rendered")
    ]
    rules: Annotated[dict[Name, Rule], Field(description="rules by name", min_length=1)]


def load_rules(catalog_root: Path, target: str) -> RulesFile | None:
    """Read the rules of a target, or return None when it has none.

    Raises ConfigError ``config-invalid``, ``toml-syntax``, ``toml-unreadable`` and ``name-differs-from-file``.
    """
    path = rules_path(catalog_root, target)
    if not path.is_file():
        return None
    rules, document = load_model(path, RulesFile)
    if rules.target != target:
        raise ConfigError(
            code="name-differs-from-file",
            message=f"the rules in {path.name} are for target `{rules.target}`",
            where=document.where(("target",)),
            hint=f"rename the file to {rules.target}.toml, or write them for `{target}`",
        )
    return rules
