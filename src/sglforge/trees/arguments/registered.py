"""From what is handed to ``add_argument`` to what argparse makes of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglforge.trees.arguments.constants import Definition, Module, Place, Sources, is_scalar, unreadable
from sglforge.trees.arguments.model import SUPPRESSED, Argument, argument_of

_SWITCHES = frozenset({"store_true", "store_false", "store_const", "append_const", "count"})
_DEFAULTS: Mapping[str, object] = {"store_true": False, "store_false": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is done with a value: argparse's word or the name of a class, with the defaults that class has."""

    name: str = "store"
    defaults: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One call of ``add_argument``, evaluated; a keyword whose value could not be told is UNKNOWN."""

    names: Sequence[str]
    keywords: Mapping[str, object]
    type: str | None
    action: Action
    where: str


def of_call(call: ast.Call, place: Place, sources: Sources) -> Registration:
    """Return what a call of ``add_argument`` in the source hands over.

    Raises RenderError ``arguments-unreadable`` where names or keywords are not written out.
    """
    where = place.module.where(call)
    names = [name for node in call.args if isinstance(name := sources.value(node, place), str)]
    if not names or len(names) != len(call.args) or any(word.arg is None for word in call.keywords):
        raise unreadable("an option is added whose names or keywords are not written out", where)
    given = {word.arg: word.value for word in call.keywords if word.arg}
    return Registration(
        names=names,
        keywords={name: sources.value(node, place) for name, node in given.items() if name not in {"type", "action"}},
        type=function_name(given["type"]) if "type" in given else None,
        action=action_of(given["action"], place.module, sources) if "action" in given else Action(defaults={}),
        where=where,
    )


def argument(registration: Registration) -> Argument:
    """Return the option that argparse makes of a registration."""
    action = registration.action
    keywords = {**action.defaults, **registration.keywords}
    options = list(registration.names)
    nargs = keywords.get("nargs")
    if action.name in _SWITCHES or action.name == "BooleanOptionalAction":
        nargs = 0
    if nargs is not None and not isinstance(nargs, int | str):
        raise unreadable(f"how many values {options[0]} takes is not known", registration.where)
    dest = keywords.get("dest", _dest(options))
    if not isinstance(dest, str):
        raise unreadable(f"where {options[0]} is stored is not known", registration.where)
    if action.name == "BooleanOptionalAction":
        options += [f"--no-{option[2:]}" for option in registration.names if option.startswith("--")]
    choices = keywords.get("choices")
    choices_known = choices is None or (isinstance(choices, list | tuple | set) and _is_plain(choices))
    default = keywords.get("default", _DEFAULTS.get(action.name))
    default_known = _is_plain_default(default)
    return argument_of(
        options=options,
        dest=dest,
        type=registration.type,
        nargs=nargs,
        action=action.name,
        choices=_ordered(choices) if choices_known else None,
        choices_known=choices_known,
        default=None if default == SUPPRESSED or not default_known else default,
        default_known=default_known,
        required=keywords.get("required") is True,
        replacement=_text(keywords.get("new_flag")),
        refusal=_text(keywords.get("error_message")),
        help=_text(keywords.get("help")),
    )


def function_name(node: ast.expr) -> str:
    """Return the name of the function that reads a value: ``int``, ``json.loads``, ``nullable_str``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"json.{node.attr}" if node.value.id == "json" else node.attr
    return node.id if isinstance(node, ast.Name) else "lambda" if isinstance(node, ast.Lambda) else "?"


def action_of(node: ast.expr, module: Module, sources: Sources) -> Action:
    """Return an action: one of argparse's words, or a class with the defaults of its ``__init__``."""
    match node:
        case ast.Constant(value=str(name)):
            return Action(name=name, defaults={})
        case ast.Name(id=name):
            definition = sources.definition(node, module)
            return Action(name=name, defaults=_signature(definition, sources) if definition else {})
        case ast.Attribute(attr=name):
            return Action(name=name, defaults={})
        case _:
            raise unreadable("what is done with the values of an option is not known", module.where(node))


def _signature(definition: Definition, sources: Sources) -> Mapping[str, object]:
    """Return the defaults of a class's ``__init__``."""
    place = Place(module=definition.module)
    for node in definition.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [argument.arg for argument in node.args.args][-len(node.args.defaults) or len(node.args.args) :]
            pairs = zip(names, node.args.defaults, strict=True)
            found = {name: sources.value(value, place) for name, value in pairs}
            keyword_only = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            return found | {arg.arg: sources.value(value, place) for arg, value in keyword_only if value}
    return {}


def _dest(options: Sequence[str]) -> str:
    long = next((option for option in options if option.startswith("--")), options[0])
    return long.lstrip("-").replace("-", "_")


def _ordered(choices: object) -> list[str | int | float | bool | None] | None:
    if choices is None or not isinstance(choices, list | tuple | set):
        return None
    return sorted(choices, key=repr) if isinstance(choices, set) else list(choices)


def _is_plain(values: list[object] | tuple[object, ...] | set[object]) -> bool:
    return all(map(is_scalar, values))


def _is_plain_default(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_scalar(entry) for key, entry in value.items())
    return _is_plain(value) if isinstance(value, list | tuple | set) else is_scalar(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
