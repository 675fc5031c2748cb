"""Parameters by position: names of ours in a payload that stand for whatever upstream calls its parameters."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping

from sglforge.errors import PatchError
from sglforge.patches.anchors import Function, find_function
from sglforge.patches.faults import corrupt, drifted
from sglforge.patches.model import ClassAttributeEdit, PythonEdit
from sglforge.patches.payload import Payload, understand
from sglforge.patches.pytext import PythonText, parse

Position = tuple[int, int]
"""A line and the column in it, in characters."""


def fitted(payload: Payload, source: PythonText, edit: PythonEdit) -> Payload:
    """Return the payload with the names of an edit's ``parameters`` as the anchored function spells them.

    Raises PatchError ``patch-drifted`` when the function has no such parameter, ``patch-corrupt`` when the payload
    does not use a name, or so that it cannot be told from another.
    """
    names = upstream_names(source, edit)
    return renamed(payload, names, signature=edit.operation == "replace-function") if names else payload


def upstream_names(source: PythonText, edit: PythonEdit) -> Mapping[str, str]:
    """Return what the anchored function calls each of an edit's ``parameters``, by our names.

    Raises PatchError ``patch-drifted`` when it has no such parameter.
    """
    if isinstance(edit, ClassAttributeEdit) or not edit.parameters or edit.anchor is None:
        return {}
    function = find_function(source.module, edit.anchor, source.file)
    return {name: _parameter(function, name, index, edit.anchor, source) for name, index in edit.parameters.items()}


def renamed(payload: Payload, names: Mapping[str, str], *, signature: bool = False) -> Payload:
    """Return the payload with variables renamed, by token: strings, attributes and keywords stay.

    With ``signature``, the parameters of its function are variables too.

    Raises PatchError ``patch-corrupt``.
    """
    understand(payload)
    module = parse(payload.text)
    columns = [line.encode() for line in payload.text.split("\n")]

    def position(node: ast.AST) -> Position:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return line, len(columns[line - 1][:column].decode())

    variables = {position(node) for node in _variables(module, signature=signature)}
    others = {position(node) for node in ast.walk(module) if isinstance(node, ast.keyword) and node.arg}
    lines = payload.text.split("\n")
    used: set[str] = set()
    taken = set(names.values()) - names.keys()
    for token in reversed(list(_names(payload.text, others))):
        (line, start), word = token.start, token.string
        if word in taken:
            raise _unclear(payload, line, f"the payload uses `{word}`, which is a parameter's name upstream")
        if word not in names:
            continue
        if token.start not in variables:
            raise _unclear(payload, line, f"the payload uses `{word}` as more than the name of a parameter")
        used.add(word)
        lines[line - 1] = lines[line - 1][:start] + names[word] + lines[line - 1][start + len(word) :]
    for name in (*names, *taken):
        if line := _in_a_format_string(module, name):
            raise _unclear(payload, line, f"the payload uses `{name}` in an f-string, where nothing is renamed")
    for name in names:
        if name not in used:
            raise _unclear(payload, 1, f"the payload does not use `{name}`, which is among its parameters")
    return Payload(text="\n".join(lines), where=payload.where)


def _parameter(function: Function, name: str, index: int, anchor: str, source: PythonText) -> str:
    positional = [*function.args.posonlyargs, *function.args.args]
    if index < len(positional):
        return positional[index].arg
    raise drifted(
        f"`{name}` is parameter {index} of `{anchor}`, which has no such parameter in {source.file} "
        f"(line {function.lineno}): ({ast.unparse(function.args)})",
        hint="read the new signature; give the index that it has there, or narrow the `versions`",
    )


def _variables(module: ast.Module, *, signature: bool) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            yield node
    for statement in module.body if signature else ():
        if isinstance(statement, Function):
            yield from (*statement.args.posonlyargs, *statement.args.args)


def _names(text: str, keywords: set[Position]) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens that are names and neither attributes nor names of keyword arguments."""
    depth, previous = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        depth += {"FSTRING_START": 1, "TSTRING_START": 1, "FSTRING_END": -1, "TSTRING_END": -1}.get(kind, 0)
        if kind == "NAME" and previous != "." and not depth and token.start not in keywords:
            yield token
        if kind not in {"COMMENT", "NL"}:
            previous = token.string


def _in_a_format_string(module: ast.Module, name: str) -> int:
    """Return the line of an f-string that uses a name, or 0."""
    for string in ast.walk(module):
        if isinstance(string, ast.JoinedStr):
            for node in ast.walk(string):
                if isinstance(node, ast.Name) and node.id == name:
                    return string.lineno
    return 0


def _unclear(payload: Payload, line: int, message: str) -> PatchError:
    return corrupt(message, where=f"{payload.where}:{line}", hint="choose a name that the payload uses for this alone")
