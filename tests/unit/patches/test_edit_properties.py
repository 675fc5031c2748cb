"""Whatever the file looks like: its bytes survive, its structure survives, the edit is where it should be, once."""

from __future__ import annotations

import ast
import codecs
import functools
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sglforge.errors import PatchError
from sglforge.patches import payload as payloads
from sglforge.patches import pytext
from sglforge.patches.edits import apply_edit
from sglforge.patches.model import AnyPythonEdit, PythonEdit

PAYLOADS = (
    b"sglforge_mark = 1\n",
    b"# why\nsglforge_mark = 1\nif sglforge_mark:\n    sglforge_mark = [\n        2,\n    ]\n",
    b"def sglforge_mark(a):\n    '''Doc.\n\n      text\n    '''\n\n    return a\n",
    b"sglforge_mark = f'''{\n1\n}\n  x'''\n",
)
OPERATIONS = ("prepend-to-body", "append-to-body", "insert-before", "insert-after")
NAMES = ("f", "g", "A", "B", "_x")
DOCSTRINGS: tuple[list[str], ...] = (
    [],
    ['"""Doc é."""'],
    ["'doc'; x = 1"],
    ['"doc" \\', " 'more'"],
    ['"""a', "", 'b"""'],
)
SIMPLE = (
    ["é = 'ü'"],
    ["x = 1; y = 2  # both"],
    ["x = [", "1,", "]"],
    ["# only a comment", "pass"],
    ["s = 'a' \\", "'b'"],
)
ONE_LINE_BODIES = ("pass", "x = 1; y = 2", "'doc'; x = 1  # c", "'doc'")
DECORATORS: tuple[list[str], ...] = ([], ["@d"], ["@d(1,", "2)"], ["@(", "d)"])
HEADS = {
    "def": ("def {}(a, b=1):", "async def {}():"),
    "class": ("class {}:", "class {}(B):"),
    "block": ("if x:", "for x in y:", "while x:"),
}
ADAPTER: TypeAdapter[PythonEdit] = TypeAdapter(AnyPythonEdit)


@st.composite
def python_files(draw: st.DrawFn) -> bytes:
    """Python as people write it and as nobody should: any indentation, line ending, encoding, layout of bodies."""
    unit = draw(st.sampled_from(["    ", "  ", "\t", "   ", "        "]))
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines: list[str] = draw(
        st.sampled_from([[], ["#!/usr/bin/python"], ['"""Doc."""', "from __future__ import annotations"]])
    )
    encoding, mark = draw(st.sampled_from([("utf-8", b""), ("utf-8", codecs.BOM_UTF8), ("latin-1", b"")]))
    if encoding == "latin-1":
        lines = ["# -*- coding: latin-1 -*-", *lines]
    lines = [*lines, *draw(suite("", unit, 0, "module"))]
    text = newline.join(lines) + draw(st.sampled_from(["", newline, newline * 2 + "# end"]))
    return mark + text.encode(encoding)


@st.composite
def suite(draw: st.DrawFn, prefix: str, unit: str, depth: int, owner: str) -> list[str]:
    docstring = draw(st.sampled_from(DOCSTRINGS)) if owner != "module" else []
    lines = [prefix + docstring[0], *docstring[1:]] if docstring else []
    for _ in range(draw(st.integers(0 if lines else 1, 3))):
        lines += draw(statement(prefix, unit, depth))
    return lines


@st.composite
def statement(draw: st.DrawFn, prefix: str, unit: str, depth: int) -> list[str]:
    noise = draw(st.sampled_from([[], [""], [prefix + "# why"], ["# far left"]]))
    kind = draw(st.sampled_from(["simple", *HEADS] if depth < 3 else ["simple"]))
    if kind == "simple":
        return [*noise, *(prefix + line for line in draw(st.sampled_from(SIMPLE)))]
    head = draw(st.sampled_from(HEADS[kind])).format(draw(st.sampled_from(NAMES)))
    decorators = [] if kind == "block" else draw(st.sampled_from(DECORATORS))
    lines = [*noise, *(prefix + line for line in decorators), prefix + head]
    if draw(st.integers(0, 3)) == 0:
        lines[-1] += " " + draw(st.sampled_from(ONE_LINE_BODIES))
    else:
        lines += draw(suite(prefix + unit, unit, depth + 1, kind))
    if kind == "block" and draw(st.booleans()):
        lines += draw(st.sampled_from([[f"{prefix}else:", f"{prefix}{unit}z = 1"], [f"{prefix}else: z = 1"]]))
    return lines


