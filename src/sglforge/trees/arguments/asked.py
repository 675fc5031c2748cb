"""Ask the tree's own parser for its options, in a process of its own that has no torch and no network."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import sglforge
from sglforge.base import proc
from sglforge.errors import RenderError
from sglforge.trees.arguments import child
from sglforge.trees.arguments.files import SchemaFiles
from sglforge.trees.arguments.model import SUPPRESSED, Argument, argument_of

DEADLINE_S = 30.0
_ACTIONS: Mapping[str, str] = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "_StoreFalseAction": "store_false",
    "_StoreConstAction": "store_const",
    "_AppendAction": "append",
    "_AppendConstAction": "append_const",
    "_CountAction": "count",
    "_ExtendAction": "extend",
}


def ask_parser(
    files: SchemaFiles, *, run: proc.Runner = proc.run, deadline_s: float = DEADLINE_S
) -> tuple[Argument, ...]:
    """Return the options that the tree's ``add_cli_args`` adds to a parser.

    Its modules are compiled from their sources in an isolated interpreter without site-packages, and nothing is
    kept of it. What the options do not depend on is a stand-in that answers everything and means nothing.

    Args:
        files: The modules that are really run.
        run: How to start a process.
        deadline_s: When to give up, in seconds.

    Raises RenderError ``arguments-failed``, ``arguments-forbidden`` and ``arguments-timeout``.
    """
    root = Path(sglforge.__file__).resolve().parents[1]
    order = {
        "root": str(root),
        "needed": {name: str(path.absolute()) for name, path in files.needed.items()},
        "choices": {name: str(path.absolute()) for name, path in files.choices.items()},
    }
    program = Path(child.__file__).with_name("__main__.py")
    try:
        done = run(
            [sys.executable, "-I", "-S", "-B", program],
            cwd=Path("/"),
            env={},
            timeout_s=deadline_s,
            stdin=json.dumps(order),
            check=False,
        )
    except proc.ProcessError as error:
        if error.code != "process-timeout":
            raise
        raise RenderError(
            code="arguments-timeout",
            message=f"the parser of {files.tree} said nothing for {deadline_s:.0f} s",
            hint="something in its server_args.py or arg_groups waits or computes when it is imported; look there",
        ) from error
    return tuple(_argument(entry, files) for entry in _answer(done, files))


def _answer(done: proc.Completed, files: SchemaFiles) -> Sequence[object]:
    try:
        answer = json.loads(done.stdout)
        error, tries, arguments = answer["error"], list(answer["tries"]), list(answer["arguments"])
    except (ValueError, KeyError, TypeError) as fault:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RenderError(
            code="arguments-failed",
            message=f"the parser of {files.tree} gave no answer (status {done.returncode})",
            context={"output": tail} if tail else {},
            hint="it ended the process or ran out of memory when it was imported; look into its server_args.py",
        ) from fault
    if tries:
        raise RenderError(
            code="arguments-forbidden",
            message=f"the code of {files.tree} tried to {tries[0]} when it was imported",
            where=(error or {}).get("where"),
            context={"tried": "; ".join(dict.fromkeys(tries))},
            hint="upstream's code does nothing like it: find out where this tree comes from before you run it",
        )
    if error:
        raise RenderError(
            code="arguments-failed",
            message=f"the parser of {files.tree} cannot be asked: {error['type']}: {error['message']}",
            where=error["where"],
            hint="if this tree starts with its own Python, this is a shape that sglforge does not know yet",
        )
    return arguments


def _argument(entry: object, files: SchemaFiles) -> Argument:
    """Return an option of what the process says; the tree's code ran in it, so nothing is taken on trust."""
    match entry:
        case {
            "options": [*options],
            "dest": str(dest),
            "type": (str() | None) as type_,
            "nargs": (int() | str() | None) as nargs,
            "action": str(action),
            "choices": (list() | None) as choices,
            "choices_known": bool(choices_known),
            "default": default,
            "default_known": bool(default_known),
            "required": bool(required),
            "replacement": str(replacement),
            "refusal": str(refusal),
            "help": str(help_text),
        } if all(isinstance(option, str) for option in options):
            return argument_of(
                options=options,
                dest=dest,
                type=type_,
                nargs=nargs,
                action=_ACTIONS.get(action, action),
                choices=choices,
                choices_known=choices_known,
                default=None if default == SUPPRESSED else default,
                default_known=default_known,
                required=required,
                replacement=replacement,
                refusal=refusal,
                help=help_text,
            )
        case _:
            raise RenderError(
                code="arguments-failed",
                message=f"the parser of {files.tree} describes an option in a way that is not argparse's",
                context={"option": repr(entry)[:200]},
                hint="find out where this tree comes from before you run it",
            )
