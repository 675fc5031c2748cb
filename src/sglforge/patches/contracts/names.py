"""The contracts `compiles` and `names-bound`: edited files compile, and use no name that nothing binds."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

from sglforge.errors import PatchError
from sglforge.patches.contracts.origins import Origins
from sglforge.patches.pytext import PythonText


def check(file: str, before: PythonText, after: PythonText, origins: Callable[[], Origins]) -> None:
    """Hold an edited file to both contracts, with the Python that runs.

    ``origins`` tells where lines of the edited files are written; it is asked when there is a fault.

    Raises PatchError ``patch-does-not-compile`` and ``patch-undefined-name``.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(after.raw, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise PatchError(
            code="patch-does-not-compile",
            message=f"{file} does not compile any more: {error}",
            where=origins().written(file, line) if line else None,
            hint="the payload does not fit the place that it goes to",
        ) from error
    if names := _new_undefined(file, before, after, origins):
        written = {f"`{name}` (line {line})": where for line, name, where in names}
        raise PatchError(
            code="patch-undefined-name",
            message=f"{file} uses {', '.join(written)} without binding it",
            where=next((where for where in written.values() if where), None),
            context={name: f"from {where}" for name, where in written.items() if where},
            hint="import it in the payload, or use the name that this version of upstream has",
        )


def _new_undefined(
    file: str, before: PythonText, after: PythonText, origins: Callable[[], Origins]
) -> list[tuple[int, str, str | None]]:
    """Return the line, the name and the payload's line of each use that was not there before the edits."""
    now = list(_undefined(after.module))
    new = Counter(name for name, _ in now)
    if new:
        new -= Counter(name for name, _ in _undefined(before.module))
    if not new:
        return []
    known = origins()
    uses = sorted(((line, name, known.written(file, line)) for name, line in now), key=lambda use: use[2] is None)
    found = [use for name, count in new.items() for use in [use for use in uses if use[1] == name][:count]]
    return sorted(set(found), key=lambda use: use[:2])


def _undefined(module: ast.Module) -> Iterator[tuple[str, int]]:
    from pyflakes.checker import Checker
    from pyflakes.messages import UndefinedExport, UndefinedLocal, UndefinedName

    for message in Checker(module).messages:
        if isinstance(message, UndefinedName | UndefinedLocal | UndefinedExport):
            yield str(message.message_args[0]), message.lineno