def definitions(module: ast.Module) -> dict[str, int]:
    """Return every qualified name with how often it is defined: written apart from the engine's own search."""
    found: dict[str, int] = {}

    class Visitor(ast.NodeVisitor):
        def __init__(self) -> None:
            self.path: list[str] = []

        def visit_ClassDef(self, node: ast.ClassDef) -> None:
            self.enter(node, [node.name])

        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            self.enter(node, [node.name, "<locals>"])

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            self.enter(node, [node.name, "<locals>"])

        def enter(self, node: ast.AST, names: list[str]) -> None:
            name = ".".join([*self.path, names[0]])
            found[name] = found.get(name, 0) + 1
            before, self.path = self.path, [*self.path, *names]
            self.generic_visit(node)
            self.path = before

    Visitor().visit(module)
    return found


def marked(statement: ast.stmt) -> bool:
    """Tell whether a statement is one of the payloads'."""
    name = getattr(statement, "name", "") or ast.unparse(getattr(statement, "test", None) or statement)
    return name.startswith("sglforge_mark")


class Unmarked(ast.NodeTransformer):
    """Take the payload out again, and remember inside which definitions it stood."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.homes: set[str] = set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        names = [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []
        self.path += names
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                kept = [child for child in statements if not marked(child)]
                if len(kept) < len(statements):
                    self.homes.add(".".join(self.path))
                setattr(node, field, kept)
        super().generic_visit(node)
        if names:
            self.path.pop()
        return node


def check(raw: bytes, operation: str, anchor: str | None, code: bytes) -> None:
    fields = {"kind": "python", "file": "f.py", "payload": "p.py", "operation": operation}
    edit = ADAPTER.validate_python(fields | ({"anchor": anchor} if anchor else {}), by_alias=True, by_name=False)
    source, payload = pytext.read(raw, "f.py"), payloads.read(code, "p.py")
    try:
        after = apply_edit(source, edit, payload)
    except PatchError as error:
        if error.code != "patch-no-effect":  # below a `return` in the standard library
            raise
        return
    survives(raw, after.raw)
    assert apply_edit(pytext.read(raw, "f.py"), edit, payload).raw == after.raw
    transformer = Unmarked()
    assert ast.dump(transformer.visit(pytext.parse(after.text))) == ast.dump(source.module)
    plain = (anchor or "").replace(".<locals>", "")
    wanted = plain if operation.endswith("to-body") else plain.rpartition(".")[0]
    assert transformer.homes == {wanted}
    with pytest.raises(PatchError) as caught:
        apply_edit(after, edit, payload)
    assert caught.value.code == "patch-already-there"


def survives(old: bytes, new: bytes) -> None:
    """Hold that nothing but one stretch was put in, or, where a line was broken, that and white space."""
    prefix = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    suffix = next((i for i, (a, b) in enumerate(zip(reversed(old), reversed(new), strict=False)) if a != b), len(old))
    if prefix + suffix >= len(old):
        return
    gone, come = b"".join(old.split()), b"".join(new.split())
    start = next((i for i, (a, b) in enumerate(zip(gone, come, strict=False)) if a != b), len(gone))
    assert come.endswith(gone[start:])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(python_files(), st.sampled_from(OPERATIONS), st.sampled_from(PAYLOADS), st.data())
def test_any_file_survives_an_edit(raw: bytes, operation: str, code: bytes, data: st.DataObject) -> None:
    names = sorted(name for name, count in definitions(pytext.read(raw, "f.py").module).items() if count == 1)
    choices: list[str | None] = [*names, *([None] if operation.endswith("to-body") else [])]
    assume(choices)
    check(raw, operation, data.draw(st.sampled_from(choices)), code)


@functools.cache
def library() -> tuple[Path, ...]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = [*folder.glob("*.py"), *folder.glob("asyncio/*.py"), *folder.glob("json/*.py"), *folder.glob("email/*.py")]
    return tuple(sorted(path for path in found if path.stat().st_size < 60_000))


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(OPERATIONS), st.sampled_from(PAYLOADS))
def test_code_of_the_standard_library_survives_an_edit(data: st.DataObject, operation: str, code: bytes) -> None:
    raw = data.draw(st.sampled_from(library())).read_bytes()
    names = sorted(name for name, count in definitions(pytext.parse(raw.decode())).items() if count == 1)
    assume(names)
    check(raw, operation, data.draw(st.sampled_from(names)), code)
