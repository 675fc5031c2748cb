"""Read the options of a tree twice, by its syntax and by its own parser, and believe what both say."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import sglforge
from sglforge.base import proc
from sglforge.base.files import digest, write_json
from sglforge.base.ids import Sha256
from sglforge.base.workspace import Workspace
from sglforge.errors import PatchError, RenderError
from sglforge.trees.arguments.asked import ask_parser
from sglforge.trees.arguments.files import SchemaFiles, schema_files
from sglforge.trees.arguments.model import Argument, ArgumentSchema, arguments_of
from sglforge.trees.arguments.static import read_static
from sglforge.trees.version import tree_version

FORMAT = 1
"""Counted up when the readers find something else in the same files."""

_SHOWN = 8


def read_arguments(tree: Path, *, workspace: Workspace, run: proc.Runner = proc.run) -> ArgumentSchema:
    """Return the options of a tree's server: an unpacked wheel or source archive, a checkout, ``site-packages``.

    What two readers agree on is kept in the workspace under a hash of the files that it was read from, so that a
    second call only hashes them.

    Args:
        tree: The folder that holds ``sglang/`` or ``python/sglang/``; nothing in it is written.
        workspace: Where what was read is kept.
        run: How to start a process.

    Raises RenderError ``arguments-missing``, ``arguments-unreadable``, ``arguments-failed``,
    ``arguments-forbidden``, ``arguments-timeout`` and ``arguments-differ``.
    """
    files = schema_files(tree)
    found = files.digest()
    kept = workspace.arguments / f"{_key(found)}.json"
    arguments = _kept(kept)
    if arguments is None:
        arguments = read_twice(files, run=run)
        entries = [dataclasses.asdict(argument) for argument in arguments]
        write_json(kept, {"arguments": entries, "digest": digest(entries)})
    return ArgumentSchema(version=_version(tree), files=found, arguments=arguments)


def read_twice(files: SchemaFiles, *, run: proc.Runner = proc.run) -> tuple[Argument, ...]:
    """Return the options that both readers find, in the parser's order; what one cannot tell the other does.

    Raises RenderError as :func:`read_arguments`.
    """
    static, asked = read_static(files), ask_parser(files, run=run)
    if found := list(differences(static, asked)):
        raise RenderError(
            code="arguments-differ",
            message=f"the source of {files.tree} and its parser do not name the same options",
            context={
                "difference": "\n".join(
                    [*found[:_SHOWN], *([f"and {len(found) - _SHOWN} more"] if found[_SHOWN:] else [])]
                )
            },
            hint="this SGLang is written in a way that sglforge does not know yet: report it with these lines",
        )
    by_name = {argument.options: argument for argument in static}
    return tuple(_merged(argument, by_name[argument.options]) for argument in asked)


def differences(static: Sequence[Argument], asked: Sequence[Argument]) -> Iterator[str]:
    """Yield, in words, what two readings of one tree contradict each other in; not knowing is no contradiction."""
    ours = {argument.options: argument for argument in static}
    theirs = {argument.options: argument for argument in asked}
    for options in sorted(ours.keys() ^ theirs.keys()):
        yield f"{'/'.join(options)}: only {'the source' if options in ours else 'the parser'} has it"
    for options in sorted(ours.keys() & theirs.keys()):
        one, other = ours[options], theirs[options]
        for name in _compared(one, other):
            mine, its = getattr(one, name), getattr(other, name)
            if mine != its:
                yield f"{'/'.join(options)}: {name} is {mine!r} in the source, {its!r} in the parser"


def _compared(one: Argument, other: Argument) -> Iterator[str]:
    yield from ("dest", "type", "nargs", "action", "required", "deprecated", "replacement", "refusal", "hidden")
    if one.choices_known and other.choices_known:
        yield "choices"
    if one.default_known and other.default_known:
        yield "default"


def _merged(asked: Argument, static: Argument) -> Argument:
    """Return one argument of both readings; the order of choices is the source's where it has one."""
    # That there are no choices is believed from both only: a stand-in may have stood for them.
    choices_known = (asked.choices_known or static.choices_known) and not (
        asked.choices_known != static.choices_known and asked.choices is None and static.choices is None
    )
    return dataclasses.replace(
        asked,
        choices=asked.choices if asked.choices_known else static.choices,
        choices_known=choices_known,
        default=asked.default if asked.default_known else static.default,
        default_known=asked.default_known or static.default_known,
    )


def _key(files: Sha256) -> Sha256:
    return digest([FORMAT, sglforge.__version__, f"{sys.version_info.major}.{sys.version_info.minor}", files])


def _kept(path: Path) -> tuple[Argument, ...] | None:
    """Return what was kept, None where there is nothing or it is damaged: then it is read again."""
    try:
        document = json.loads(path.read_bytes())
        if document["digest"] != digest(document["arguments"]):
            return None
        return arguments_of(document["arguments"])
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None


def _version(tree: Path) -> str:
    try:
        return tree_version(tree)
    except PatchError:
        return "(of an unknown version)"
