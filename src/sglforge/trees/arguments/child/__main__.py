"""Ask the parser of a tree for its options: ``python -I -S -B __main__.py``, with the order on stdin as JSON.

The order names the modules that are really run: those that are ``needed``, and those that only give ``choices`` and
may fail. Everything else that is imported and is not of the standard library is a ghost. The answer is one JSON
document on stdout; what the tree itself prints goes to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SERVER_ARGS = "sglang.srt.server_args"
CPU_S = 30


class TreeFinder(MetaPathFinder, Loader):
    """Find the modules of a tree that are really loaded; their code is compiled here, no byte code is kept."""

    def __init__(self, files: dict[str, str], optional: dict[str, str], ghost: Callable[[str], ModuleType]) -> None:
        self.files = {**files, **optional}
        self.optional = optional
        self.ghost = ghost

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return the spec of a module of the tree."""
        file = self.files.get(name)
        if file is None:
            return None
        return ModuleSpec(name, self, origin=file, is_package=file.endswith("/__init__.py"))

    def create_module(self, _spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the import system."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Compile the source and run it."""
        file = self.files[module.__name__]
        module.__file__ = file
        with open(file, "rb") as stream:  # noqa: PTH123 - pathlib may be the tree's victim, builtins are enough
            code = compile(stream.read(), file, "exec", dont_inherit=True)
        try:
            exec(code, vars(module))  # noqa: S102 - this process is there for it
        except Exception:
            if module.__name__ not in self.optional:
                raise
            sys.modules[module.__name__] = self.ghost(module.__name__)


def main(root: str, files: dict[str, str], optional: dict[str, str]) -> dict[str, object]:
    """Return the options of a tree's parser as a document, or what went wrong with it."""
    from sglforge.trees.arguments.child import ghosts, guards, records

    sys.path.remove(root)
    sys.modules.update(records.modules())
    sys.meta_path.insert(0, TreeFinder(files, optional, ghosts.GhostModule))
    sys.meta_path.append(ghosts.GhostFinder())
    tries: list[str] = []
    guards.limit(CPU_S)
    guards.guard(tries)
    try:
        arguments = _ask(ghosts.Ghost)
    except BaseException as error:  # noqa: BLE001 - SystemExit and the like too: whatever it was is the answer
        return {"error": _shown(error, files), "arguments": [], "tries": tries}
    return {"error": None, "arguments": arguments, "tries": tries}


def _ask(ghost: type) -> list[dict[str, object]]:
    parser = argparse.ArgumentParser(prog="server", add_help=False)
    server_args = importlib.import_module(SERVER_ARGS).ServerArgs
    server_args.add_cli_args(parser)
    return [_argument(action, ghost) for action in parser._actions]  # noqa: SLF001 - argparse has no other way


def _argument(action: argparse.Action, ghost: type) -> dict[str, object]:
    choices: list[object] | None = None
    known = True
    if action.choices is not None:
        if isinstance(action.choices, ghost):
            known = False
        else:
            choices = _listed(action.choices)
            known = all(_is_plain(choice) for choice in choices)
    default, default_known = _plain(action.default)
    return {
        "options": list(action.option_strings),
        "dest": action.dest,
        "type": _type(action.type, ghost),
        "nargs": action.nargs,
        "choices": choices if known else None,
        "choices_known": known,
        "default": default,
        "default_known": default_known,
        "required": action.required,
        "action": type(action).__name__,
        "replacement": _text(action, "new_flag"),
        "refusal": _text(action, "error_message"),
        "help": action.help if isinstance(action.help, str) else "",
    }


def _type(parse: Callable[[str], Any] | argparse.FileType | str | None, ghost: type) -> str | None:
    if parse is None:
        return None
    if isinstance(parse, ghost):
        return str(vars(parse)["name"]).rpartition(".")[2]
    name = str(getattr(parse, "__name__", type(parse).__name__))
    return f"json.{name}" if getattr(parse, "__module__", "") == "json" else name


def _text(action: argparse.Action, name: str) -> str:
    found = getattr(action, name, None)
    return found if isinstance(found, str) else ""


def _listed(values: Iterable[object]) -> list[object]:
    """Return values in their order, those of a set sorted."""
    return sorted(values, key=repr) if isinstance(values, (set, frozenset)) else list(values)


def _plain(value: object) -> tuple[object, bool]:
    """Return a default as JSON holds it, and whether it is one."""
    if value is argparse.SUPPRESS:
        return None, True
    if isinstance(value, (list, tuple, set, frozenset)):
        items = _listed(value)
        return (items, True) if all(_is_plain(item) for item in items) else (None, False)
    if isinstance(value, dict):
        plain = all(isinstance(key, str) and _is_plain(entry) for key, entry in value.items())
        return (value, True) if plain else (None, False)
    return (value, True) if _is_plain(value) else (None, False)


def _is_plain(value: object) -> bool:
    return value is None or type(value) in {str, int, float, bool}


def _shown(error: BaseException, files: dict[str, str]) -> dict[str, object]:
    """Return what an exception says and the last place in the tree that it passed."""
    places = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename in set(files.values())
    ]
    where = f"{places[-1][0]}:{places[-1][1]}" if places else None
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    return {"type": type(error).__name__, "message": str(error)[:2000], "where": where}


def _answer() -> None:
    order = json.load(sys.stdin)
    sys.path.insert(0, order["root"])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    document = main(order["root"], order["needed"], order["choices"])
    json.dump(document, out, default=repr)
    out.flush()
    os._exit(0)  # nothing that the tree left behind (threads, exit handlers) has a say in it


if __name__ == "__main__":
    _answer()
