"""The contract `flag-exists`: the options that a topic promises are those of the patched tree's own parser."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sglforge.config.suggest import nearest
from sglforge.errors import Finding, RenderError, Severity
from sglforge.patches.contracts.tree import PatchedTree


def flag_exists(tree: PatchedTree, flags: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Yield a finding for each flag that is not among the options of a tree.

    ``flags`` come with the place that each is declared at. Prefixes do not count, although argparse takes them.
    """
    if not flags:
        return
    try:
        options = option_strings(tree)
    except RenderError as error:
        yield Finding(
            code="patch-flag-missing",
            severity=Severity.ERROR,
            message=f"the options of the patched tree cannot be read: {error.message}",
            hint=error.hint,
            where=flags[0][1],
            detail=tuple(f"{key}: {value}" for key, value in error.context.items()),
        )
        return
    for flag, where in flags:
        if flag not in options:
            near = nearest(flag, options)
            yield Finding(
                code="patch-flag-missing",
                severity=Severity.ERROR,
                message=f"the parser of the patched tree has no option {flag}",
                hint=f"did you mean `{near}`?" if near else "add it in a payload, or correct its name",
                where=where,
            )


def option_strings(tree: PatchedTree) -> frozenset[str]:
    """Return the option strings of a patched tree as its own parser names them, in a process of its own.

    Raises RenderError as :func:`sglforge.trees.arguments.asked.ask_parser` does.
    """
    from sglforge.trees.arguments.asked import ask_parser
    from sglforge.trees.arguments.files import schema_files

    files = schema_files(tree.root)
    with tempfile.TemporaryDirectory() as folder:
        needed = _edited(tree, files.needed, Path(folder, "needed"))
        choices = _edited(tree, files.choices, Path(folder, "choices"))
        arguments = ask_parser(dataclasses.replace(files, needed=needed, choices=choices))
    return frozenset(option for argument in arguments for option in argument.options)


def _edited(tree: PatchedTree, modules: Mapping[str, Path], folder: Path) -> Mapping[str, Path]:
    """Return modules with those that are edited written to a folder."""
    folder.mkdir()
    edited = dict(modules)
    for name, path in modules.items():
        if text := tree.texts.get(path.resolve().relative_to(tree.root).as_posix()):
            edited[name] = folder / f"{name}.py"
            edited[name].write_bytes(text.raw)
    return edited
