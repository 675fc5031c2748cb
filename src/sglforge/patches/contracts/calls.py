"""Calls: the short list of those that cannot fail, and what a call means for `self`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from sglforge.patches.anchors import dotted

ANY_OBJECT = "answers about any object"
PLAIN_VALUES = "converts or compares plain values; a payload that gives it something else is wrong at first sight"
BUILDS = "builds a container; an iterator that raises is in its argument, which is looked at by itself"
LOGS = "logging reports its own faults and never raises them"

HARMLESS: Mapping[str, str] = MappingProxyType(
    {
        "callable": ANY_OBJECT,
        "hasattr": ANY_OBJECT,
        "id": ANY_OBJECT,
        "isinstance": ANY_OBJECT,
        "issubclass": ANY_OBJECT,
        "object": ANY_OBJECT,
        "super": ANY_OBJECT,
        "type": ANY_OBJECT,
        "bool": PLAIN_VALUES,
        "float": PLAIN_VALUES,
        "int": PLAIN_VALUES,
        "len": PLAIN_VALUES,
        "max": PLAIN_VALUES,
        "min": PLAIN_VALUES,
        "range": PLAIN_VALUES,
        "str": PLAIN_VALUES,
        "dict": BUILDS,
        "frozenset": BUILDS,
        "list": BUILDS,
        "set": BUILDS,
        "tuple": BUILDS,
    }
)
"""Builtins that count as unable to fail, each with the reason. `getattr` with a default is one too."""

LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
"""Methods of a logger."""


def is_harmless(call: ast.Call) -> bool:
    """Tell whether a call is on the list; its arguments are judged by themselves."""
    name = dotted(call.func)
    if name == "getattr":
        return len(call.args) == 3
    receiver, _, method = name.rpartition(".")
    if method in LEVELS and receiver.rpartition(".")[2].lower() in {"logger", "log", "logging"}:
        return True
    return name in HARMLESS


def attribute_set(call: ast.Call, me: str) -> str | None:
    """Return the attribute that `setattr(self, "x", ...)` or `object.__setattr__` sets, or None."""
    match call:
        case ast.Call(
            func=ast.Name(id="setattr") | ast.Attribute(value=ast.Name(id="object"), attr="__setattr__"),
            args=[ast.Name(id=name), ast.Constant(value=str(attribute)), _],
        ) if name == me:
            return attribute
        case _:
            return None


def attribute_got(call: ast.Call, me: str) -> str | None:
    """Return the attribute that `getattr(self, "x")` without a default reads, or None."""
    match call:
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=name), ast.Constant(value=str(attribute))]) if (
            name == me
        ):
            return attribute
        case _:
            return None


def known_when(test: ast.expr, me: str | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes that `self` surely has when a condition is true, and when it is false."""
    nothing = frozenset[str]()
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            true, false = known_when(operand, me)
            return false, true
        case ast.BoolOp(op=ast.And(), values=values):
            return nothing.union(*(known_when(value, me)[0] for value in values)), nothing
        case ast.BoolOp(op=ast.Or(), values=values):
            return nothing, nothing.union(*(known_when(value, me)[1] for value in values))
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="getattr")) as got,
            ops=[(ast.Is() | ast.IsNot()) as operator],
            comparators=[ast.Constant(value=None)],
        ):
            there, _ = known_when(got, me)
            return (there, nothing) if isinstance(operator, ast.IsNot) else (nothing, there)
        case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id=name), ast.Constant(value=str(attribute))]):
            return frozenset({attribute} if name == me else ()), nothing
        case ast.Call(
            func=ast.Name(id="getattr"),
            args=[ast.Name(id=name), ast.Constant(value=str(attribute)), ast.Constant(value=None)],
        ):
            return frozenset({attribute} if name == me else ()), nothing
        case _:
            return nothing, nothing
