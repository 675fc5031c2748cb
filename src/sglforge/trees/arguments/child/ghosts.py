"""Stand-ins for everything that a schema does not depend on: torch, kernels, hooks.

A ghost answers whatever it is asked with another ghost. A name is true, as functions and classes are; the result of
a call is false: what was asked about the machine is not so. Iterated, a ghost gives one ghost, so that a value made
of one can be told from a value that is really there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, MutableSequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Self


class Ghost:
    """A value of a module that was not loaded; ``name`` says which."""

    def __init__(self, name: str, *, truth: bool = True) -> None:
        self.name = name
        self.truth = truth

    def __getattr__(self, name: str) -> Ghost:
        if name.startswith("__"):
            raise AttributeError(name)
        return Ghost(f"{self.name}.{name}")

    def __call__(self, *arguments: object, **keywords: object) -> object:
        """Return a decorated function or class as it is, else another ghost."""
        if len(arguments) == 1 and not keywords and isinstance(arguments[0], (FunctionType, type)):
            return arguments[0]
        return Ghost(f"{self.name}()", truth=False)

    def __getitem__(self, _key: object) -> Ghost:
        return Ghost(f"{self.name}[]")

    def __iter__(self) -> Iterator[Ghost]:
        yield Ghost(f"{self.name}*")

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, _value: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return self.truth

    def __len__(self) -> int:
        return 1

    def __contains__(self, _value: object) -> bool:
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _with(self, _other: object) -> Ghost:
        return Ghost(f"{self.name}~")

    __or__ = __ror__ = __and__ = __rand__ = __add__ = __radd__ = __sub__ = __rsub__ = _with
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = _with

    def _is_not(self, _other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _is_not


class GhostModule(ModuleType):
    """A module that was not loaded; its submodules are looked for as usual."""

    __path__: MutableSequence[str] = []  # noqa: RUF012 - a mark of packages; nothing is looked for in it

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if _is_real(full):
            return importlib.import_module(full)
        return Ghost(full)


class GhostFinder(MetaPathFinder, Loader):
    """Answer every import that nothing before it answered with a ghost, but for the standard library's."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return the spec of a ghost."""
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the ghost."""
        return GhostModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


def _is_real(name: str) -> bool:
    """Tell whether a finder before the ghosts has a module of that name."""
    finders: list[Callable[..., ModuleSpec | None]] = [
        finder.find_spec for finder in sys.meta_path if not isinstance(finder, GhostFinder)
    ]
    return any(find(name, None) is not None for find in finders)
