"""The options of a server as a frozen model, with the exact look-up that argparse does not do."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sglforge.base.ids import Sha256
from sglforge.config.suggest import hint
from sglforge.errors import RenderError

Plain: TypeAlias = "str | int | float | bool | None"
Default: TypeAlias = "Plain | tuple[Plain, ...] | Mapping[str, Plain]"

SUPPRESSED = "==SUPPRESS=="
"""What argparse writes for a help text that is not shown."""
_DEPRECATED = re.compile(r"\W*(?:\w+:\s*)?\W*deprecated", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One option of the server.

    ``type`` is the name of the function that reads a value, None for a switch. ``nargs`` is argparse's: None is
    one value, 0 none, ``?``, ``*``, ``+`` or a number. ``choices`` is None where every value goes; where no reader
    could tell the choices, ``choices_known`` is False. ``default`` is only meant where ``default_known`` is True.
    ``replacement`` is what upstream says to use instead of a deprecated option, ``refusal`` the message with which
    the server stops when a retired one is given.
    """

    options: tuple[str, ...]
    dest: str
    type: str | None
    nargs: int | str | None
    action: str
    choices: tuple[Plain, ...] | None = None
    choices_known: bool = True
    default: Default = None
    default_known: bool = True
    required: bool = False
    deprecated: bool = False
    replacement: str = ""
    refusal: str = ""
    hidden: bool = False
    help: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.nargs == 0

    @property
    def takes_many(self) -> bool:
        """Whether it takes a list of values."""
        return self.nargs in {"*", "+"} or (isinstance(self.nargs, int) and self.nargs > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentSchema:
    """Every option of a tree; ``files`` is one hash over the files that they were read from."""

    version: str
    files: Sha256
    arguments: tuple[Argument, ...]

    @property
    def by_option(self) -> Mapping[str, Argument]:
        """The arguments by every option string that names them."""
        return {option: argument for argument in self.arguments for option in argument.options}

    def argument(self, option: str, *, where: str | None = None) -> Argument:
        """Return the argument of an option string, dashes included: exactly that one, no abbreviation.

        Raises RenderError ``unknown-option`` with the nearest option strings.
        """
        by_option = self.by_option
        if found := by_option.get(option):
            return found
        longer = sorted(known for known in by_option if known.startswith(option)) if len(option) > 2 else []
        message = f"SGLang {self.version} has no option {option}"
        if len(longer) == 1:
            message += f"; argparse takes it for {longer[0]}, as long as no other option begins with it"
        elif longer:
            message += f"; {len(longer)} begin with it: {', '.join(longer[:5])}"
        raise RenderError(
            code="unknown-option",
            message=message,
            where=where,
            hint=f"write {longer[0]} in full" if len(longer) == 1 else _nearest(option, list(by_option)),
        )

    def to_json(self) -> dict[str, object]:
        """Return the schema as a document."""
        return {
            "version": self.version,
            "files": self.files,
            "arguments": [dataclasses.asdict(argument) for argument in self.arguments],
        }


def arguments_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Argument, ...]:
    """Return the arguments of documents that ``dataclasses.asdict`` made of them.

    Raises KeyError or TypeError for any other document.
    """
    return tuple(_restored(entry) for entry in entries)


def argument_of(
    *,
    options: Sequence[str],
    dest: str,
    type: str | None,  # noqa: A002 - argparse's word
    nargs: int | str | None,
    action: str,
    choices: Sequence[Plain] | None,
    choices_known: bool,
    default: object,
    default_known: bool,
    required: bool,
    replacement: str,
    refusal: str,
    help: str,  # noqa: A002 - argparse's word
) -> Argument:
    """Return an argument of what a reader found; both readers come by here, so that they say the same alike."""
    hidden = help == SUPPRESSED
    text = "" if hidden else " ".join(help.replace("%%", "%").split())
    return Argument(
        options=tuple(options),
        dest=dest,
        type=None if nargs == 0 else type,
        nargs=nargs,
        action=action,
        choices=None if choices is None else tuple(choices),
        choices_known=choices_known,
        default=frozen(default),
        default_known=default_known,
        required=required,
        deprecated=action.startswith("Deprecated") or bool(_DEPRECATED.match(text)),
        replacement=replacement,
        refusal=refusal,
        hidden=hidden,
        help=_SENTENCE.split(text, maxsplit=1)[0],
    )


def frozen(value: object) -> Default:
    """Return a default with its lists as tuples.

    Raises TypeError for what JSON cannot hold.
    """
    if isinstance(value, list | tuple):
        return tuple(value)
    if value is None or isinstance(value, str | int | float | bool | Mapping):
        return value
    raise TypeError(f"{value!r} is no default")


def _restored(entry: Mapping[str, Any]) -> Argument:
    values = dict(entry)
    values["options"] = tuple(values["options"])
    values["choices"] = None if values["choices"] is None else tuple(values["choices"])
    values["default"] = frozen(values["default"])
    return Argument(**values)


def _nearest(option: str, known: Sequence[str]) -> str:
    found = hint(option, known)
    return found if found.startswith("did you mean") else "sglang.launch_server --help lists all options of that tree"
