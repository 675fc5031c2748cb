"""Contracts that every topic keeps: its files compile, and it uses no name that is not bound."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator

from sglforge.errors import PatchError
from sglforge.patches.pytext import PythonText


def check(file: str, before: PythonText, after: PythonText) -> None:
    """Hold an edited file to the default contracts, with the Python that runs.

    Raises PatchError ``patch-does-not-compile`` and ``patch-undefined-name``.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(after.raw, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise PatchError(
            code="patch-does-not-compile",
            message=f"{file} does not compile any more: {error}",
            hint="the payload does not fit the place that it goes to",
        ) from error
    if names := sorted(set(_new_undefined(before, after))):
        raise PatchError(
            code="patch-undefined-name",
            message=f"{file} uses "
            + ", ".join(f"`{name}` (line {line})" for name, line in names)
            + " without binding it",
            hint="import it in the payload, or use the name that this version of upstream has",
        )


def _new_undefined(before: PythonText, after: PythonText) -> Iterator[tuple[str, int]]:
    now = list(_undefined(after.module))
    if not now:
        return
    known = Counter(name for name, _ in _undefined(before.module))
    for name, line in now:
        known[name] -= 1
        if known[name] < 0:
            yield name, line


def _undefined(module: ast.Module) -> Iterator[tuple[str, int]]:
    from pyflakes.checker import Checker
    from pyflakes.messages import UndefinedExport, UndefinedLocal, UndefinedName

    for message in Checker(module).messages:
        if isinstance(message, UndefinedName | UndefinedLocal | UndefinedExport):
            yield str(message.message_args[0]), message.lineno
