"""Names in a payload that stand for parameters of upstream's function."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from sglforge.errors import PatchError
from sglforge.patches import payload as payloads
from sglforge.patches import pytext
from sglforge.patches.edits import apply_edit, is_there, text_digest
from sglforge.patches.model import AnyPythonEdit, PythonEdit

ADAPTER: TypeAdapter[PythonEdit] = TypeAdapter(AnyPythonEdit)
OLD = b"class W:\n    def run(self, model_worker_batch, *rest, last=None, **more):\n        go(model_worker_batch)\n"
NEW = b"class W:\n    def run(self, batch, /, on_publish):\n        go(batch)\n"


def edit_of(operation: str = "prepend-to-body", **more: object) -> PythonEdit:
    fields = {"kind": "python", "file": "w.py", "payload": "p.py", "operation": operation, "anchor": "W.run"}
    return ADAPTER.validate_python({**fields, **more}, by_alias=True, by_name=False)


def edited(source: bytes, payload: str, edit: PythonEdit) -> str:
    code = payloads.read(payload.encode(), "p.py")
    after = apply_edit(pytext.read(source, "w.py"), edit, code)
    assert is_there(after, edit, code)
    return after.raw.decode()


def refused(source: bytes, payload: str, edit: PythonEdit) -> PatchError:
    with pytest.raises(PatchError) as caught:
        edited(source, payload, edit)
    return caught.value


PAYLOAD = """\
# the work is for the thing in batch
if thing.size > 1:
    é = [thing, (thing), me.thing, me.go(thing=thing, other=thing)]
    note = 'thing', \"\"\"
    thing\"\"\"
    me.thing.thing(lambda x: thing + x)
"""
WANTED = """\
        # the work is for the thing in batch
        if {0}.size > 1:
            é = [{0}, ({0}), self.thing, self.go(thing={0}, other={0})]
            note = 'thing', \"\"\"
    thing\"\"\"
            self.thing.thing(lambda x: {0} + x)
"""


@pytest.mark.parametrize(("source", "name"), [(OLD, "model_worker_batch"), (NEW, "batch")])
def test_a_variable_takes_upstreams_name_and_nothing_else_does(source: bytes, name: str) -> None:
    edit = edit_of(parameters={"thing": 1, "me": 0})
    header, rest = source.decode().split(":\n        ")
    text = edited(source, PAYLOAD, edit)
    assert text == header + ":\n" + WANTED.format(name) + f"        {rest}"


def test_names_may_change_places() -> None:
    source = b"class W:\n    def run(a, b):\n        pass\n"
    assert "        f(b, a)\n" in edited(source, "f(a, b)\n", edit_of(parameters={"a": 1, "b": 0}))


def test_a_function_that_replaces_another_takes_its_names() -> None:
    replaces = text_digest("def run(self, batch, /, on_publish):\n    go(batch)\n")
    edit = edit_of("replace-function", replaces=replaces, parameters={"thing": 1})
    assert edited(NEW, "def run(self, thing, on_publish):\n    stop(thing)\n", edit).endswith(
        "    def run(self, batch, on_publish):\n        stop(batch)\n"
    )


@pytest.mark.parametrize("index", [2, 9])
def test_a_parameter_that_is_not_there_is_drift_with_the_signature(index: int) -> None:
    error = refused(OLD, "f(thing)\n", edit_of(parameters={"thing": index}))
    assert error.code == "patch-drifted"
    assert "(self, model_worker_batch, *rest, last=None, **more)" in error.message
    assert f"parameter {index} of `W.run`" in error.message


def test_a_class_has_no_parameters() -> None:
    error = refused(OLD, "f(thing)\n", edit_of(anchor="W", parameters={"thing": 0}))
    assert (error.code, "is not a function" in error.message) == ("patch-drifted", True)


@pytest.mark.parametrize(
    ("payload", "line", "words"),
    [
        ("x = 1\nmodel_worker_batch = thing\n", 2, "uses `model_worker_batch`"),
        ("x = thing\nimport thing\n", 2, "more than the name of a parameter"),
        ("def thing():\n    pass\n", 1, "more than the name of a parameter"),
        ("x = thing\nlambda thing: thing\n", 2, "more than the name of a parameter"),
        ("def own(thing):\n    return thing\n", 1, "more than the name of a parameter"),
        ("\nx = thing\nlog(f'{x} {thing.size}')\n", 2, "in an f-string"),
        ("x = thing\nlog(f'{model_worker_batch}')\n", 2, "in an f-string"),
        ("x = 'thing'\n", 1, "does not use `thing`"),
        ("self.thing(thing=1)\n", 1, "does not use `thing`"),
        ("x = (thing\n", 1, "not Python"),
    ],
)
def test_a_name_that_cannot_be_told_apart_is_refused_with_its_line(payload: str, line: int, words: str) -> None:
    error = refused(OLD, payload, edit_of(parameters={"thing": 1}))
    assert (error.code, error.where) == ("patch-corrupt", f"p.py:{line}")
    assert words in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"a": 1, "b": 1}},
        {"parameters": {"a": -1}},
        {"parameters": {"a.b": 1}},
        {"parameters": {"a": 1}, "operation": "insert-after"},
        {"parameters": {"a": 1}, "anchor": None},
        {"parameters": {"a": 1}, "operation": "add-class-attribute"},
    ],
)
def test_parameters_that_cannot_be_meant_are_refused_on_reading(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="parameters"):
        edit_of(str(fields.pop("operation", "prepend-to-body")), **fields)
