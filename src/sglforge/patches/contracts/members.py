"""Members of classes: methods and attributes as Python finds them on an instance."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglforge.patches.anchors import dotted
from sglforge.patches.contracts.bodies import class_attributes, has_generated_init, methods
from sglforge.patches.contracts.classes import Base, ClassGraph, Known, Outside
from sglforge.patches.contracts.scopes import Function

WITHOUT_SELF = frozenset({"staticmethod", "classmethod"})
"""Decorators of functions that get no instance."""

_OF_EVERY_OBJECT = frozenset({*dir(object), "__dict__", "__module__", "__weakref__", "__annotations__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A function of a class body."""

    owner: Known
    function: Function

    @property
    def name(self) -> str:
        """Its qualified name."""
        return f"{self.owner.name}.{self.function.name}"

    def __str__(self) -> str:
        return f"`{self.name}` ({self.owner.file}:{self.function.lineno})"


Initializer = Method | Known | Outside | None
"""A method, a class whose ``__init__`` is made of its fields, something outside of the tree, that of `object`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of the classes of a tree, read when they are asked for."""

    graph: ClassGraph
    _methods: dict[Known, Mapping[str, Function]] = field(default_factory=dict)
    _attributes: dict[Known, Mapping[str, int]] = field(default_factory=dict)
    _plain: dict[Function, bool] = field(default_factory=dict)

    def methods(self, cls: Known) -> Mapping[str, Function]:
        """Return the functions that a class body defines, by name."""
        if cls not in self._methods:
            self._methods[cls] = methods(cls)
        return self._methods[cls]

    def attributes(self, cls: Known) -> Mapping[str, int]:
        """Return the names that the class itself has, without its bases, each with its line."""
        if cls not in self._attributes:
            self._attributes[cls] = class_attributes(self.graph, cls)
        return self._attributes[cls]

    def runs_when_called(self, method: Method) -> bool:
        """Tell whether a call on an instance runs a method's body with it: no generator, nothing static."""
        function = method.function
        if function not in self._plain:
            self._plain[function] = (
                isinstance(function, ast.FunctionDef)
                and not any(dotted(decorator) in WITHOUT_SELF for decorator in function.decorator_list)
                and not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
            )
        return self._plain[function]

    def find(self, order: Sequence[Base], name: str) -> Initializer:
        """Return what a method's name means on classes in their order, or None when none of them has it.

        Outside is returned when a base that the tree does not define comes first, or when the name is no function; a
        class when the name is ``__init__`` and is made of the fields of that class.
        """
        for base in order:
            if isinstance(base, Outside):
                if not _is_builtin(base) or name in _builtin_attributes(base):
                    return base
                continue
            if function := self.methods(base).get(name):
                return Method(owner=base, function=function)
            if name in self.attributes(base):
                return Outside(f"{base.name}.{name}")
            if name == "__init__" and has_generated_init(self.graph, base):
                return base
        return None

    def provider(self, cls: Known, name: str) -> Base | None:
        """Return the class that gives an instance an attribute without any `__init__`, or None."""
        if name in _OF_EVERY_OBJECT:
            return Outside("object")
        for base in self.graph.order(cls):
            if isinstance(base, Known):
                if name in self.attributes(base):
                    return base
            elif name in _builtin_attributes(base):
                return base
        return None


def mangled(name: str, cls: Known) -> str:
    """Return an attribute's name as Python stores it when code in a class body spells it."""
    if name.startswith("__") and not name.endswith("__"):
        return f"_{cls.node.name.lstrip('_')}{name}"
    return name


def _is_builtin(base: Outside) -> bool:
    return base.name.startswith("builtins.")


def _builtin_attributes(base: Outside) -> frozenset[str]:
    """Return the attributes of a builtin class; of any other outside base, none."""
    if not _is_builtin(base):
        return frozenset()
    return frozenset(dir(getattr(builtins, base.name.partition(".")[2], object)))
